"""`work.exclusive`: a project that only work items change is not looked through for each of them.

Believing is never silent, never outlives its reasons, and never hides a change of what an item is
about to replace.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest

from actum import Runtime
from actum.evidence.verify.work_findings import read_work_receipt
from actum.workspace.space import Space
from common.settings import add_settings

from .shop import add_agent, item, make_project, opened

pytestmark = pytest.mark.sandbox

_WRITE = "date +%N > first; mkdir -p deep; date +%N > deep/second"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = make_project(tmp_path / "p", {"first": "1", "other": "2"})
    add_settings(folder, "\n[work]\nexclusive = true\n")
    add_agent(folder, _WRITE)
    folder.chmod(0o700)
    return folder


@pytest.fixture
def rt(project: Path) -> Iterator[Runtime]:
    with opened(project) as runtime:
        yield runtime


def _run(rt: Runtime) -> dict:
    """One item that changes something; what its receipt says of it."""
    result = rt.work(item())
    assert result.status == "success", result
    return read_work_receipt(json.loads(Path(result.receipt_path).read_bytes()), rt.keyring.trusted)


def test_only_the_first_item_looks_through_the_project(rt: Runtime) -> None:
    first, second, third = _run(rt), _run(rt), _run(rt)
    assert first["isolation"]["state_by"] == "scan"  # nothing was committed yet
    assert second["isolation"]["state_by"] == third["isolation"]["state_by"] == "index"
    assert second["before_hash"] == first["after_hash"]
    assert third["before_hash"] == second["after_hash"]
    assert rt.state_hash() == third["after_hash"]  # which is a look at the disk


def test_a_project_that_others_can_enter_is_looked_through(rt: Runtime, project: Path) -> None:
    project.chmod(0o755)
    _run(rt)
    assert _run(rt)["isolation"]["state_by"] == "scan"


def test_without_the_setting_it_is_looked_through(tmp_path: Path) -> None:
    folder = make_project(tmp_path / "shared", {"first": "1"})
    add_agent(folder, _WRITE)
    folder.chmod(0o700)
    with opened(folder) as rt:
        _run(rt)
        assert _run(rt)["isolation"]["state_by"] == "scan"


def test_what_is_about_to_be_replaced_is_compared_all_the_same(rt: Runtime, project: Path) -> None:
    _run(rt)
    (project / "first").write_text("by hand")
    result = rt.work(item())
    assert result.status == "failure"
    assert "changed by someone else" in (result.error or "")
    assert (project / "first").read_text() == "by hand"
    _run(rt)  # that look has told the index


def test_whoever_asks_for_the_state_tells_the_index(rt: Runtime, project: Path) -> None:
    _run(rt)
    (project / "other").write_text("by hand")
    state = rt.state_hash()
    said = _run(rt)
    assert (said["before_hash"], said["isolation"]["state_by"]) == (state, "scan")


@pytest.mark.parametrize("stale", ["boot = 'another'", "scan_ns = scan_ns - 3601000000000"])
def test_an_index_of_another_boot_or_of_long_ago_is_not_believed(
    rt: Runtime, project: Path, stale: str
) -> None:
    _run(rt)
    before = _last_look(project)
    with sqlite3.connect(_index(project)) as database:
        database.execute(f"UPDATE top SET {stale}")
    database.close()
    _run(rt)
    boot, scan_ns = _last_look(project)
    assert boot == before[0]
    assert scan_ns >= before[1]


def _index(project: Path) -> Path:
    return Space(project / ".actum", project).folder / "index.db"


def _last_look(project: Path) -> tuple[str, int]:
    database = sqlite3.connect(_index(project))
    found: tuple[str, int] = database.execute("SELECT boot, scan_ns FROM top").fetchone()
    database.close()
    return found
