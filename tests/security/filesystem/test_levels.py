"""The four levels of seed 000, as the tool meets them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hostile.jail import Jail

pytestmark = pytest.mark.sandbox

READ = "cat here ../of-the-project ../deps/one ../../elsewhere/secret 2>/dev/null; true"
PLACES = (".", "..", "../deps", "../out", "../../elsewhere")
WRITE = f"for place in {' '.join(PLACES)}; do echo x > $place/written; done 2>/dev/null; true"


def _written(jail: Jail) -> list[str]:
    """Where the host finds what the tool wrote; scratch that dies with the sandbox is no place."""
    found = [place for place in PLACES if (jail.work / place / "written").exists()]
    for place in found:
        (jail.work / place / "written").unlink()
    return found


@pytest.fixture
def house(own_jail: Jail) -> Jail:
    (own_jail.work / "here").write_text("here ")
    (own_jail.root / "of-the-project").write_text("project ")
    for folder in ("deps", "out"):
        (own_jail.root / folder).mkdir()
    (own_jail.root / "deps" / "one").write_text("deps ")
    (own_jail.elsewhere / "secret").write_text("secret ")
    assert own_jail.outside(READ) == "here project deps secret"
    own_jail.outside(WRITE)
    assert _written(own_jail) == list(PLACES)
    return own_jail


def _at(level: str, **more: object) -> dict[str, object]:
    return {"sandbox.filesystem.level": level, **more}


@pytest.mark.req("000-44")
def test_minimal_reads_the_working_directory_and_writes_nothing(house: Jail) -> None:
    assert house.said(house.sh(READ, limits=_at("minimal"))) == "here"
    house.sh(WRITE, limits=_at("minimal")).check()
    assert _written(house) == []
    change = "rm here || mv here x || chmod 777 here || ln here x || echo x >> here; ls"
    assert house.said(house.sh(f"{{ {change}; }} 2>/dev/null", limits=_at("minimal"))) == "here"


@pytest.mark.req("000-45", "004-43")
def test_standard_reads_the_project_and_writes_the_working_directory(house: Jail) -> None:
    assert house.said(house.sh(READ, limits=_at("standard"))) == "here project deps"
    house.sh(WRITE, limits=_at("standard")).check()
    assert _written(house) == ["."]
    assert house.said(house.sh(READ)) == "here project deps"  # and it is what silence means


@pytest.mark.req("000-46")
def test_extended_also_writes_the_output_directory(house: Jail) -> None:
    (house.work / "output").mkdir()
    fields = _at("extended")
    assert house.said(house.sh(READ, limits=fields)) == "here project deps"
    house.sh(WRITE, limits=fields).check()
    assert _written(house) == ["."]
    declared = _at("extended", **{"outputs.output_files": ["../out/file"]})
    house.sh(WRITE + "; echo made > ../out/file", limits=declared).check()
    assert _written(house) == [".", "../out"]
    assert (house.root / "out" / "file").read_text() == "made\n"


@pytest.mark.req("000-48")
def test_elevated_is_refused_without_an_approval(house: Jail) -> None:
    result = house.sh("echo started", limits=_at("elevated"))
    assert result.result is None
    assert "APPROVAL_REQUIRED" in result.reason_codes


@pytest.mark.req("000-8")
def test_the_tool_starts_in_its_working_directory(house: Jail) -> None:
    (house.work / "deeper").mkdir()
    assert house.said(house.sh("pwd", cwd=house.work / "deeper")) == str(house.work / "deeper")


@pytest.mark.req("000-8")
@pytest.mark.parametrize("place", ["missing", "elsewhere", "link out"])
def test_a_working_directory_that_is_missing_or_outside_is_refused(house: Jail, place: str) -> None:
    os.symlink(house.elsewhere, house.work / "out")
    folder: Path = {
        "missing": house.work / "none",
        "elsewhere": house.elsewhere,
        "link out": house.work / "out",
    }[place]
    result = house.sh("echo started", cwd=folder)
    assert result.result is None
    assert {found.field for found in result.violations} == {"inputs.working_directory"}
