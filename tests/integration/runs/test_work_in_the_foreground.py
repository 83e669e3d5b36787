"""`actum work` is a run that this process carries out: it is continued and repeats nothing."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from actum import Runtime
from actum.errors import Refused
from actum.runs.durable_runs import RunMismatch
from hostile.jail import alive, marker, until

from .runs_project import add_agent, item, make_project, work_file

pytestmark = pytest.mark.sandbox

_ACTUM = (sys.executable, "-m", "actum.doors.cli.main")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return make_project(tmp_path / "p")


@pytest.fixture
def rt(project: Path) -> Iterator[Runtime]:
    with Runtime.open(project, pool=False) as runtime:
        yield runtime


def _actum(project: Path, *words: str) -> tuple[int, str]:
    done = subprocess.run([*_ACTUM, *words], cwd=project, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def _three(project: Path, nap: str) -> None:
    """first, then second, which sleeps as long as there is no file `go`, then third."""
    add_agent(project, "echo x >> first")
    add_agent(project, f"echo x >> second; test -e go || sleep {nap}", number=2)
    add_agent(project, "cat first second > third", number=3)
    (project / "work.yaml").write_text(
        work_file(
            item(id="first"),
            item(id="second", agent_id="agent-2", dependencies=["first"]),
            item(id="third", agent_id="agent-3", dependencies=["second"]),
        )
    )


def _interrupted(project: Path, number: int, *words: str) -> tuple[int, str, float]:
    """`actum work`, struck while its second item is at work; and the seconds it took to end."""
    nap = marker()
    _three(project, nap)
    process = subprocess.Popen(
        [*_ACTUM, "work", "work.yaml", *words],
        cwd=project,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    until(lambda: alive(nap))
    struck = time.monotonic()
    process.send_signal(number)
    said, _ = process.communicate()
    took = time.monotonic() - struck
    until(lambda: not alive(nap))
    (project / "go").touch()
    return process.returncode, said, took


def _runs(project: Path) -> list[dict[str, Any]]:
    code, said = _actum(project, "runs", "list", "--json")
    assert code == 0, said
    listed: list[dict[str, Any]] = json.loads(said)["runs"]
    return listed


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_file_is_continued_by_the_same_command(project: Path, number: int) -> None:
    code, said, _took = _interrupted(project, number)
    assert code == (-9 if number == signal.SIGKILL else 130), said
    assert (project / "first").exists()
    assert not (project / "second").exists()
    (interrupted,) = _runs(project)
    code, said = _actum(project, "work", "work.yaml")
    assert code == 0, said
    was = "interrupted" if number == signal.SIGKILL else "cancelled"
    short = interrupted["runId"][:8]
    assert f"Continuing run {short} ({was}): 1 of 3 work items are committed." in said
    assert "3 of 3 work items committed" in said
    # Committed items were not repeated: `first` has one line.
    assert (project / "third").read_text() == "x\nx\n"
    (after,) = _runs(project)
    assert (after["runId"], after["status"]) == (interrupted["runId"], "complete")
    code, said = _actum(project, "verify", "--all")
    assert code == 0, said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_work_within_two_seconds(project: Path, number: int) -> None:
    # Two seconds on an idle machine; the bound is for one under load.
    code, said, took = _interrupted(project, number)
    assert (code, took < 10) == (130, True), (said, took)
    assert "Cancelled: 1 of 3 work items committed" in said
    assert _runs(project)[0]["status"] == "cancelled"


def test_a_new_run_starts_over(project: Path) -> None:
    _interrupted(project, signal.SIGTERM)
    code, said = _actum(project, "work", "work.yaml", "--new", "--json")
    assert code == 0, said
    done = json.loads(said)
    assert done["status"] == "complete"
    assert (project / "third").read_text() == "x\nx\nx\n"  # `first` was done twice
    runs = _runs(project)
    assert [run["status"] for run in runs] == ["complete", "cancelled"]
    assert done["run_id"] == runs[0]["runId"]


def test_a_failed_file_is_continued_once_its_cause_is_fixed(rt: Runtime) -> None:
    root = rt.settings.root
    add_agent(root, "echo x >> one")
    add_agent(root, "exit 3", number=2)
    source = work_file(
        item(id="good"),
        item(id="bad", agent_id="agent-2"),
        item(id="late", dependencies=["bad"], description="another"),
    )
    events: list[dict[str, Any]] = []
    failed = rt.work_file(source, on_event=lambda event: events.append(dict(event)))
    assert (failed.ok, failed.code) == (False, "ITEMS_NOT_SUCCEEDED")
    assert failed.blocked == {"late": ("bad",)}
    (blocked,) = [event for event in events if event["at"] == "blocked"]
    assert blocked["waits_for"] == {"bad": "failure"}
    add_agent(root, "true", number=2)
    done = rt.work_file(source)
    assert done.ok, done
    assert done.run_id == failed.run_id
    assert (root / "one").read_text() == "x\nx\n"  # good, once; late, once
    # Complete: the next one is new, and does all of it again.
    add_agent(root, "touch two", number=2)
    assert rt.work_file(source).run_id != done.run_id


def test_another_configuration_is_refused_and_not_a_new_run(rt: Runtime) -> None:
    add_agent(rt.settings.root, "exit 1")
    first = rt.work_file(work_file(), config={"maxFilesPerStep": 3})
    assert not first.ok
    with pytest.raises(RunMismatch, match="maxFilesPerStep: 3 -> 4"):
        rt.work_file(work_file(), config={"maxFilesPerStep": 4})
    assert rt.runs.get(first.run_id).revision == 1
    # The controls: the same configuration, and none.
    assert rt.work_file(work_file(), config={"maxFilesPerStep": 3}).run_id == first.run_id
    assert rt.work_file(work_file()).run_id == first.run_id
    assert rt.work_file(work_file(), config={"maxFilesPerStep": 4}, new=True).run_id != first.run_id


def test_a_run_with_an_undone_item_is_not_continued(rt: Runtime) -> None:
    root = rt.settings.root
    add_agent(root, "echo x >> one")
    add_agent(root, "exit 3", number=2)
    source = work_file(item(id="good"), item(id="bad", agent_id="agent-2"))
    failed = rt.work_file(source)
    rt.work_items.undo(failed.results["good"].receipt_id)
    events: list[dict[str, Any]] = []
    again = rt.work_file(source, on_event=lambda event: events.append(dict(event)))
    assert again.run_id != failed.run_id
    assert (root / "one").read_text() == "x\n"
    (said,) = [event for event in events if event["at"] == "not-continued"]
    assert said["undone"] == ["good"]


def test_a_file_that_another_process_carries_out_is_refused(project: Path) -> None:
    nap = marker()
    _three(project, nap)
    with subprocess.Popen(
        [*_ACTUM, "work", "work.yaml"],
        cwd=project,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as process:
        until(lambda: alive(nap))
        with Runtime.open(project, pool=False) as rt:
            with pytest.raises(Refused) as refusal:
                rt.work_file(project / "work.yaml")
            assert refusal.value.code == "RUN_ACTIVE"
            assert len(rt.runs.list()) == 1
        process.send_signal(signal.SIGTERM)
        process.communicate()


def test_the_run_of_a_dead_process_does_not_keep_another_file_waiting(project: Path) -> None:
    _interrupted(project, signal.SIGKILL)
    (project / "other.yaml").write_text(work_file(item(id="other", description="other")))
    code, said = _actum(project, "work", "other.yaml")
    assert code == 0, said
    assert {run["status"] for run in _runs(project)} == {"complete", "queued"}
    # And the first file can still be continued.
    code, said = _actum(project, "work", "work.yaml")
    assert code == 0, said
    assert len(_runs(project)) == 2


def test_no_worker_takes_a_run_that_was_started_in_the_foreground(project: Path) -> None:
    add_agent(project, "echo x >> one")
    (project / "work.yaml").write_text(work_file())
    with subprocess.Popen(
        [*_ACTUM, "worker"], cwd=project, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    ) as worker:
        assert worker.stdout is not None
        worker.stdout.readline()  # it waits for runs
        with Runtime.open(project, pool=False) as rt:
            events: list[str] = []
            done = rt.work_file(
                project / "work.yaml", on_event=lambda event: events.append(event["at"])
            )
            assert done.ok
            assert "ended" in events
            # The control: the worker takes what is submitted.
            add_agent(project, "echo y > two")
            rt.runs.submit(work_file(item(id="by-worker")))
            until((project / "two").exists)
        worker.send_signal(signal.SIGTERM)
        worker.communicate()


def test_a_run_with_a_changed_contract_is_not_carried_out(rt: Runtime, project: Path) -> None:
    from .runs_project import edit_metadata, metadata

    add_agent(project, "exit 1")
    failed = rt.work_file(work_file())
    changed = metadata(rt.runs, failed.run_id)
    changed["executionContractFallbackFields"] = ["plannerTimeoutMs"]
    changed["executionContractFallbackUsed"] = True
    edit_metadata(project / ".actum", failed.run_id, changed)
    steps = len(rt.runs.ledger.steps(failed.run_id))
    with pytest.raises(Refused) as refusal:
        rt.work_file(work_file())
    assert refusal.value.code == "CONTRACT_MISMATCH"
    assert len(rt.runs.ledger.steps(failed.run_id)) == steps


def test_another_file_waits_until_the_folder_is_free_and_says_so(project: Path) -> None:
    nap = marker()
    _three(project, nap)
    (project / "other.yaml").write_text(work_file(item(id="other", description="other")))
    pipes: dict[str, Any] = {"cwd": project, "stderr": subprocess.STDOUT, "text": True}
    first = subprocess.Popen([*_ACTUM, "work", "work.yaml"], stdout=subprocess.PIPE, **pipes)
    until(lambda: alive(nap))
    second = subprocess.Popen([*_ACTUM, "work", "other.yaml"], stdout=subprocess.PIPE, **pipes)
    assert second.stdout is not None
    assert "is at work in this folder" in second.stdout.readline()
    first.send_signal(signal.SIGTERM)
    first.communicate()
    said, _ = second.communicate()
    assert second.returncode == 0, said
    assert "1 of 1 work items committed" in said
