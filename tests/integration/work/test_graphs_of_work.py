"""A graph of work items: levels, one base, turns, conflicts, blocked ones; rehearsed and undone."""

from __future__ import annotations

import base64
import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from actum import Runtime
from actum.errors import Refused, VerificationFailed
from actum.evidence.verify.work_findings import read_work_receipt
from actum.runs.rehearsal import Rehearsal
from actum.runs.work_done import WorkDone
from actum.value import replace
from actum.work.model import RunResult

from .shop import add_agent, item, make_project, opened

pytestmark = pytest.mark.sandbox


def _carry_out(
    rt: Runtime, *items: dict[str, Any], at_once: int = 4
) -> tuple[WorkDone, list[dict[str, Any]]]:
    events: list[dict[str, Any]] = []
    source = json.dumps({"items": list(items)})
    done = rt.work_file(
        source, at_once=at_once, new=True, on_event=lambda event: events.append(dict(event))
    )
    return done, events


def _rehearse(rt: Runtime, *items: dict[str, Any]) -> Rehearsal:
    return rt.runs.rehearse(json.dumps({"items": list(items)}), at_once=4)


@pytest.mark.req("002-5", "002-73", "002-75", "002-76", "002-87")
def test_levels_side_by_side_and_what_rests_on_a_failure_is_blocked(tmp_path: Path) -> None:
    project = make_project(tmp_path / "p", {"seen.txt": "base"})
    add_agent(project, "echo one > one.txt; ls > one.seen", number=1)
    add_agent(project, "echo two > two.txt; ls > two.seen", number=2)
    add_agent(project, "exit 3", number=3)
    add_agent(project, "cat one.txt two.txt > both.txt", number=4)
    add_agent(project, "echo never > never.txt", number=5)
    add_agent(project, "echo reconciled > all.txt", number=0)
    with opened(project) as rt:
        done, events = _carry_out(
            rt,
            item(id="r", agent_id="agent-0"),
            item(id="b", agent_id="agent-2"),
            item(id="a", agent_id="agent-1"),
            item(id="broken", agent_id="agent-3"),
            item(id="later", agent_id="agent-4", dependencies=["a", "b"]),
            item(id="stuck", agent_id="agent-5", dependencies=["broken"]),
        )
        state = rt.state_hash()
    assert done.levels == (("a", "b", "broken"), ("later", "stuck"), ("r",))
    status = {name: result.status.value for name, result in done.results.items()}
    assert status == {"a": "success", "b": "success", "broken": "failure", "later": "success"}
    # Neither failed nor executed: they wait, and it is said for what.
    assert done.blocked == {"stuck": ("broken",), "r": ("broken", "stuck")}
    assert not (project / "never.txt").exists()
    assert not (project / "all.txt").exists()
    assert (project / "both.txt").read_text() == "one\ntwo\n"
    # Both of the first level saw the same base, though one was committed before the other.
    assert "two.txt" not in (project / "one.seen").read_text()
    assert "one.txt" not in (project / "two.seen").read_text()
    assert done.results["later"].output_hash == state
    assert {"blocked", "level", "called", "ended"} <= {event["at"] for event in events}
    order = [event["item"] for event in events if event["at"] == "ended"]
    assert order.index("a") < order.index("later")


@pytest.mark.req("002-75")
def test_two_that_change_one_file_are_merged_in_the_order_of_their_ids(tmp_path: Path) -> None:
    texts = []
    for number, names in enumerate((("a", "b"), ("b", "a"))):
        project = make_project(tmp_path / f"p{number}", {"log.txt": "start\n"})
        # The first in order is the slower one: speed must not decide.
        add_agent(project, "sleep 0.5; echo from-a >> log.txt", number=1)
        add_agent(project, "echo from-b >> log.txt", number=2)
        agents = {"a": "agent-1", "b": "agent-2"}
        with opened(project) as rt:
            done, events = _carry_out(rt, *(item(id=name, agent_id=agents[name]) for name in names))
        assert done.ok
        assert done.again == ("b",)
        assert [event["item"] for event in events if event["at"] == "conflict"] == ["b"]
        texts.append((project / "log.txt").read_text())
    assert texts == ["start\nfrom-a\nfrom-b\n"] * 2


@pytest.mark.req("002-74")
def test_a_level_is_over_with_its_conflicts_before_the_next_begins(tmp_path: Path) -> None:
    project = make_project(tmp_path / "p", {"log": "start\n"})
    add_agent(project, "echo a >> log", number=1)
    add_agent(project, "echo b >> log", number=2)
    add_agent(project, "cp log seen", number=3)
    with opened(project) as rt:
        done, events = _carry_out(
            rt,
            item(id="later", agent_id="agent-3", dependencies=["a"]),
            item(id="a"),
            item(id="b", agent_id="agent-2"),
        )
    assert done.ok, done.results
    assert done.again == ("b",)
    levels = {"a": 0, "b": 0, "later": 1}
    order = [levels[event["item"]] for event in events if "item" in event]
    assert order == sorted(order), events
    assert (project / "seen").read_text() == "start\na\nb\n"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("rm -r d", "echo new > d/new"),
        ("echo new > d/new", "rm -r d"),
        ("mv d e", "echo new > d/new"),
        ("echo new > d/new", "rm -r d; echo file > d"),
        ("rm -r d; echo file > d", "mkdir d/sub"),
    ],
)
def test_whoever_removes_what_another_adds_to_meets_it(
    tmp_path: Path, first: str, second: str
) -> None:
    """The second is carried out again on what the first has left, as if there were no other."""
    project = make_project(tmp_path / "p", {"d/old": "old\n"})
    add_agent(project, first, number=1)
    add_agent(project, second, number=2)
    one, two = item(id="a"), item(id="b", agent_id="agent-2")
    with opened(project) as rt:
        done, _events = _carry_out(rt, one, two)
        assert done.again == ("b",)
        assert done.results["a"].status == "success", done.results
        assert done.results["b"].output_hash == rt.state_hash()
    alone = make_project(tmp_path / "alone", {"d/old": "old\n"})
    add_agent(alone, first, number=1)
    add_agent(alone, second, number=2)
    with opened(alone) as rt:
        assert [rt.work(one).status, rt.work(two).status] == [
            done.results[name].status for name in ("a", "b")
        ]
    assert _names(alone) == _names(project)


def _names(project: Path) -> set[str]:
    return {str(path.relative_to(project)) for top in "de" for path in project.glob(f"{top}/**/*")}


def _receipt(rt: Runtime, result: RunResult) -> dict[str, Any]:
    envelope = rt.work_items.records.envelope(result.receipt_id)
    assert envelope is not None
    return dict(read_work_receipt(envelope, rt.keyring.trusted))


@pytest.mark.req("002-45", "002-47", "002-75")
@pytest.mark.parametrize("engine", ["overlay", "copy"])
def test_tests_have_seen_exactly_what_is_committed(
    tmp_path: Path, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two with different paths both pass alone; the second is tested on top of the first."""
    project = make_project(tmp_path / "p", {"old/x": "x", "gone.txt": "g", "sub/keep": "k"})
    add_agent(project, "echo a > a.txt; rm gone.txt; echo more > sub/more", number=1)
    # It says what it saw, and writes where it may: both are as they were for the agent.
    add_agent(
        project, "mkdir -p n/n; echo b > n/n/b.txt; rm -r old; ln -s n/n/b.txt link", number=2
    )
    tests = "ls -d *.txt link n/n/* old sub/* 2>/dev/null"
    with opened(project) as rt:
        monkeypatch.setitem(rt.__dict__, "work_items", replace(rt.work_items, engine=engine))
        done, _events = _carry_out(
            rt,
            item(id="a"),
            item(id="b", agent_id="agent-2", test_command=f"{tests}; touch n/n/junk"),
        )
        assert done.ok, done.results
        assert done.again == ()
        first, second = (_receipt(rt, done.results[name]) for name in "ab")
        assert second["after_hash"] == rt.state_hash()
    seen = ["a.txt", "link", "n/n/b.txt", "sub/keep", "sub/more"]
    assert str(done.results["b"].test_output).split() == seen
    # What it ran on is another state than what it was tested on and committed to.
    assert first["tests"] is None
    assert second["tests"]["base_hash"] == second["before_hash"] == first["after_hash"]
    assert second["base_hash"] == first["base_hash"]
    assert not (project / "n/n/junk").exists()
    assert (project / "link").read_text() == "b\n"


@pytest.mark.req("002-47")
def test_one_whose_tests_fail_on_top_of_the_other_is_done_again(tmp_path: Path) -> None:
    project = make_project(tmp_path / "p")
    add_agent(project, "echo a > a.txt", number=1)
    add_agent(project, "ls *.txt | wc -l > count", number=2)  # it can be right on any base
    add_agent(project, "echo c > c.txt", number=3)  # it cannot
    counted = "test $(cat count) = $(ls *.txt | wc -l)"
    alone = "test $(ls *.txt | wc -l) = 1"
    with opened(project) as rt:
        done, events = _carry_out(
            rt,
            item(id="a"),
            item(id="b", agent_id="agent-2", test_command=counted),
            item(id="c", agent_id="agent-3", test_command=alone),
        )
        status = {name: result.status.value for name, result in done.results.items()}
        assert status == {"a": "success", "b": "success", "c": "failure"}, done.results
        assert done.again == ("b", "c")
        whys = [event["why"] for event in events if event["at"] == "conflict"]
        assert (
            whys
            == ["Tests failed on top of the work of another work item that ran at the same time."]
            * 2
        )
        assert done.results["c"].error == "Tests failed"
        assert done.results["b"].output_hash == rt.state_hash()
    assert not (project / "c.txt").exists()


@pytest.mark.req("002-2", "002-5", "002-72")
def test_nothing_runs_of_a_graph_that_is_none(tmp_path: Path) -> None:
    project = make_project(tmp_path / "p")
    add_agent(project, "echo x > x.txt")
    with opened(project) as rt:
        before = rt.state_hash()
        for items, code in (
            ([item(id="a"), item(id="b", dependencies=["ghost"])], "WORK_DEPENDENCY_UNKNOWN"),
            ([item(id="a"), item(id="b", agent_id="agent-9")], "AGENT_UNKNOWN"),
            ([item(id="a", dependencies=["b"]), item(id="b", dependencies=["a"])], "WORK_CYCLE"),
            ([item(id="a"), item(id="b", dependencies=["b"])], "WORK_CYCLE"),
            ([item(id="a"), item(id="a", description="other")], "WORK_ITEM_TWICE"),
        ):
            with pytest.raises(Refused) as refusal:
                _carry_out(rt, *items)
            assert refusal.value.code == code
        assert rt.state_hash() == before
        assert rt.database.rows("SELECT 1 FROM work_runs") == []
        # The control: the same items as a graph.
        assert _carry_out(rt, item(id="a"))[0].ok


def test_twenty_items_at_once_on_one_workspace(tmp_path: Path) -> None:
    project = make_project(tmp_path / "p")
    for number in range(1, 10):
        script = f"for i in 1 2 3; do echo {number}.$i > out-{number}-$i; done"
        add_agent(project, script, number=number)
    items = [
        item(id=f"item-{number:02}", agent_id=f"agent-{number % 9 + 1}", description=f"{number}")
        for number in range(20)
    ]
    with opened(project) as rt:
        done, _events = _carry_out(rt, *items)
        assert len(done.results) == 20
        assert done.results["item-19"].output_hash == rt.state_hash()
    assert done.ok, {name: result.error for name, result in done.results.items()}
    assert len(list(project.glob("out-*"))) == 27


def test_a_rehearsal_shows_every_change_and_makes_none(tmp_path: Path) -> None:
    project = make_project(tmp_path / "p", {"a.txt": "old\n"})
    add_agent(project, "echo new > a.txt; echo more > b.txt", number=1)
    add_agent(project, "cat b.txt >> a.txt; rm b.txt", number=2)
    add_agent(project, "for i in 1 2 3; do echo > f$i; done", number=3)
    items = (
        item(id="a"),
        item(id="b", agent_id="agent-2", dependencies=["a"]),
        item(id="c", agent_id="agent-3", constraints={"max_files": 2}),
    )
    with opened(project) as rt:
        before = rt.state_hash()
        told = _rehearse(rt, *items).document()["items"]
        assert rt.state_hash() == before
        rows = rt.database.rows("SELECT count(*) FROM work_runs")
    assert rows == [(0,)]
    assert told["a"]["status"] == told["b"]["status"] == "success"
    changes = {change["path"]: change for change in told["a"]["changes"]}
    assert changes["a.txt"]["action"] == "modified"
    assert "-old\n+new\n" in changes["a.txt"]["diff"]
    assert changes["b.txt"]["action"] == "created"
    assert [change["path"] for change in told["b"]["changes"]] == ["a.txt", "b.txt"]
    assert told["c"]["status"] == "denied"
    assert "Exceeded max files: 3 > 2" in told["c"]["reason"]


def test_a_rehearsal_goes_like_the_work_itself(tmp_path: Path) -> None:
    """Side by side on one base, by turns, again after a conflict; blocked where work would be."""
    project = make_project(tmp_path / "p", {"log": "start\n"})
    add_agent(project, "ls > seen-by-a; echo a >> log", number=1)
    add_agent(project, "ls > seen-by-b; echo b > b.txt", number=2)
    add_agent(project, "echo c >> log", number=3)
    add_agent(project, "exit 1", number=4)
    add_agent(project, "cat log b.txt > all", number=5)
    items = [
        item(id="a"),
        item(id="b", agent_id="agent-2", test_command="test ! -e seen-by-a || grep a log"),
        item(id="c", agent_id="agent-3"),
        item(id="d", agent_id="agent-4"),
        item(id="e", agent_id="agent-5", dependencies=["a", "b", "c"]),
        item(id="f", agent_id="agent-5", dependencies=["d"]),
    ]
    with opened(project) as rt:
        before = rt.state_hash()
        would = _rehearse(rt, *items)
        assert rt.state_hash() == before
        assert len(list((project / ".actum" / "work").iterdir())) == 1
        done, _events = _carry_out(rt, *items)
    ends = {name: result.status for name, result in done.results.items()}
    assert {name: result.status for name, result in would.results.items()} == ends
    assert set(ends) == {"a", "b", "c", "d", "e"}
    assert (would.again, would.blocked) == (done.again, done.blocked) == (("c",), {"f": ("d",)})
    diff = {change["path"]: change["diff"] for change in would.results["e"].changes}
    assert [line[1:] for line in str(diff["all"]).splitlines() if line[0] == "+"][1:] == (
        (project / "all").read_text().splitlines()
    )
    assert "seen-by-a" not in (project / "seen-by-b").read_text()


def test_undo_brings_back_what_was_there_and_refuses_what_newer_work_rests_on(
    tmp_path: Path,
) -> None:
    project = make_project(tmp_path / "p", {"a.txt": "1\n", "sub/gone.txt": "g\n"})
    (project / "a.txt").chmod(0o640)
    add_agent(
        project, "echo 2 > a.txt; chmod 644 a.txt; rm -r sub; mkdir n; echo n > n/n", number=1
    )
    add_agent(project, "echo 3 >> a.txt", number=2)
    with opened(project) as rt:
        before = rt.state_hash()
        first = rt.work(item())
        between = rt.state_hash()
        second = rt.work(item(id="b", agent_id="agent-2"))
        with pytest.raises(Refused, match=r"a\.txt") as refusal:
            rt.work_items.undo(first.receipt_id)
        assert refusal.value.code == "UNDO_HAS_DEPENDENTS"
        undone = rt.work_items.undo(second.receipt_id)
        assert undone.output_hash == between == rt.state_hash()
        rt.work_items.undo(first.receipt_id)
        assert rt.state_hash() == before
        assert (project / "sub/gone.txt").read_text() == "g\n"
        # An undo is a change like any other: undone itself, the work is there again.
        again = rt.work(item())
        assert again.status == "success", again
        assert rt.state_hash() == between
        (project / "n" / "n").write_text("edited by hand\n")
        with pytest.raises(Refused, match="n/n"):
            rt.work_items.undo(again.receipt_id)
        (project / "n" / "n").write_text("n\n")
        (project / "n" / "added by hand").write_text("")
        with pytest.raises(Refused, match="n/added by hand") as refusal:
            rt.work_items.undo(again.receipt_id)
        assert refusal.value.code == "UNDO_STALE"
        with pytest.raises(Refused) as refusal:
            rt.work_items.undo("nothing")
        assert refusal.value.code == "WORK_RUN_UNKNOWN"
    assert json.loads(Path(undone.receipt_path).read_text())["payload"]


def test_an_item_that_is_called_an_undo_is_none(tmp_path: Path) -> None:
    project = make_project(tmp_path / "p", {"a.txt": "1\n"})
    add_agent(project, "echo 2 > a.txt", number=1)
    add_agent(project, "echo 1 > a.txt", number=2)
    with opened(project) as rt:
        first = rt.work(item())
        assert first.status == "success", first
        run_id = rt.work_items.records.of_receipt(first.receipt_id)
        named = rt.work(item(id=f"undo:{run_id}", agent_id="agent-2"))
        assert named.status == "success", named
        again = rt.work(item())
        assert again.status == "denied", again
        assert "Duplicate run" in str(again.denial_reason)
        # Taken back for real, it may be done again.
        rt.work_items.undo(named.receipt_id)
        rt.work_items.undo(first.receipt_id)
        assert rt.work(item()).status == "success"


@pytest.mark.parametrize("damage", ["forged", "another's"])
def test_only_a_receipt_that_was_signed_says_what_an_undo_may_take_back(
    tmp_path: Path, damage: str
) -> None:
    project = make_project(tmp_path / "p", {"a.txt": "1\n", "b.txt": "1\n"})
    add_agent(project, "echo 2 > a.txt", number=1)
    add_agent(project, "echo 2 > b.txt", number=2)
    with opened(project) as rt:
        first = rt.work(item())
        second = rt.work(item(id="b", agent_id="agent-2"))
        envelope = rt.work_items.records.envelope(
            first.receipt_id if damage == "forged" else second.receipt_id
        )
        assert envelope is not None
    (project / "a.txt").write_text("edited by hand\n")
    if damage == "forged":
        # It tells of no change, so nothing could be in the way of taking it back.
        statement = json.loads(base64.b64decode(str(envelope["payload"])))
        statement["predicate"]["capsule"]["deltas"] = {}
        envelope["payload"] = base64.b64encode(json.dumps(statement).encode()).decode()
    database = sqlite3.connect(project / ".actum/actum.db")
    with database:
        database.execute("DROP TRIGGER work_receipts_are_never_changed")
        database.execute(
            "UPDATE work_receipts SET envelope = ? WHERE receipt_id = ?",
            (json.dumps(envelope), first.receipt_id),
        )
    database.close()
    with opened(project) as rt, pytest.raises(VerificationFailed):
        rt.work_items.undo(first.receipt_id)
    assert (project / "a.txt").read_text() == "edited by hand\n"
