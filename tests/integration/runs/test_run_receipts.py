"""Each end of a run has a signed receipt, and verification finds what differs from it."""

from __future__ import annotations

import base64
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from acceptance.terminal import Terminal
from actum import Runtime
from actum.runs.run_receipt import read_run_receipt
from actum.runs.verify_run import run_findings, run_receipt_envelope

from .runs_project import add_agent, item, make_project, work_file

pytestmark = pytest.mark.sandbox


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return make_project(tmp_path / "p")


@pytest.fixture
def rt(project: Path) -> Iterator[Runtime]:
    with Runtime.open(project, pool=False) as runtime:
        yield runtime


def _two_items(project: Path) -> str:
    add_agent(project, "echo one > one")
    add_agent(project, "echo two > two", number=2)
    return work_file(item(id="a"), item(id="b", agent_id="agent-2", dependencies=["a"]))


def _stated(rt: Runtime, run_id: str) -> dict[str, Any]:
    receipt_id = rt.runs.get(run_id).receipt_id
    assert receipt_id is not None
    envelope = run_receipt_envelope(rt.database, receipt_id)
    assert envelope is not None
    return read_run_receipt(envelope, rt.keyring.trusted)


def _broken(rt: Runtime, run_id: str) -> list[tuple[str, str]]:
    found = run_findings(rt.database, rt.keyring.trusted, run_id)
    assert found
    return [(each.check, each.detail) for each in found if not each.passed]


def test_a_receipt_binds_contract_plan_and_steps_in_order(rt: Runtime, project: Path) -> None:
    done = rt.work_file(_two_items(project), config={"maxFilesPerStep": 2})
    assert done.ok
    run = rt.runs.get(done.run_id)
    stated = _stated(rt, done.run_id)
    assert (stated["status"], stated["code"]) == ("complete", None)
    assert stated["contract"]["hash"] == run.contract["executionContractHash"]
    assert [each["cause"] for each in stated["contract"]["revisions"]] == ["created"]
    assert stated["plan_sha256"] == run.plan_sha256
    steps = [(each["item_id"], each["status"], each["receipt_id"]) for each in stated["steps"]]
    receipts = [done.results[name].receipt_id for name in "ab"]
    assert steps == [("a", "success", receipts[0]), ("b", "success", receipts[1])]
    first, second = stated["steps"]
    assert first["after_state"] == second["base_state"]
    assert second["after_state"] == stated["current_state"] == rt.state_hash()
    assert rt.runs.status(done.run_id)["receiptId"] == run.receipt_id
    assert _broken(rt, done.run_id) == []


def test_every_end_has_a_receipt_that_names_the_one_before(rt: Runtime, project: Path) -> None:
    source = _two_items(project)
    add_agent(project, "exit 1", number=2)
    first = rt.work_file(source)
    failed = rt.runs.get(first.run_id).receipt_id
    assert _stated(rt, first.run_id)["code"] == "ITEMS_NOT_SUCCEEDED"
    rt.runs.resume(first.run_id, config={"maxFilesPerStep": 4}, override=True)
    rt.runs.cancel(first.run_id)
    cancelled = _stated(rt, first.run_id)
    assert (cancelled["status"], cancelled["previous_receipt"]) == ("cancelled", failed)
    add_agent(project, "echo two > two", number=2)
    assert rt.work_file(source).ok
    stated = _stated(rt, first.run_id)
    assert stated["previous_receipt"] == cancelled["receipt_id"]
    causes = [each["cause"] for each in stated["contract"]["revisions"]]
    assert causes == ["created", "overridden"]
    assert [each["revision"] for each in stated["steps"]] == [1, 1, 2]
    rows = rt.database.rows("SELECT 1 FROM run_receipts WHERE run_id = ?", (first.run_id,))
    assert len(rows) == 3
    assert _broken(rt, first.run_id) == []


def test_a_fork_and_a_later_verdict_are_stated_as_well(rt: Runtime, project: Path) -> None:
    heavy = {"id": "one", "tool": "shell", "stdin": "test -e one"}
    add_agent(project, "echo one > one")
    source = work_file(item(id="a"), heavy=[heavy])
    done = rt.work_file(source, config={"profile": "ci"})
    assert _stated(rt, done.run_id)["validation_status"] is None
    assert rt.runs.validate(done.run_id)
    assert _stated(rt, done.run_id)["validation_status"] == "passed"
    fork = rt.runs.resume(done.run_id, config={"profile": "smoke"}, fork=True)
    rt.runs.work(fork.run_id)
    stated = _stated(rt, fork.run_id)
    assert (stated["forked_from"], stated["status"]) == (done.run_id, "complete")
    assert stated["steps"][0]["state"] == "adopted"
    assert _broken(rt, done.run_id) == _broken(rt, fork.run_id) == []


def test_an_edit_between_two_steps_is_named_and_no_flaw(rt: Runtime, project: Path) -> None:
    source = _two_items(project)
    add_agent(project, "exit 1", number=2)
    first = rt.work_file(source)
    (project / "mine.txt").write_text("edited by hand")
    add_agent(project, "echo two > two", number=2)
    assert rt.work_file(source).run_id == first.run_id
    assert _broken(rt, first.run_id) == []
    found = run_findings(rt.database, rt.keyring.trusted, first.run_id)
    (states,) = [each for each in found if each.check == "states"]
    assert states.detail == "changed outside of the run before step 2"


EDITS = [
    ("agent_steps", "status = 'denied'", "step_index = 0", "receipt"),
    ("agent_steps", "base_state = after_state", "step_index = 0", "receipt"),
    ("agent_steps", "item_id = 'b'", "step_index = 0", "receipt"),
    ("agent_steps", "work_run_id = 'x'", "step_index = 1", "receipt"),
    ("agent_steps", "receipt_id = NULL", "step_index = 1", "steps"),
    ("agent_steps", "document = '{}'", "step_index = 1", "steps"),
    ("agent_steps", "attempt = 2", "step_index = 1", "steps"),
    ("agent_runs", "status = 'failed'", "1", "run"),
    ("agent_runs", "error_code = 'NONE'", "1", "run"),
    ("agent_runs", "current_state = base_state", "1", "states"),
    ("agent_runs", "validation_status = 'passed'", "1", "run"),
    ("agent_runs", "metadata = replace(metadata, '15', '16')", "1", "contract"),
    ("agent_runs", "plan = plan || ' '", "1", "plan"),
    ("agent_runs", "receipt_id = NULL", "1", "receipt"),
    ("run_contracts", "metadata = replace(metadata, '15', '16')", "1", "seal"),
    ("run_contracts", "seal = '{}'", "1", "seal"),
    ("run_receipts", "sha256 = 'x'", "1", "stored bytes"),
    ("run_receipts", "envelope = replace(envelope, 'payload', 'payloaf')", "1", "signature"),
    ("run_receipts", "receipt_id = 'x'", "1", "place"),
]


def test_every_edited_row_of_a_run_is_found(tmp_path: Path) -> None:
    project = make_project(tmp_path / "p")
    with Runtime.open(project, pool=False) as rt:
        run_id = rt.work_file(_two_items(project)).run_id
        assert _broken(rt, run_id) == []
    file = project / ".actum/actum.db"
    untouched = file.read_bytes()
    for table, change, where, check in EDITS:
        with sqlite3.connect(file) as connection:
            triggers = connection.execute(
                "SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = ?", (table,)
            ).fetchall()
            for (name,) in triggers:
                connection.execute(f"DROP TRIGGER {name}")
            connection.execute(f"UPDATE {table} SET {change} WHERE {where}")
        connection.close()
        terminal = Terminal(project)
        told = terminal.json("verify", "--run", run_id)
        broken = {each["check"] for each in told.json["findings"] if not each["passed"]}
        assert (told.code, check in broken) == (1, True), (change, broken)
        for leftover in project.glob(".actum/actum.db-*"):
            leftover.unlink()
        file.write_bytes(untouched)
    assert Terminal(project).actum("verify", "--run", run_id).code == 0


def test_a_receipt_of_a_run_is_verified_by_id_by_file_and_alone(project: Path) -> None:
    with Runtime.open(project, pool=False) as rt:
        run_id = rt.work_file(_two_items(project)).run_id
        receipt_id = str(rt.runs.get(run_id).receipt_id)
    terminal = Terminal(project)
    shown = terminal.json("receipts", "show", receipt_id).json
    file = project / "run.json"
    file.write_text(json.dumps(shown["envelope"]))
    key = project / "key.pub"
    key.write_text(terminal.actum("keys", "show").text)
    for words in (
        ("--run", run_id),
        ("--run", run_id[:8]),
        (receipt_id,),
        (str(file),),
        (str(file), "--key", str(key)),
        ("--all",),
    ):
        told = terminal.actum("verify", *words)
        assert told.code == 0, told
        assert f"run receipt {receipt_id}: signature" in told.text, told
    statement = json.loads(base64.b64decode(shown["envelope"]["payload"]))
    statement["predicate"]["status"] = "failed"
    forged = base64.b64encode(json.dumps(statement).encode()).decode()
    file.write_text(json.dumps({**shown["envelope"], "payload": forged}))
    assert terminal.actum("verify", str(file)).code == 1
    assert terminal.actum("verify", "--run", "nothing").code == 3
