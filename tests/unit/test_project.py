"""The project's own promises: rows, locks, licence, words."""

from __future__ import annotations

import re
import runpy
import subprocess
import tomllib
from collections import Counter
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
DECISION = (ROOT / "docs/decisions/0002-dependencies.md").read_text().lower()

conformance = SimpleNamespace(**runpy.run_path(str(ROOT / "scripts/conformance.py")))


def names(requirements: list[str]) -> list[str]:
    return [re.split(r"[\[<>=~! ;]", line)[0].lower() for line in requirements]


RUNTIME = names(PROJECT["project"]["dependencies"])
DEVELOPMENT = names(PROJECT["project"]["optional-dependencies"]["dev"])
FLEET = names(PROJECT["project"]["optional-dependencies"]["fleet"])
BUILD = names(PROJECT["build-system"]["requires"])


def locked(file: str) -> dict[str, str]:
    """Name -> block of one lock file."""
    text = (ROOT / "requirements" / file).read_text()
    blocks = re.split(r"^(?=[A-Za-z0-9])", text, flags=re.MULTILINE)[1:]
    return {block.split("==")[0].lower().replace("_", "-"): block for block in blocks}


def test_the_page_holds_every_row_of_the_five_contracts_once():
    text = (ROOT / "docs/requirements.md").read_text()
    rows = conformance.requirement_rows()
    assert text.count("\n- REQ-") == len(rows)
    assert Counter(row[:3] for row in rows) == {
        "000": 193,
        "001": 75,
        "002": 90,
        "003": 106,
        "004": 78,
    }


def test_a_mark_that_names_no_row_is_an_error():
    assert conformance.unknown_rows([("test_a", ("000-1", "004-78"))]) == []
    assert conformance.unknown_rows([("test_a", ("000-1", "000-194")), ("test_b", ("5-1",))]) == [
        "test_a: there is no row 000-194 in docs/requirements.md; correct the mark",
        "test_b: there is no row 5-1 in docs/requirements.md; correct the mark",
    ]


def test_a_row_is_proven_by_a_pass_and_by_nothing_else():
    outcomes = {
        "passed": (("000-1", "000-2"), "passed"),
        "failed": (("000-2", "000-3"), "failed"),
        "skipped": (("000-4", "000-1"), "skipped"),
    }
    assert conformance.proven_rows(outcomes) == {"000-1"}


@pytest.mark.parametrize("name", RUNTIME)
def test_a_runtime_dependency_is_locked_twice_at_the_same_version(name: str):
    first_lines = {locked(file)[name].splitlines()[0] for file in ("runtime.txt", "dev.txt")}
    assert len(first_lines) == 1


@pytest.mark.parametrize("name", [*DEVELOPMENT, *FLEET, *BUILD])
def test_a_development_dependency_is_locked(name: str):
    assert name in locked("dev.txt")


@pytest.mark.parametrize("file", ["runtime.txt", "dev.txt"])
def test_every_locked_package_has_hashes_and_no_place_to_fetch_it_from(file: str):
    for name, block in locked(file).items():
        assert "--hash=sha256:" in block, name
    text = (ROOT / "requirements" / file).read_text()
    assert not re.search(r"://|--index|--extra-index|--find-links|--trusted-host", text)


@pytest.mark.parametrize("name", [*RUNTIME, *DEVELOPMENT, *FLEET, *BUILD])
def test_every_dependency_says_why_it_is_there(name: str):
    assert name in DECISION


def test_the_licence_is_the_one_that_is_declared():
    text = (ROOT / "LICENSE").read_text()
    assert PROJECT["project"]["license"] == "Apache-2.0"
    assert "Apache License" in text
    assert "END OF TERMS AND CONDITIONS" in text


def test_the_demo_installs_the_build_backend_with_all_that_it_needs():
    script = (ROOT / "scripts/demo-install").read_text()
    listed = re.search(r"\(([a-z|-]+)\)==", script)
    assert listed
    needed, seen = ["hatchling"], set()
    while needed:
        name = needed.pop()
        if name in seen:
            continue
        seen.add(name)
        required = [Requirement(text) for text in metadata.requires(name) or ()]
        needed += [
            each.name for each in required if not each.marker or each.marker.evaluate({"extra": ""})
        ]
    assert set(listed[1].split("|")) == seen


def test_the_make_targets_are_the_documented_ones():
    makefile = (ROOT / "Makefile").read_text()
    phony = re.search(r"^\.PHONY: (.+)$", makefile, re.MULTILINE)
    assert phony
    contributing = (ROOT / "CONTRIBUTING.md").read_text()
    documented = re.findall(r"^\| `make ([a-z-]+)`", contributing, re.MULTILINE)
    assert sorted(phony[1].split()) == sorted(documented)


@pytest.mark.parametrize(
    "script",
    [
        "scripts/setup",
        "scripts/debian-packages",
        "scripts/demo-install",
        "scripts/demo.sh",
        ".ci/run",
    ],
)
def test_a_script_is_executable_and_parses(script: str):
    path = ROOT / script
    assert path.stat().st_mode & 0o111
    subprocess.run(["bash", "-n", str(path)], check=True)
