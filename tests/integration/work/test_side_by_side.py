"""Several work items on one project at the same time, and what becomes of a touched receipt."""

from __future__ import annotations

import base64
import json
import sqlite3
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from actum import Runtime
from actum.evidence.records.encoding import encoded
from actum.evidence.records.receipt import Receipt
from actum.evidence.verify.work_findings import read_work_receipt
from hostile.jail import marker

from .shop import add_agent, item, make_project, opened, wake_together

pytestmark = pytest.mark.sandbox


def _both(rt: Runtime, naps: list[str], *items: dict) -> list:
    """Each of the agents goes on when all of them sleep."""
    with ThreadPoolExecutor(len(items)) as pool:
        running = [pool.submit(rt.work, each) for each in items]
        wake_together(naps)
        return [each.result() for each in running]


_MEET = "echo {name} > {name}; sleep {nap}; ls > seen-by-{name}"


@pytest.mark.req("002-75")
def test_items_beside_each_other_do_not_see_each_other_and_both_are_committed(
    tmp_path: Path,
) -> None:
    project = make_project(tmp_path / "p", {"a": "1"})
    naps = [marker(), marker()]
    for number, nap in enumerate(naps, 1):
        add_agent(project, _MEET.format(name=f"n{number}", nap=nap), number=number)
    with opened(project) as rt:
        before = rt.state_hash()
        results = _both(rt, naps, item(id="x"), item(id="y", agent_id="agent-2"))
        assert [result.status for result in results] == ["success", "success"], results
        receipts = [
            read_work_receipt(rt.work_items.records.envelope(result.receipt_id), rt.keyring.trusted)  # type: ignore[arg-type]
            for result in results
        ]
        first, second = sorted(receipts, key=lambda receipt: receipt["before_hash"] != before)
        # A chain: the second was committed on top of the first, whatever it ran on.
        assert first["before_hash"] == before
        assert second["before_hash"] == first["after_hash"]
        assert second["after_hash"] == rt.state_hash()
        assert second["previous_receipt"] is not None
    for mine, other in (("n1", "n2"), ("n2", "n1")):
        seen = (project / f"seen-by-{mine}").read_text().split()
        assert mine in seen
        assert other not in seen


def test_of_two_that_change_the_same_file_one_fails(tmp_path: Path) -> None:
    project = make_project(tmp_path / "p", {"a": "1"})
    naps = [marker(), marker()]
    for number, nap in enumerate(naps, 1):
        add_agent(project, f"sleep {nap}; echo {number} > a", number=number)
    with opened(project) as rt:
        results = _both(rt, naps, item(id="x"), item(id="y", agent_id="agent-2"))
        won = [result for result in results if result.status == "success"]
        lost = [result for result in results if result.status == "failure"]
        assert (len(won), len(lost)) == (1, 1), results
        assert lost[0].error == "a was changed by another work item that ran at the same time."
        assert rt.state_hash() == won[0].output_hash


def test_a_work_receipt_that_was_touched_is_named(tmp_path: Path) -> None:
    project = make_project(tmp_path / "p", {"a": "1"})
    add_agent(project, "echo 2 > a")
    with opened(project) as rt:
        receipt = rt.work(item()).receipt_id

    def broken() -> set[tuple[str, str]]:
        with opened(project) as rt:
            return {
                (each.subject, each.check) for each in rt.verifier.verify_all() if not each.passed
            }

    assert broken() == set()
    database = sqlite3.connect(project / ".actum/actum.db")
    with database:
        database.execute("DROP TRIGGER work_receipts_are_never_changed")
        database.execute("DROP TRIGGER work_runs_are_closed_once")
        database.execute("UPDATE work_runs SET status = 'failure'")
    assert (f"work receipt {receipt}", "run") in broken()
    with database:
        database.execute("UPDATE work_runs SET status = 'success'")
        database.execute("UPDATE work_receipts SET envelope = replace(envelope, 'A', 'B')")
    database.close()
    found = broken()
    assert (f"work receipt {receipt}", "stored bytes") in found
    assert (f"work receipt {receipt}", "signature") in found


def test_a_receipt_whose_tests_saw_another_state_is_named(tmp_path: Path) -> None:
    """Signed by the right key, and still no proof that what was committed was tested."""
    project = make_project(tmp_path / "p", {"a": "1"})
    add_agent(project, "echo 2 > a")
    with opened(project) as rt:
        receipt = rt.work(item(test_command="grep 2 a")).receipt_id
        subject = f"work receipt {receipt}"
        found = _checks(rt, subject)
        assert found["tests"] is True
        envelope = rt.work_items.records.envelope(receipt)
        assert envelope is not None
        statement = json.loads(base64.b64decode(str(envelope["payload"])))
        statement["predicate"]["tests"]["base_hash"] = "0" * 64
        forged = Receipt(receipt, encoded(statement), rt.keyring.signer)
        database = sqlite3.connect(project / ".actum/actum.db")
        with database:
            database.execute("DROP TRIGGER work_receipts_are_never_changed")
            database.execute(
                "UPDATE work_receipts SET envelope = ?, sha256 = ?",
                (forged.encoded.decode(), forged.sha256),
            )
        database.close()
        found = _checks(rt, subject)
        assert (found["signature"], found["tests"]) == (True, False)


def _checks(rt: Runtime, subject: str) -> dict[str, bool]:
    return {each.check: each.passed for each in rt.verifier.verify_all() if each.subject == subject}
