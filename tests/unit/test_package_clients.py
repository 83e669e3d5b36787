"""What pip, npm and apt of a host are set up for: their files, variables and own defaults."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from actum import settings
from actum.contract.model import RunnerKind
from actum.contract.package_registries import Registries
from actum.package_clients import registries_of_host
from actum.project import create

PIP = 'PyPI = PackageIndex("https://index.test/", file_storage_domain="files.test")\n'
NPM = "  registry: new Definition('registry', {\n    default: 'https://npm.test/',\n"


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """A host on which nothing is installed and nothing set up."""
    (tmp_path / "home/.config/pip").mkdir(parents=True)
    (tmp_path / "etc/apt/sources.list.d").mkdir(parents=True)
    return tmp_path


def write(path: Path, text: str, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


def install(host: Path) -> None:
    """pip and npm, as Debian and Node's own packages have them."""
    write(host / "usr/bin/python3.11", "", 0o755)
    (host / "usr/bin/python3").symlink_to("python3.11")
    write(host / "usr/lib/python3/dist-packages/pip/_internal/models/index.py", PIP)
    package = host / "usr/lib/node_modules/npm"
    write(package / "bin/npm-cli.js", "", 0o755)
    (host / "usr/bin/npm").symlink_to("../lib/node_modules/npm/bin/npm-cli.js")
    write(package / "node_modules/@npmcli/config/lib/definitions/definitions.js", NPM)


def found(host: Path, *writable: Path, **environment: str) -> Registries:
    environment = {"HOME": str(host / "home"), **environment}
    return registries_of_host(environment, map(str, writable), root=str(host))


@pytest.mark.req("000-52")
def test_without_any_set_up_there_is_no_registry(host: Path) -> None:
    assert found(host) == Registries()


@pytest.mark.req("000-52")
def test_the_defaults_are_those_of_the_installed_clients(host: Path) -> None:
    install(host)
    assert found(host) == Registries(hosts=("files.test", "index.test", "npm.test"))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            "lib/utils/config/definitions.js",
            "define('registry', {\n  default: 'https://nine.test/',",
        ),
        ("lib/config/defaults.js", "    registry: 'https://nine.test/',\n"),
        ("../@npmcli/config/lib/definitions/definitions.js", NPM.replace("npm.test", "nine.test")),
    ],
)
def test_the_default_of_other_versions_of_npm_is_found(host: Path, name: str, text: str) -> None:
    install(host)
    package = host / "usr/lib/node_modules/npm"
    (package / "node_modules/@npmcli/config/lib/definitions/definitions.js").unlink()
    write(Path(os.path.normpath(package / name)), text)
    assert "nine.test" in found(host).hosts


def test_the_installed_pip_of_another_prefix_is_asked(host: Path) -> None:
    write(host / "usr/local/bin/python3", "", 0o755)
    folder = host / "usr/local/lib/python3.12/site-packages"
    write(folder / "pip/_internal/models/index.py", PIP)
    assert found(host).hosts == ("files.test", "index.test")


@pytest.mark.req("000-52")
def test_the_files_and_variables_of_pip_npm_and_apt_are_read_as_the_clients_read_them(
    host: Path,
) -> None:
    install(host)
    write(
        host / "etc/pip.conf",
        "[global]\n# index-url = https://commented.test/\nindex-url = https://u:p@one.test/simple\n"
        "extra-index-url =\n    https://two.test:8443/simple\n    file:///opt/wheels\n",
    )
    write(host / "usr/etc/npmrc", "registry=https://four.test/npm/\n//four.test/:_authToken=x\n")
    write(
        host / "home/.npmrc", '@ours:registry = "https://five.test"\n; registry=https://no.test\n'
    )
    write(
        host / "etc/apt/sources.list",
        "deb http://six.test/debian stable main\n# deb http://commented.test/ x\n",
    )
    apt = host / "etc/apt/sources.list.d"
    write(apt / "a.list", "deb-src [arch=amd64] https://seven.test/ x y\n")
    write(apt / "b.sources", "Types: deb\nURIs: https://eight.test/debian\n http://nine.test\n")
    write(apt / "c.list.disabled", "deb https://off.test/ x\n")
    names = ("one", "four", "five", "six", "seven", "eight", "nine")
    system = found(host)
    assert set(system.hosts) == {f"{name}.test" for name in names} | {"two.test:8443"}
    # The name and password of an index are no business of a tool.
    assert system.environment == {
        "PIP_INDEX_URL": "https://one.test/simple",
        "PIP_EXTRA_INDEX_URL": "https://two.test:8443/simple",
        "npm_config_registry": "https://four.test/npm/",
    }
    # The user's file is stronger than the system's, a section for `install` than `[global]`.
    write(
        host / "home/.config/pip/pip.conf",
        "[install]\nindex_url: http://three.test/\ntrusted-host = three.test\n[global]\nindex-url = http://x.test\n",
    )
    user = found(host)
    assert {"three.test", "two.test:8443"} <= set(user.hosts)
    assert not {"one.test", "x.test"} & set(user.hosts)
    assert user.environment["PIP_TRUSTED_HOST"] == "three.test"
    # And a variable of the caller is stronger than both.
    caller = found(
        host,
        PIP_INDEX_URL="https://ten.test",
        PIP_EXTRA_INDEX_URL="https://eleven.test https://twelve.test",
        NPM_CONFIG_REGISTRY="https://thirteen.test",
    )
    assert {"ten.test", "eleven.test", "twelve.test", "thirteen.test"} <= set(caller.hosts)
    assert not {"three.test", "two.test:8443", "four.test"} & set(caller.hosts)


def test_the_files_host_belongs_to_the_default_index_only(host: Path) -> None:
    install(host)
    assert "files.test" not in found(host, PIP_INDEX_URL="https://mirror.test/simple").hosts
    assert "files.test" in found(host, PIP_INDEX_URL="https://index.test/simple/").hosts
    assert "files.test" in found(host, PIP_EXTRA_INDEX_URL="https://mirror.test/simple").hosts
    assert found(host, PIP_NO_INDEX="1").hosts == ("npm.test",)


def test_variables_of_an_npmrc_are_filled_in_and_odd_urls_lead_nowhere(host: Path) -> None:
    write(host / "home/.npmrc", "registry=https://${PLACE}/npm/\n@a:registry=file:///x\n")
    write(host / "etc/pip.conf", "[global]\nindex-url = https://[::bad\n")
    assert found(host, PLACE="filled.test").hosts == ("filled.test",)


def test_files_that_the_variables_name_are_read(host: Path) -> None:
    write(host / "own/pip.conf", "[global]\nindex-url = https://one.test/\n")
    write(host / "own/npmrc", "registry=https://two.test/\n")
    named = {
        "PIP_CONFIG_FILE": f"{host}/own/pip.conf",
        "npm_config_userconfig": f"{host}/own/npmrc",
    }
    assert found(host, **named).hosts == ("one.test", "two.test")
    write(host / "etc/pip.conf", "[global]\nindex-url = https://three.test/\n")
    assert found(host, PIP_CONFIG_FILE=os.devnull).hosts == ()


@pytest.mark.parametrize("inside", ["home", "home/.config", "home/.config/pip"])
def test_a_file_that_a_tool_may_write_sets_up_nothing(host: Path, inside: str) -> None:
    file = host / "home/.config/pip/pip.conf"
    write(file, "[global]\nindex-url = https://planted.test/\n")
    assert found(host, host / "other").hosts == ("planted.test",), "the control"
    refused = found(host, host / inside)
    assert refused.hosts == ()
    (why,) = refused.ignored
    assert "is a path that tools may write" in why


def test_a_file_that_others_may_write_or_that_is_a_link_into_the_project_sets_up_nothing(
    host: Path,
) -> None:
    write(host / "home/.npmrc", "registry=https://planted.test/\n", 0o666)
    assert found(host).hosts == ()
    (host / "home/.npmrc").unlink()
    write(host / "project/npmrc", "registry=https://planted.test/\n")
    (host / "home/.npmrc").symlink_to("../project/npmrc")
    assert found(host).hosts == ("planted.test",), "the control"
    assert found(host, host / "project").hosts == ()


def test_a_client_that_a_tool_may_have_changed_has_no_default(host: Path) -> None:
    install(host)
    assert found(host, host / "usr/lib").hosts == ()


def test_a_pipe_in_place_of_a_file_does_not_block(host: Path) -> None:
    os.mkfifo(host / "home/.npmrc")
    assert found(host).hosts == ()


@pytest.fixture
def project(host: Path) -> Path:
    create(host / "project", RunnerKind.LOCAL, by="user:test", date="2026-11-15")
    return host / "project"


def load(project: Path, toml: str = "", **environment: str) -> settings.Settings:
    with (project / "actum.toml").open("a") as file:
        file.write(toml)
    home = str(project.parent / "home")
    return settings.load(project / ".actum", {"HOME": home, "LOGNAME": "me", **environment})


@pytest.mark.req("000-52")
def test_what_actum_toml_lists_stands_in_place_of_what_the_host_is_set_up_for(
    project: Path,
) -> None:
    toml = '[network]\nregistries = ["ours.test", "one.test"]\n'
    found = load(project, toml, PIP_INDEX_URL="https://one.test/simple").registries(())
    assert found.hosts == ("ours.test", "one.test")
    assert found.environment == {"PIP_INDEX_URL": "https://one.test/simple"}
    other = load(project, "", PIP_INDEX_URL="https://elsewhere.test/simple").registries(())
    assert other.hosts == ("ours.test", "one.test")
    assert "PIP_INDEX_URL" not in other.environment


def test_a_file_in_the_project_sets_up_nothing(project: Path) -> None:
    """A tool may write there, also where the project is the caller's home."""
    write(project / ".npmrc", "registry=https://planted.test/\n")
    write(project / ".config/pip/pip.conf", "[global]\nindex-url = https://planted.test/\n")
    loaded = settings.load(project / ".actum", {"HOME": str(project), "LOGNAME": "me"})
    found = loaded.registries(())
    assert "planted.test" not in found.hosts
    assert len(found.ignored) == 2


@pytest.mark.parametrize("quote", ["", '"', "'"])
def test_no_password_reaches_a_tool_however_the_url_is_quoted(host: Path, quote: str) -> None:
    url = f"{quote}https://me:secret@own.test/simple/{quote}"
    set_up = found(host, PIP_INDEX_URL=url, PIP_EXTRA_INDEX_URL=url, npm_config_registry=url)
    assert set_up.hosts == ("own.test",)
    assert set(set_up.environment.values()) == {"https://own.test/simple/"}
