"""An undo names the later items that rest on the one, and takes them along only when asked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from acceptance.terminal import Terminal
from actum import Runtime
from actum.errors import Refused

from .shop import add_agent, item, make_project, opened

pytestmark = pytest.mark.sandbox


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Six items: `same`, `below` and `named` rest on `first`, `far` rests on `named`."""
    project = make_project(tmp_path / "p", {"log": "0\n"})
    scripts = {
        "first": "echo 1 >> log; mkdir new; echo x > new/x",
        "same": "echo 2 >> log",
        "below": "echo y > new/y",
        "named": "echo n > n",
        "far": "echo f >> n",
        "other": "echo o > other",
    }
    needs = {"named": ["first"]}
    with opened(project) as rt:
        for number, script in enumerate(scripts.values(), start=1):
            add_agent(project, script, number=number)
        for number, name in enumerate(scripts, start=1):
            done = rt.work(
                item(id=name, agent_id=f"agent-{number}", dependencies=needs.get(name, []))
            )
            assert done.status == "success", done
    return project


@pytest.fixture
def rt(project: Path) -> Iterator[Runtime]:
    with opened(project) as runtime:
        yield runtime


def _run(rt: Runtime, name: str) -> str:
    rows = rt.database.rows("SELECT run_id FROM work_runs WHERE item_id = ?", (name,))
    return str(rows[0][0])


def test_an_undo_names_what_rests_on_an_item_and_changes_nothing(rt: Runtime) -> None:
    state = rt.state_hash()
    with pytest.raises(Refused) as refusal:
        rt.work_items.undo(_run(rt, "first"))
    assert refusal.value.code == "UNDO_HAS_DEPENDENTS"
    assert (
        "same (changed log), below (changed new/y), named (depends on first), far (changed n)."
        in refusal.value.message
    )
    assert "--with-dependents" in str(refusal.value.remedy)
    assert rt.state_hash() == state
    # The controls: nothing rests on these.
    for name in ("other", "far"):
        rt.work_items.undo(_run(rt, name))


def test_with_dependents_everything_that_rests_on_it_is_undone(rt: Runtime, project: Path) -> None:
    undone = rt.work_items.undo_with_dependents(_run(rt, "first"))
    assert [kept.item.id for kept, _ in undone] == ["far", "named", "below", "same", "first"]
    assert all(result.status == "success" for _, result in undone)
    assert len({result.receipt_id for _, result in undone}) == 5
    assert (project / "log").read_text() == "0\n"
    assert not (project / "new").exists()
    assert not (project / "n").exists()
    assert (project / "other").exists()
    # What was undone is no dependent any more; a second undo says so.
    with pytest.raises(Refused) as refusal:
        rt.work_items.undo(_run(rt, "first"))
    assert refusal.value.code == "UNDO_STALE"


def test_nothing_is_undone_if_one_of_them_cannot_be(rt: Runtime, project: Path) -> None:
    (project / "new/y").write_text("edited by hand\n")
    state = rt.state_hash()
    with pytest.raises(Refused, match="new/y") as refusal:
        rt.work_items.undo_with_dependents(_run(rt, "first"))
    assert refusal.value.code == "UNDO_STALE"
    assert rt.state_hash() == state
    (project / "new/y").write_text("y\n")
    assert len(rt.work_items.undo_with_dependents(_run(rt, "first"))) == 5


def test_the_command_names_them_and_takes_a_flag(project: Path) -> None:
    terminal = Terminal(project)
    with opened(project) as rt:
        run_id = _run(rt, "named")
    refused = terminal.json("undo", run_id)
    assert (refused.code, refused.json["error"]["code"]) == (3, "UNDO_HAS_DEPENDENTS")
    assert "far (changed n)" in refused.json["error"]["message"]
    done = terminal.json("undo", run_id, "--with-dependents")
    assert done.code == 0, done
    assert [each["item"] for each in done.json["undone"]] == ["far", "named"]
    code = terminal.actum("verify", "--all").code
    assert code == 0
