"""What actum.toml says about the outside."""

from __future__ import annotations

from pathlib import Path

import pytest

from actum import settings
from actum.contract.model import RunnerKind
from actum.errors import ContractInvalid
from actum.project import create


@pytest.fixture
def host(tmp_path: Path) -> Path:
    create(tmp_path / "project", RunnerKind.LOCAL, by="user:test", date="2026-11-15")
    return tmp_path


def load(host: Path, toml: str = "", **environment: str) -> settings.Settings:
    with (host / "project/actum.toml").open("a") as file:
        file.write(toml)
    home = str(host / "home")
    return settings.load(host / "project/.actum", {"HOME": home, "LOGNAME": "me", **environment})


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
