"""The two durable writes, what they leave behind, and what a crash between them leaves."""

from __future__ import annotations

import base64
import hashlib
import json
import multiprocessing
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from actum.contract.outcome import Outcome
from actum.errors import EvidenceUnavailable, Refused
from actum.evidence import ledger
from actum.evidence.records.facts import Stage
from common.journals import lying, no_room, read_only

from .factories import (
    RESULT,
    STARTED,
    House,
    bad,
    make_contract,
    make_facts,
    make_intent,
    make_refusal,
    tamper,
)


def _kinds(house: House) -> list[str]:
    return [json.loads(record)["kind"] for record in house.audit()]


def test_an_execution_costs_exactly_two_frames_and_no_transaction(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    statements: list[str] = []
    synced: list[int] = []
    fdatasync = os.fdatasync
    monkeypatch.setattr(os, "fdatasync", lambda fd: (synced.append(fd), fdatasync(fd)))
    house.database._connection.set_trace_callback(statements.append)
    house.execute()
    house.database._connection.set_trace_callback(None)
    assert len(synced) == 2
    frames = lying(house.home, house.keyring.signer)
    assert [frame.last - frame.first + 1 for frame in frames] == [2, 1]
    assert [word for word in statements if not word.lstrip().startswith("SELECT")] == []


def test_evidence_is_open_on_the_disk_before_anything_may_start(house: House) -> None:
    intent = make_intent()
    opened = house.ledger.write_ahead(intent)
    (frame,) = lying(house.home, house.keyring.signer)  # another hold sees only what is written
    pending = json.loads(frame.records[-1])
    assert (pending["kind"], pending["execution_id"]) == ("PENDING", intent.execution_id)
    assert frame.last == opened.pending_seq
    assert [row["execution_id"] for row in frame.started] == [intent.execution_id]
    assert house.database.journal._durable == house.database.journal._appended


@pytest.mark.parametrize("broken", [read_only, no_room])
def test_a_start_that_cannot_be_recorded_is_not_allowed(tmp_path: Path, broken: Any) -> None:
    house = House.open(tmp_path / ".actum")
    with broken(house.database) if broken is read_only else broken():
        with pytest.raises(EvidenceUnavailable) as caught:
            house.ledger.write_ahead(make_intent())
        assert caught.value.code == "AUDIT_LOG_FAILED"
        assert caught.value.remedy
    assert house.audit() == []
    house.execute()
    assert bad(house.verifier.verify_all()) == []
    house.database.close()


def test_a_start_whose_files_could_not_be_kept_is_not_allowed(house: House) -> None:
    house.blobs.root.write_bytes(b"a file where the directory should be")
    with pytest.raises(EvidenceUnavailable, match="evidence"):
        house.ledger.write_ahead(make_intent())
    assert house.audit() == []


def test_the_log_tells_the_story_in_order(house: House) -> None:
    house.execute()
    house.ledger.seal(make_refusal(), None)
    house.ledger.malformed(b"not: [a contract", STARTED)
    assert _kinds(house) == ["DECISION", "PENDING", "FINAL", "DECISION", "FINAL", "MALFORMED"]
    decisions = [json.loads(record)["decision"] for record in house.audit()]
    assert decisions == ["ALLOW", None, None, "DENY", None, None]


def test_a_malformed_contract_leaves_a_digest_and_no_receipt(house: House) -> None:
    house.ledger.malformed(b"secret: nonsense", STARTED)
    (record,) = house.audit()
    assert json.loads(record)["input_digest"] == hashlib.sha256(b"secret: nonsense").hexdigest()
    assert b"nonsense" not in record
    assert house.receipts.latest(10) == ()


def test_the_recorded_result_comes_back_as_it_was_given(house: House) -> None:
    facts = house.execute()
    known = house.executions.get(facts.execution_id)
    assert known is not None
    assert known.result == RESULT
    assert known.outcome is Outcome.SUCCEEDED
    assert known.receipt_id == facts.receipt_id
    assert house.executions.of_session("ses-1") == (known,)


@pytest.mark.parametrize(
    ("left", "verdict", "expected"),
    [
        ((), "pass", ["told", "looked", "laid down"]),
        (
            ("cgroup actum/x: Device or resource busy",),
            "fail",
            ["told", "looked", "told", "laid down"],
        ),
    ],
)
def test_what_is_left_is_looked_at_before_anything_is_written_down(
    house: House,
    monkeypatch: pytest.MonkeyPatch,
    left: tuple[str, ...],
    verdict: str,
    expected: list[str],
) -> None:
    steps: list[str] = []
    intent = make_intent()
    opened = house.ledger.write_ahead(intent)
    tell, append_frame = ledger.closing_record, house.ledger.log.append_frame
    monkeypatch.setattr(
        ledger, "closing_record", lambda *a, **words: (steps.append("told"), tell(*a, **words))[1]
    )
    monkeypatch.setattr(
        house.ledger.log,
        "append_frame",
        lambda *a: (steps.append("laid down"), append_frame(*a))[1],
    )
    house.ledger.seal(
        make_facts(
            intent,
            opened=opened,
            leftovers=None,
            cleanup=lambda: (steps.append("looked"), left)[1],
        ),
        RESULT,
    )
    assert steps == expected
    (record,) = house.records.of_execution(intent.execution_id)
    *_, last = record["checklists"]["post_execution"]
    detail = f"left behind: {left[0]}" if left else "nothing left behind"
    assert last == {"item": "Cleanup performed", "verdict": verdict, "detail": detail}
    assert all(finding.passed for finding in house.verifier.verify_all())


def test_one_id_never_starts_twice(house: House) -> None:
    facts = house.execute()
    with pytest.raises(Refused) as caught:
        house.ledger.write_ahead(make_intent(facts.contract))
    assert caught.value.code == "EXECUTION_ID_REUSED"
    assert _kinds(house) == ["DECISION", "PENDING", "FINAL"]  # the attempt was undone whole


def test_of_many_threads_that_start_one_id_exactly_one_may(house: House) -> None:
    intent = make_intent()

    def start(_: int) -> bool:
        try:
            house.ledger.write_ahead(intent)
        except Refused:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(start, range(16))) == 1


def test_a_refused_id_may_be_asked_again_and_then_run(house: House) -> None:
    contract = make_contract()
    house.ledger.seal(make_refusal(contract, reason_codes=("APPROVAL_REQUIRED",)), None)
    intent = make_intent(contract)
    house.ledger.seal(make_facts(intent, opened=house.ledger.write_ahead(intent)), RESULT)
    known = house.executions.get(contract.execution_id)
    assert known is not None
    assert known.outcome is Outcome.SUCCEEDED
    assert len(house.receipts.of_execution(contract.execution_id)) == 2
    assert all(finding.passed for finding in house.verifier.verify_all())


def test_a_refusal_never_overwrites_what_the_id_did_before(house: House) -> None:
    facts = house.execute()
    again = make_refusal(facts.contract, reason_codes=("EXECUTION_ID_REUSED",))
    house.ledger.seal(again, None)
    known = house.executions.get(facts.execution_id)
    assert known is not None
    assert known.receipt_id == facts.receipt_id
    assert house.receipts.find(again.receipt_id).execution_id == facts.execution_id


def test_what_was_not_opened_cannot_be_sealed_as_run(house: House) -> None:
    with pytest.raises(EvidenceUnavailable, match="not open"):
        house.ledger.seal(make_facts(make_intent()), RESULT)
    assert house.audit() == []


def test_a_retry_is_a_second_pending_record_of_the_same_execution(house: House) -> None:
    intent = make_intent()
    house.ledger.write_ahead(intent)
    second = replace(intent, attempt=2)
    opened = house.ledger.another_attempt(second)
    house.ledger.seal(make_facts(second, opened=opened), RESULT)
    attempts = [(r["kind"], r["attempt"]) for r in map(json.loads, house.audit())]
    assert attempts == [("DECISION", 1), ("PENDING", 1), ("PENDING", 2), ("FINAL", 2)]
    with pytest.raises(EvidenceUnavailable):
        house.ledger.another_attempt(replace(intent, attempt=3))


def _die_after_write_ahead(home: Path, pipe: Any) -> None:
    intent = make_intent()
    House.open(home).ledger.write_ahead(intent)
    pipe.send(intent.execution_id)
    os.kill(os.getpid(), signal.SIGKILL)


def _crashed(home: Path) -> str:
    spawn = multiprocessing.get_context("spawn")
    ours, theirs = spawn.Pipe()
    process = spawn.Process(target=_die_after_write_ahead, args=(home, theirs))
    process.start()
    execution_id = ours.recv()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    return str(execution_id)


def test_a_crash_before_the_seal_leaves_an_open_execution_that_is_listed(house: House) -> None:
    running = make_intent()
    house.ledger.write_ahead(running)
    crashed = _crashed(house.home)
    alive = {found.execution_id: found.alive for found in house.executions.open_executions()}
    assert alive == {running.execution_id: True, crashed: False}


def test_an_interrupted_execution_is_closed_with_a_receipt_that_verifies(house: House) -> None:
    execution_id = _crashed(house.home)
    receipt = house.ledger.close_interrupted(execution_id)
    known = house.executions.get(execution_id)
    assert known is not None
    assert (known.outcome, known.receipt_id) == (Outcome.EXCEPTION, receipt.receipt_id)
    assert known.may_have_run  # so the same id is never started again in silence
    assert house.executions.open_executions() == ()
    final = json.loads(house.audit()[-1])
    assert (final["kind"], final["reason_codes"]) == ("FINAL", ["INTERRUPTED"])
    findings = house.verifier.verify_all()
    assert all(finding.passed for finding in findings)
    assert any(finding.subject == f"receipt {receipt.receipt_id}" for finding in findings)
    (record,) = house.records.of_execution(execution_id)
    assert record["command"]["argv"] == ["rg", "--json", "needle"]
    assert record["checklists"]["pre_execution"][-1]["detail"] == "audit record 2"


def test_the_records_of_an_interrupted_execution_have_the_fields_of_all_others(
    house: House,
) -> None:
    whole = house.execute()
    lost = house.ledger.close_interrupted(_crashed(house.home))
    kept = {each.receipt_id: each for each in house.receipts.latest(2)}
    whole_says, lost_says = (
        json.loads(base64.b64decode(kept[each.receipt_id].envelope["payload"]))
        for each in (whole, lost)
    )
    assert lost_says.keys() == whole_says.keys()
    assert lost_says["predicate"].keys() == whole_says["predicate"].keys()
    records = [
        house.records.of_execution(kept[each.receipt_id].execution_id)[0] for each in (whole, lost)
    ]
    assert records[0].keys() == records[1].keys()
    for name, lines in records[0]["checklists"].items():
        found = [line["item"] for line in records[1]["checklists"][name]]
        assert found == [line["item"] for line in lines]


@pytest.mark.parametrize("column", ["opening", "owner"])
def test_what_was_written_before_the_start_cannot_be_edited_into_a_signed_ending(
    house: House, column: str
) -> None:
    execution_id = _crashed(house.home)
    (found,) = house.database.rows(f"SELECT {column} FROM executions")[0]
    edited = found.replace("needle", "noodle") if column == "opening" else found + "1"
    tamper(house, f"UPDATE executions SET {column} = ?", edited)
    with pytest.raises(EvidenceUnavailable, match="was changed after its start"):
        house.ledger.close_interrupted(execution_id)
    assert (f"execution {execution_id}", "recorded start") in bad(house.verifier.verify_all())
    assert house.receipts.latest(10) == ()


def test_a_running_execution_is_not_closed_under_its_owner(house: House) -> None:
    intent = make_intent()
    opened = house.ledger.write_ahead(intent)
    with pytest.raises(EvidenceUnavailable):
        house.ledger.close_interrupted(intent.execution_id)
    house.ledger.seal(make_facts(intent, opened=opened), RESULT)
    with pytest.raises(EvidenceUnavailable):
        house.ledger.close_interrupted(intent.execution_id)


def _write_many(home: Path, count: int) -> None:
    house = House.open(home)
    for _ in range(count):
        house.execute()
    house.database.close()


def test_two_processes_write_at_once_and_nothing_is_lost(house: House) -> None:
    spawn = multiprocessing.get_context("spawn")
    processes = [spawn.Process(target=_write_many, args=(house.home, 20)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert len(house.receipts.latest(1000)) == 60
    assert all(finding.passed for finding in house.verifier.verify_all())


def test_a_runner_that_refuses_after_the_start_was_allowed_closes_it_without_a_second_decision(
    house: House,
) -> None:
    intent = make_intent()
    opened = house.ledger.write_ahead(intent)
    facts = make_facts(
        intent,
        opened=opened,
        capture=None,
        refused_at=Stage.RUNNER,
        outcome=Outcome.REJECTED,
        reason_codes=("LIMIT_NOT_ENFORCEABLE",),
    )
    house.ledger.seal(facts, None)
    assert _kinds(house) == ["DECISION", "PENDING", "FINAL"]
    assert house.executions.open_executions() == ()


@pytest.mark.parametrize("stage", list(Stage))
def test_a_refusal_at_any_stage_is_recorded_with_a_receipt(house: House, stage: Stage) -> None:
    facts = make_refusal(refused_at=stage, reason_codes=("APPROVAL_REQUIRED",))
    receipt = house.ledger.seal(facts, None)
    assert all(finding.passed for finding in house.verifier.verify_execution(receipt.receipt_id))
