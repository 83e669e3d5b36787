"""The items of a level: one base for all of them, commits in order, slots, and what waits."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from actum import Runtime
from actum.evidence.verify.work_findings import read_work_receipt
from actum.runs.work_done import WorkDone
from common.settings import approve
from hostile.jail import marker, sleeps, until, wake

from .shop import add_agent, item, make_project, opened

_OWN = (".actum", "tools", "agents", "tools.lock", "actum.toml")


def _agents(project: Path, scripts: Mapping[str, str]) -> str:
    """A work file with one item for each script, by id."""
    for number, script in enumerate(scripts.values()):
        add_agent(project, script, number=number + 1)
    items = [item(id=name, agent_id=f"agent-{at + 1}") for at, name in enumerate(scripts)]
    return json.dumps({"items": items})


def _carried_out(project: Path, source: str, at_once: int) -> WorkDone:
    with opened(project) as rt:
        done = rt.work_file(source, at_once=at_once, new=True)
        assert all(finding.passed for finding in rt.verifier.verify_all())
    return done


def _files(project: Path) -> dict[str, str]:
    return {
        str(path.relative_to(project)): path.read_text()
        for path in sorted(project.rglob("*"))
        if path.is_file() and path.relative_to(project).parts[0] not in _OWN
    }


@pytest.mark.req("002-75")
def test_the_result_depends_neither_on_speed_nor_on_the_number_of_slots(tmp_path: Path) -> None:
    """Each item writes down all files that it sees, and all add to one log and to one folder."""
    found = []
    for number, (at_once, naps) in enumerate(
        [(1, (0, 0, 0, 0, 0)), (8, (0.6, 0.3, 0, 0, 0)), (2, (0, 0, 0, 0.3, 0.6))]
    ):
        project = make_project(tmp_path / str(number) / "p", {"log": "start\n", "a/b": "b\n"})
        scripts = {
            name: f"sleep {nap}; seen=$(ls -R .; cat log); mkdir -p both;"
            f' echo "$seen" > both/{name}' + ("; echo c >> log" if name in "bd" else "")
            for name, nap in zip("abcde", naps, strict=True)
        }
        done = _carried_out(project, _agents(project, scripts), at_once)
        assert done.ok, done.document()
        found.append((done.again, _files(project)))
    assert found[0] == found[1] == found[2]
    again, files = found[0]
    assert again == ("d",), "the second to add to the log, and no other: the folder is no conflict"
    assert files["log"] == "start\nc\nc\n"
    for name in "abce":
        assert "both" not in files[f"both/{name}"].split(), "no item saw another one's work"
    assert "both" in files["both/d"].split(), "carried out again, on what the others left"


@pytest.mark.req("002-75")
def test_an_item_is_committed_while_later_ones_of_its_level_work(tmp_path: Path) -> None:
    project, nap = make_project(tmp_path / "p"), marker()
    source = _agents(project, {"a": "echo a > a", "b": f"sleep {nap}; ls > b", "c": "ls > c"})
    seen: list[bool] = []

    def look() -> None:
        sleeps(nap)
        until(lambda: (project / "a").exists(), "a")
        seen.append((project / "b").exists() or (project / "c").exists())
        wake(nap)

    thread = threading.Thread(target=look)
    thread.start()
    done = _carried_out(project, source, 2)
    thread.join()
    assert done.ok, done.document()
    assert seen == [False], "b is not there yet, and c waits for b"
    for name in "bc":
        assert "a" not in (project / name).read_text().split()


def test_no_more_processes_than_slots(tmp_path: Path) -> None:
    project = make_project(tmp_path / "p")
    source = _agents(project, {name: f"echo {name} > {name}" for name in "abcdefgh"})
    most = 0

    def count(said: Mapping[str, Any]) -> None:
        nonlocal most
        if said["at"] in ("frozen", "called", "ready"):
            most = max(most, len(_items_of_this_process()))

    with opened(project) as rt:
        done = rt.work_file(source, at_once=3, on_event=count)
    assert done.ok
    assert 1 <= most <= 3


def _items_of_this_process() -> list[int]:
    found = []
    for task in os.listdir("/proc/self/task"):
        try:
            children = Path("/proc/self/task", task, "children").read_text().split()
        except FileNotFoundError:
            continue
        for pid in children:
            try:
                if Path("/proc", pid, "comm").read_text() == "actum-item\n":
                    found.append(int(pid))
            except (FileNotFoundError, ProcessLookupError):
                continue
    return found


#: A run in the foreground, in a process of its own.
_RUN = """
import sys
from actum import Runtime
with Runtime.open(sys.argv[1], pool=False) as rt:
    rt.work_file(open(sys.argv[2]).read(), at_once=2)
"""


@pytest.mark.req("003-2")
@pytest.mark.parametrize("touched", [False, True])
def test_an_item_that_waits_for_its_turn_is_adopted_after_a_crash(
    tmp_path: Path, touched: bool
) -> None:
    """With two slots, `c` can only begin when `b` has given its slot back."""
    project, nap, other = make_project(tmp_path / "p"), marker(), marker()
    slow = f"test -e awake || sleep {nap}; echo a > a"
    late = f"test -e awake || sleep {other}; echo c > c"
    source = _agents(project, {"a": slow, "b": "echo b > b; date +%N > when", "c": late})
    (tmp_path / "work.json").write_text(source)
    worker = subprocess.Popen([sys.executable, "-c", _RUN, project, tmp_path / "work.json"])
    sleeps(nap)
    sleeps(other)
    (ready,) = project.glob(".actum/work/*/rooms/*/ready.json")
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    number = next(path for path in (ready.parent / "new").iterdir() if path.read_text() != "b\n")
    when = number.read_text()
    if touched:
        number.write_text("forged\n")
    (project / "awake").touch()
    with opened(project) as rt:
        assert all(finding.passed for finding in rt.verifier.verify_all())
        done = rt.work_file(source, at_once=2)
        (run,) = rt.runs.list()
        steps = [step for step in rt.runs.ledger.steps(run.run_id) if step.item_id == "b"]
        assert all(finding.passed for finding in rt.verifier.verify_all())
    assert done.ok, done.document()
    assert [(project / name).read_text() for name in "abc"] == ["a\n", "b\n", "c\n"]
    if touched:
        assert len(steps) == 2, "it is not committed, and runs again"
        assert (project / "when").read_text() not in (when, "forged\n")
    else:
        assert [(step.attempt, str(step.status)) for step in steps] == [(1, "success")]
        assert (project / "when").read_text() == when, "it did not run a second time"
    assert not list(project.glob(".actum/work/*/rooms/*"))


_WORK = (
    "import sys; from actum import Runtime; rt = Runtime.open(sys.argv[1]);"
    " rt.runs.worker(at_once=2).drain()"
)


@pytest.mark.req("003-23")
@pytest.mark.parametrize("overridden", [False, True])
def test_a_stored_item_is_committed_under_the_contract_that_it_ran_under_only(
    tmp_path: Path, overridden: bool
) -> None:
    """A person who forbids what a waiting item has done finds it done otherwise."""
    project, nap, other = make_project(tmp_path / "p"), marker(), marker()
    slow = f"test -e awake || sleep {nap}; echo a > a"
    late = f"test -e awake || sleep {other}; echo c > c"
    source = _agents(project, {"a": slow, "b": "echo B=1 > .env", "c": late})
    with opened(project) as rt:
        run = rt.runs.submit(source, config={"allowEnvMutation": True}, environ={})
    worker = subprocess.Popen([sys.executable, "-c", _WORK, project])
    sleeps(nap)
    sleeps(other)
    assert [*project.glob(".actum/work/*/rooms/*/ready.json")]
    worker.send_signal(signal.SIGKILL)
    worker.wait()
    (project / "awake").touch()
    with opened(project) as rt:
        rt.runs.cancel(run.run_id)
        rt.runs.worker(at_once=2).drain()
        assert rt.runs.get(run.run_id).status == "cancelled"
        config = {"allowEnvMutation": False} if overridden else {}
        rt.runs.resume(run.run_id, config=config, override=overridden)
        rt.runs.worker(at_once=2).drain()
        ended = rt.runs.get(run.run_id)
        steps = [step for step in rt.runs.ledger.steps(run.run_id) if step.item_id == "b"]
        assert all(finding.passed for finding in rt.verifier.verify_all())
    assert (ended.status, (project / ".env").exists()) == (
        ("failed", False) if overridden else ("complete", True)
    )
    ends = [(step.attempt, step.revision, str(step.status)) for step in steps]
    assert ends == (
        [(1, 1, "interrupted"), (2, 2, "denied")] if overridden else [(1, 1, "success")]
    )


def test_the_last_item_wins_on_a_path_that_is_ignored(tmp_path: Path) -> None:
    results = []
    for ignore in ("[]", '["*.log", "cache/"]'):
        project = make_project(tmp_path / f"p{len(results)}", {"app.log": "0\n", "data": "0\n"})
        with (project / "actum.toml").open("a") as file:
            file.write(f"\n[work]\nignore = {ignore}\n")
        approve(project)
        scripts = {
            name: f"echo {name} >> app.log; mkdir -p cache; echo {name} > cache/x" for name in "ab"
        }
        done = _carried_out(project, _agents(project, scripts), 2)
        assert done.ok, done.document()
        results.append((done.again, (project / "app.log").read_text()))
        assert (project / "cache/x").read_text() == "b\n"
    assert results == [(("b",), "0\na\nb\n"), ((), "0\nb\n")]


def test_an_undo_of_one_leaves_the_folder_that_both_have_made(tmp_path: Path) -> None:
    project = make_project(tmp_path / "p")
    scripts = {name: f"mkdir -p both; echo {name} > both/{name}" for name in "ab"}
    source = _agents(project, scripts)
    with opened(project) as rt:
        done = rt.work_file(source, at_once=2)
        assert (done.ok, done.again) == (True, ())
        before = done.results["a"].output_hash
        undone = rt.work_items.undo(done.results["b"].receipt_id)
        assert undone.status == "success", undone.reason
        assert undone.output_hash == rt.state_hash() == before
    assert sorted(os.listdir(project / "both")) == ["a"]


def test_a_change_over_another_one_on_an_ignored_path_is_undone_exactly(tmp_path: Path) -> None:
    project = make_project(tmp_path / "p", {"app.log": "0\n"})
    with (project / "actum.toml").open("a") as file:
        file.write('\n[work]\nignore = ["*.log", "cache/"]\n')
    approve(project)
    scripts = {
        name: f"echo {name} >> app.log; mkdir -p cache; echo {name} > cache/x" for name in "ab"
    }
    source = _agents(project, scripts)
    with opened(project) as rt:
        start = rt.state_hash()
        done = rt.work_file(source, at_once=2)
        assert (done.ok, done.again) == (True, ())
        # The last one's receipt says what it replaced: the work of the first.
        first = done.results["a"].artifact_hashes
        deltas = _deltas(rt, done.results["b"].receipt_id)
        assert {path: before for path, (before, _after) in deltas.items()} == {
            name: f"f644:{first[str(project / name)]}" for name in ("app.log", "cache/x")
        }
        undone = rt.work_items.undo_with_dependents(done.results["a"].receipt_id)
        assert [kept.item.id for kept, _result in undone] == ["b", "a"]
        assert rt.state_hash() == start
        assert all(finding.passed for finding in rt.verifier.verify_all())
    assert (project / "app.log").read_text() == "0\n"


def test_a_file_that_two_have_deleted_is_deleted_in_both_receipts(tmp_path: Path) -> None:
    project = make_project(tmp_path / "p", {"app.log": "0\n"})
    with (project / "actum.toml").open("a") as file:
        file.write('\n[work]\nignore = ["*.log"]\n')
    approve(project)
    source = _agents(project, dict.fromkeys("ab", "rm app.log"))
    with opened(project) as rt:
        done = rt.work_file(source, at_once=2)
        assert (done.ok, done.again) == (True, ())
        for name in "ab":
            envelope = rt.work_items.records.envelope(done.results[name].receipt_id)
            assert envelope is not None
            (delta,) = read_work_receipt(envelope, rt.work_items.trusted)["capsule"]["deltas"][
                "deltaO"
            ]
            assert delta[0] == "deleted", delta
        rt.work_items.undo_with_dependents(done.results["a"].receipt_id)
    assert (project / "app.log").read_text() == "0\n"


def _deltas(rt: Runtime, receipt_id: str) -> dict[str, tuple[str | None, str | None]]:
    envelope = rt.work_items.records.envelope(receipt_id)
    assert envelope is not None
    predicate = read_work_receipt(envelope, rt.work_items.trusted)
    deltas = predicate["capsule"]["deltas"]
    return {path: (before, after) for part in deltas.values() for _, path, before, after in part}
