"""What actum.toml and this host's package clients say about the outside."""

from __future__ import annotations

from pathlib import Path

import pytest

from actum import settings
from actum.contract.model import RunnerKind
from actum.errors import ContractInvalid
from actum.project import create


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A host on which nothing is set up."""
    apt = tmp_path / "apt"
    (apt / "sources.list.d").mkdir(parents=True)
    monkeypatch.setattr(settings, "_APT", apt)
    monkeypatch.setattr(settings, "_PIP_FILES", (tmp_path / "pip.conf",))
    monkeypatch.setattr(settings, "_NPM_FILES", (tmp_path / "npmrc",))
    (tmp_path / "home/.config/pip").mkdir(parents=True)
    create(tmp_path / "project", RunnerKind.LOCAL, by="user:test", date="2026-11-15")
    return tmp_path


def load(host: Path, toml: str = "", **environment: str) -> settings.Settings:
    with (host / "project/actum.toml").open("a") as file:
        file.write(toml)
    home = str(host / "home")
    return settings.load(host / "project/.actum", {"HOME": home, "LOGNAME": "me", **environment})


@pytest.mark.req("000-52")
def test_without_any_set_up_there_is_no_registry(host: Path) -> None:
    assert load(host).registries == ()


@pytest.mark.req("000-52")
def test_the_files_and_variables_of_pip_npm_and_apt_are_read(host: Path) -> None:
    (host / "pip.conf").write_text(
        "[global]\n# index-url = https://commented.test/\nindex-url = https://u:p@one.test/simple\n"
        "extra-index-url =\n    https://two.test:8443/simple\n    file:///opt/wheels\n"
    )
    (host / "home/.config/pip/pip.conf").write_text("[install]\nindex-url: http://three.test/\n")
    (host / "npmrc").write_text("registry=https://four.test/npm/\n//four.test/:_authToken=x\n")
    (host / "home/.npmrc").write_text('@ours:registry = "https://five.test"\n')
    (host / "apt/sources.list").write_text(
        "deb http://six.test/debian stable main\n# deb http://commented.test/ x\n"
    )
    (host / "apt/sources.list.d/a.list").write_text(
        "deb-src [arch=amd64] https://seven.test/ x y\n"
    )
    (host / "apt/sources.list.d/b.sources").write_text(
        "Types: deb\nURIs: https://eight.test/debian\n http://nine.test\nSuites: x\n"
    )
    (host / "apt/sources.list.d/c.list.disabled").write_text("deb https://off.test/ x\n")
    found = load(
        host,
        PIP_INDEX_URL="https://ten.test",
        PIP_EXTRA_INDEX_URL="https://eleven.test https://twelve.test",
        npm_config_registry="https://[::bad",
    ).registries
    numbers = ("one", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven")
    assert set(found) == {f"{number}.test" for number in (*numbers, "twelve")} | {"two.test:8443"}


@pytest.mark.req("000-52")
def test_what_actum_toml_lists_stands_in_place_of_what_the_host_is_set_up_for(host: Path) -> None:
    found = load(host, '[network]\nregistries = ["ours.test"]\n', PIP_INDEX_URL="https://one.test")
    assert found.registries == ("ours.test",)


def test_a_file_in_the_project_sets_up_nothing(host: Path) -> None:
    """A tool may write there."""
    (host / "project/.npmrc").write_text("registry=https://planted.test/\n")
    (host / "project/pip.conf").write_text("[global]\nindex-url = https://planted.test/\n")
    assert load(host).registries == ()


def test_names_of_private_places_are_read_without_regard_to_case(host: Path) -> None:
    toml = '[egress.resolve]\n"API.test:443" = "127.0.0.1:8443"\n"six.test:80" = "[::1]:80"\n'
    assert load(host, toml).resolve == {
        "api.test:443": "127.0.0.1:8443",
        "six.test:80": "[::1]:80",
    }


@pytest.mark.parametrize(
    ("name", "place"),
    [
        ("api.test", "127.0.0.1:80"),
        ("api.test:x", "127.0.0.1:80"),
        ("api.test:0", "127.0.0.1:80"),
        ("api.test:80", "127.0.0.1"),
        ("api.test:80", "other.test:80"),
        ("api.test:80", "::1:80"),
        ("api.test:80", "127.0.0.1:70000"),
    ],
)
def test_a_private_place_that_cannot_be_read_is_a_problem_with_its_name(
    host: Path, name: str, place: str
) -> None:
    with pytest.raises(ContractInvalid) as invalid:
        load(host, f'[egress.resolve]\n"{name}" = "{place}"\n')
    (problem,) = invalid.value.problems
    assert problem.field == "egress.resolve"
    assert name in problem.message
