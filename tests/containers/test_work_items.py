"""Work items whose tools run in containers: the tests of tests/integration/work on both engines.

As root only: an ordinary user's item is in a user namespace, in which no engine's user is known.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from actum import Runtime
from actum.evidence.owner import owner_of
from actum.runners.container.container_config import OWNER_LABEL
from common.settings import add_settings
from engines import Engine
from hostile.jail import alive, marker, sleeps, until, wake

pytestmark = [
    pytest.mark.sandbox,
    pytest.mark.skipif(os.geteuid() != 0, reason="work items use containers as root only"),
]
_FOLDER = Path(__file__).parents[1] / "integration"

CHOSEN = {
    "test_outcomes_of_work": [
        "test_tests_run_on_a_view_that_is_thrown_away",
        "test_the_timeout_covers_agent_and_tests",
        "test_missing_files_fail_the_run",
        "test_the_guard_stops_early",
        "test_a_runaway_cannot_fill_the_disk",
        "test_what_is_no_file_is_not_let_in",
        "test_what_governs_cannot_be_changed_and_the_home_is_not_there",
        "test_somebody_else_changing_the_workspace_meanwhile_is_a_failure",
    ],
    "test_rules_of_work": [
        "test_one_call_over_a_limit_is_denied_by_the_admission",
        "test_as_many_calls_as_the_limit_are_admitted_and_one_more_is_denied",
        "test_a_path_counts_once_and_a_folder_is_no_file",
        "test_every_ending_is_a_result_with_a_receipt_file",
        "test_a_rollback_is_compared_with_the_state_before",
    ],
    "test_seed_tests": [
        "test_1_atomicity_on_failure",
        "test_2_admission_enforcement",
        "test_3_replay_determinism",
    ],
    "test_graphs_of_work": [
        "test_levels_side_by_side_and_what_rests_on_a_failure_is_blocked",
        "test_two_that_change_one_file_are_merged_in_the_order_of_their_ids",
        "test_a_rehearsal_shows_every_change_and_makes_none",
        "test_undo_brings_back_what_was_there_and_refuses_what_newer_work_rests_on",
    ],
    "test_programs_as_agents": [
        "test_a_program_works_in_the_workspace_and_calls_tools",
        "test_the_same_tools_by_the_model_context_protocol",
        "test_the_calls_of_a_program_count_and_end_it",
        "test_a_program_that",
        "test_nothing_of_a_program_outlives_its_item",
        "test_what_governs_stays_as_it_is",
    ],
    "test_hostile_agents": [
        "test_nothing_outside_is_read_through_a_call",
        "test_what_is_no_plain_file_comes_out_plain_or_not_at_all",
        "test_no_repository_that_git_would_obey_is_left_at_the_top",
    ],
}


def _load(name: str) -> object:
    # The folder of the package, as pytest has it on the path.
    if str(_FOLDER) not in sys.path:
        sys.path.append(str(_FOLDER))
    return importlib.import_module(f"work.{name}")


for _module, _names in CHOSEN.items():
    for _name in _names:
        _test = getattr(_load(_module), _name)
        globals()[f"{_name}__{_module.removeprefix('test_')}"] = _test


@pytest.fixture(autouse=True)
def in_containers(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr("work.shop.containers", engine.socket)
    yield


def _shop() -> Any:
    return importlib.import_module("work.shop")


def _containers_of(engine: Engine, pid: int) -> list[Any]:
    return engine.containers(f"{OWNER_LABEL}={owner_of(pid)}")


def _items() -> list[int]:
    """Processes of work items that are children of this one."""
    return [
        int(pid)
        for task in Path("/proc/self/task").iterdir()
        for pid in (task / "children").read_text().split()
        if Path(f"/proc/{pid}/comm").read_text() == "actum-item\n"
    ]


def test_the_calls_of_an_item_are_made_in_containers_on_its_copy(
    tmp_path: Path, engine: Engine
) -> None:
    shop = _shop()
    project = shop.make_project(tmp_path / "p", {"kept": "1"})
    nap = marker()
    shop.add_agent(project, f"cat /proc/1/comm > init; sleep {nap} || true", "cat init >> kept")
    seen: list[Any] = []

    def look() -> None:
        sleeps(nap)
        (pid,) = _items()
        (there,) = _containers_of(engine, pid)
        mounts = engine.inspect(there["Id"])["Mounts"]
        seen.extend(each["Source"] for each in mounts if each["Destination"] == str(project))
        wake(nap)

    with shop.opened(project) as rt:
        threading.Thread(target=look).start()
        result = rt.work(shop.item())
        assert result.status == "success", result
        (copy,) = seen
        assert Path(copy).is_relative_to(project / ".actum" / "work")
        assert (project / "kept").read_text() == "1init\n"
        assert not Path(copy).exists()
        assert [each for each in rt.verifier.verify_all() if not each.passed] == []


@pytest.mark.parametrize("at", ["while a tool runs", "ready"])
def test_a_killed_item_leaves_no_container_and_no_copy(
    tmp_path: Path, engine: Engine, at: str
) -> None:
    shop = _shop()
    project = shop.make_project(tmp_path / "p", {"a": "1"})
    nap = marker()
    waits = f"; sleep {nap}" if at == "while a tool runs" else ""
    shop.add_agent(project, f"printf x > new; rm a{waits}")
    owners: list[str] = []

    def kill() -> None:
        (pid,) = _items()
        owners.append(owner_of(pid))
        os.kill(pid, signal.SIGKILL)

    def hear(said: Mapping[str, Any]) -> None:
        if said["at"] == "calling" and at == "while a tool runs":
            threading.Thread(target=lambda: (until(lambda: bool(alive(nap))), kill())).start()
        elif said["at"] == at:
            kill()

    with shop.opened(project) as rt:
        before = rt.state_hash()
        result = rt.work_items.run(shop.item(), hear=hear)
        assert result.status == "failure", result
        assert rt.state_hash() == before
        (owner,) = owners
        until(lambda: not alive(nap))
        until(lambda: engine.containers(f"{OWNER_LABEL}={owner}") == [])
    with Runtime.open(project, pool=False) as rt:  # recovery
        assert [*(project / ".actum" / "work").glob("*/rooms/*")] == []
        assert rt.database.rows("SELECT 1 FROM work_runs WHERE state <> 'FINAL'") == []
        assert [each for each in rt.verifier.verify_all() if not each.passed] == []


def test_an_item_on_an_overlay_is_refused_by_name(tmp_path: Path) -> None:
    shop = _shop()
    project = shop.make_project(tmp_path / "p")
    add_settings(project, '\n[work]\nengine = "overlay"\n')
    shop.add_agent(project, "echo x > made")
    with shop.opened(project) as rt:
        result = rt.work(shop.item())
    assert "RUNNER_UNAVAILABLE" in str(result), result
    assert "[work] engine" in str(result), result
    assert not (project / "made").exists()


def test_a_program_of_an_item_reads_what_its_calls_have_written(tmp_path: Path) -> None:
    """Also a call that may write nothing sees the item's view, and not the project."""
    shop = _shop()
    project = shop.make_project(tmp_path / "p", {"n": "old"})
    script = """
        import subprocess
        call = ["actum-tool", "call"]
        subprocess.run([*call, "shell", "--stdin"], input="echo needle > n", text=True)
        said = subprocess.run([*call, "ripgrep", "-p", "pattern=needle", "-p", "path=n"],
            capture_output=True, text=True).stdout
        open("found", "w").write(str("needle" in said))
        """
    result = shop.run_program(project, script, agent={"tools": ["ripgrep", "shell"]})
    assert result.status == "success", result
    assert (project / "found").read_text() == "True"
