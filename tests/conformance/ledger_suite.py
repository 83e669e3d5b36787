"""What every store of the run ledger promises (`actum.runs.ledger.ledger_store`), as tests.

An implementation subclasses `LedgerConformance` and gives it a `Bench`: `test_sqlite_ledger.py`,
`test_postgres_ledger.py`.
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import pytest

from actum import Runtime
from actum.contract.canonical import sha256_bytes
from actum.evidence.records.bound_rows import BOUND, differing
from actum.runs.contract.resolve import fresh
from actum.runs.model import Run, Step, StepKind, StepState, StepStatus
from actum.runs.new_run import new_run, under_contract
from actum.runs.run_ledger import LOST, Fenced, RunLedger
from actum.runs.run_receipt import read_run_receipt
from actum.runs.run_status import RunStatus
from actum.value import replace

A, B = "boot ns 1 1", "boot ns 2 2"


class RolledBack(Exception):
    pass


class Bench(Protocol):
    """One project, and two handles of its ledger, as two processes have them."""

    rt: Runtime
    ledger: RunLedger
    other: RunLedger
    #: Field of an audit record with the rows that it binds.
    rows_field: str

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Of the ledger's tables, past the ledger."""

    def table(self, name: str) -> list[dict[str, Any]]:
        """Every column of every row."""

    def attack(self, sql: str) -> None:
        """Execute a statement with every right; raises if the database refuses it."""


def made(bench: Bench, *, folder: str = "/a", priority: int = 0) -> Run:
    return new_run(
        "items: []",
        fresh({}, {}),
        workspace=Path(folder),
        requested_by="user:tester",
        priority=priority,
        at=datetime.now(UTC),
        signer=bench.rt.keyring.signer,
    )


def submitted(bench: Bench, *, folder: str = "/a", priority: int = 0) -> Run:
    return bench.ledger.create(made(bench, folder=folder, priority=priority), "created")


def claimed(bench: Bench, worker: str = A, *, folder: str = "/a") -> Run:
    run = bench.ledger.claim(submitted(bench, folder=folder), worker)
    assert run is not None
    return run


def step_of(run: Run, index: int = 0) -> Step:
    return Step(
        run_id=run.run_id,
        step_index=index,
        kind=StepKind.ITEM,
        item_id=f"item-{index}",
        attempt=1,
        revision=run.revision,
        epoch=run.epoch,
        fence=run.fence,
        worker=str(run.worker),
        state=StepState.STARTED,
        started_at=run.created_at,
    )


def at_once(*calls: Callable[[], Any]) -> list[Any]:
    """Make all calls at the same moment; their results, or what they raised."""
    found: list[Any] = [None] * len(calls)
    barrier = threading.Barrier(len(calls))

    def make(number: int) -> None:
        barrier.wait(60)
        try:
            found[number] = calls[number]()
        except Exception as error:  # noqa: BLE001 -- a result of the call
            found[number] = error

    threads = [threading.Thread(target=make, args=(number,)) for number in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    return found


def records(bench: Bench) -> list[dict[str, Any]]:
    """The audit records about runs, in order."""
    rows = bench.rt.database.rows("SELECT record FROM audit ORDER BY seq")
    found = [json.loads(record) for (record,) in rows]
    return [each for each in found if each["kind"] == "RUN"]


def receipts(bench: Bench, run: Run) -> list[dict[str, Any]]:
    """The statements of the receipts of a run; each is signed by the home's key."""
    found = []
    for row in bench.table("run_receipts"):
        if row["run_id"] == run.run_id:
            envelope = json.loads(row["envelope"])
            predicate = read_run_receipt(envelope, bench.rt.keyring.trusted)
            assert predicate["receipt_id"] == row["receipt_id"]
            assert base64.b64decode(envelope["payload"])
            found.append(dict(predicate))
    return found


class LedgerConformance:
    @pytest.fixture
    def bench(self) -> Bench:
        raise NotImplementedError

    # Claims

    def test_of_many_claims_of_a_run_one_succeeds(self, bench: Bench) -> None:
        for _ in range(5):
            run = submitted(bench)
            calls = [
                lambda ledger=ledger, worker=f"boot ns {number} 1", run=run: ledger.claim(
                    run, worker
                )
                for number, ledger in enumerate([bench.ledger, bench.other] * 2)
            ]
            found = [each for each in at_once(*calls) if each is not None]
            assert len(found) == 1, found
            now = bench.ledger.find(run.run_id)
            assert now == found[0]
            assert (now.status, now.fence) == (RunStatus.RUNNING, 1)
            bench.ledger.set_status(found[0], RunStatus.COMPLETE)

    def test_of_the_runs_of_a_folder_one_is_at_work(self, bench: Bench) -> None:
        for number in range(5):
            folder = f"/folder-{number}"
            runs = [submitted(bench, folder=folder) for _ in range(4)]
            ledgers = [bench.ledger, bench.other] * 2
            calls = [
                lambda ledger=ledger, run=run: ledger.claim(run, A)
                for ledger, run in zip(ledgers, runs, strict=True)
            ]
            found = [each for each in at_once(*calls) if each is not None]
            assert len(found) == 1, found
            waiting = next(run for run in runs if run.run_id != found[0].run_id)
            assert bench.ledger.claim(waiting, B) is None
            assert bench.ledger.queued(run_id=waiting.run_id) == ()
            bench.ledger.set_status(found[0], RunStatus.COMPLETE)
            assert bench.ledger.claim(waiting, B) is not None

    def test_runs_of_two_folders_are_at_work_together(self, bench: Bench) -> None:
        assert {claimed(bench, folder=each).workspace for each in ("/a", "/b")} == {"/a", "/b"}
        assert len(bench.other.at_work()) == 2

    def test_a_run_of_this_process_is_claimed_as_it_is_created(self, bench: Bench) -> None:
        first = bench.ledger.create(made(bench), "created", claim_by=A)
        second = bench.ledger.create(made(bench), "created", claim_by=A)
        assert (first.status, first.worker) == (RunStatus.RUNNING, A)
        assert (second.status, second.worker) == (RunStatus.QUEUED, None)

    def test_the_queue_is_ordered_by_priority_then_age(self, bench: Bench) -> None:
        first, second = submitted(bench), submitted(bench)
        high, low = submitted(bench, priority=5), submitted(bench, priority=-5)
        order = [run.run_id for run in (high, first, second, low)]
        assert [run.run_id for run in bench.other.queued()] == order
        assert [run.run_id for run in bench.other.queued(2)] == order[:2]
        assert bench.other.queued(queue="another") == ()

    # Fences

    def test_a_worker_that_lost_its_claim_writes_nothing(self, bench: Bench) -> None:
        zombie = claimed(bench, A)
        bench.ledger.start_step(zombie, step_of(zombie))
        again = bench.other.bring_back(zombie, lost_after=9)
        assert again is not None
        before = [bench.table(name) for name in ("agent_runs", "agent_steps")]
        taken = bench.other.claim(again, B)
        assert taken is not None
        now = [bench.table(name) for name in ("agent_runs", "agent_steps")]
        assert now != before, "the control: a claim is seen"
        count = len(records(bench))
        for write in (
            lambda: bench.ledger.start_step(zombie, step_of(zombie, 1)),
            lambda: bench.ledger.end_step(zombie, 0, StepStatus.SUCCESS, current_state="f" * 64),
            lambda: bench.ledger.set_status(zombie, RunStatus.COMPLETE),
            lambda: bench.ledger.plan(zombie, "items: []"),
            lambda: bench.ledger.end_plan(zombie, 0, "items: []", "{}"),
            lambda: bench.ledger.require_claim(zombie),
        ):
            with pytest.raises(Fenced):
                write()
        assert bench.ledger.hand_over(zombie) is None
        assert bench.ledger.bring_back(zombie, lost_after=9) is None
        assert [bench.table(name) for name in ("agent_runs", "agent_steps")] == now
        assert len(records(bench)) == count
        bench.other.require_claim(taken)
        bench.other.end_step(taken, 0, StepStatus.INTERRUPTED)
        bench.other.start_step(taken, step_of(taken, 1))
        assert bench.other.set_status(taken, RunStatus.COMPLETE).fence == 2

    def test_a_takeover_and_a_late_write_do_not_both_happen(self, bench: Bench) -> None:
        for index in range(5):
            run = claimed(bench, A, folder=f"/{index}")
            late, moved = at_once(
                lambda run=run: bench.ledger.start_step(run, step_of(run)),
                lambda run=run: bench.other.bring_back(run, lost_after=9),
            )
            assert moved is not None
            assert not isinstance(moved, Exception), moved
            recorded = len(bench.ledger.steps(run.run_id))
            assert recorded == (0 if isinstance(late, Fenced) else 1), late

    def test_a_step_ends_once(self, bench: Bench) -> None:
        run = claimed(bench)
        bench.ledger.start_step(run, step_of(run))
        bench.ledger.end_step(run, 0, StepStatus.SUCCESS, current_state="a" * 64)
        with pytest.raises(Exception, match="a step ends once"):
            bench.ledger.end_step(run, 0, StepStatus.FAILURE)
        (step,) = bench.other.steps(run.run_id)
        assert (step.status, step.state) == (StepStatus.SUCCESS, StepState.ENDED)
        now = bench.other.find(run.run_id)
        assert now is not None
        assert now.current_state == "a" * 64

    # Cancel, continue, override

    def test_a_queued_run_is_cancelled_at_once(self, bench: Bench) -> None:
        run = submitted(bench)
        ended = bench.other.cancel(run.run_id, "user:b")
        assert ended is not None
        assert (ended.status, ended.error_code) == (RunStatus.CANCELLED, "CANCELLED")
        assert bench.ledger.claim(run, A) is None
        assert bench.ledger.cancel(run.run_id, "user:c") is None
        (receipt,) = receipts(bench, run)
        assert ended.receipt_id == receipt["receipt_id"]

    def test_a_run_at_work_is_cancelled_by_its_worker(self, bench: Bench) -> None:
        for number, end in enumerate(("given back", "brought back", "ended")):
            run = claimed(bench, folder=f"/{number}")
            asked = bench.other.cancel(run.run_id, "user:b")
            assert asked is not None
            assert (asked.status, asked.cancel_by) == (RunStatus.RUNNING, "user:b")
            assert receipts(bench, run) == []
            if end == "given back":
                over = bench.ledger.hand_over(run)
            elif end == "brought back":
                over = bench.other.bring_back(run, lost_after=9)
            else:
                over = bench.ledger.set_status(run, RunStatus.CANCELLED, error_code="CANCELLED")
            assert over is not None
            assert (over.status, over.error_code) == (RunStatus.CANCELLED, "CANCELLED")
            assert over.ended_at is not None
            assert len(receipts(bench, run)) == 1

    def test_a_run_is_continued_once_for_each_end(self, bench: Bench) -> None:
        run = claimed(bench)
        bench.ledger.start_step(run, step_of(run))
        bench.ledger.end_step(run, 0, StepStatus.FAILURE)
        failed = bench.ledger.set_status(run, RunStatus.FAILED, error_code="X")
        first, second = at_once(
            lambda: bench.ledger.requeue(failed), lambda: bench.other.requeue(failed)
        )
        (again,) = [each for each in (first, second) if each is not None]
        assert (again.status, again.epoch, again.resumed_at) == (
            RunStatus.QUEUED,
            run.epoch + 1,
            1,
        )
        assert (again.error_code, again.ended_at, again.worker) == (None, None, None)
        mine = bench.ledger.claim(again, A)
        assert mine is not None
        bench.ledger.set_status(mine, RunStatus.COMPLETE)
        both = receipts(bench, run)
        assert len(both) == 2
        assert sum(each["previous_receipt"] is None for each in both) == 1
        assert bench.ledger.requeue(mine) is None, "a complete run is not continued"

    def test_an_override_is_a_revision_more(self, bench: Bench) -> None:
        run = claimed(bench)
        failed = bench.ledger.set_status(run, RunStatus.FAILED, error_code="X")
        other = under_contract(failed, fresh({"profile": "ci"}, {}), bench.rt.keyring.signer)
        again = bench.ledger.requeue(other, "overridden")
        assert again is not None
        assert again.revision == 2
        causes = [(each["revision"], each["cause"]) for each in bench.other.revisions(run.run_id)]
        assert causes == [(1, "created"), (2, "overridden")]

    def test_a_fork_takes_over_steps(self, bench: Bench) -> None:
        run = replace(made(bench), forked_from=submitted(bench).run_id)
        step = replace(step_of(run), worker=A, state=StepState.ADOPTED, status=StepStatus.SUCCESS)
        bench.ledger.create(run, "forked", [step])
        assert bench.other.steps(run.run_id) == (step,)

    # Lost workers

    def test_a_run_whose_worker_is_gone_is_queued_then_lost(self, bench: Bench) -> None:
        run = claimed(bench)
        bench.ledger.start_step(run, step_of(run))
        taken: Run | None = run
        for fence in (1, 2, 3):
            assert taken is not None
            assert taken.fence == fence
            again = bench.other.bring_back(taken, lost_after=3)
            assert again is not None
            assert (again.status, again.epoch) == (RunStatus.QUEUED, run.epoch + fence)
            taken = bench.ledger.claim(again, B)
        assert taken is not None
        lost = bench.other.bring_back(taken, lost_after=3)
        assert lost is not None
        assert (lost.status, lost.error_code) == (RunStatus.FAILED, LOST)
        assert len(receipts(bench, run)) == 1

    def test_a_refused_run_has_its_decision(self, bench: Bench) -> None:
        run = submitted(bench)
        refused = bench.other.refuse(run, "CONTRACT_MISMATCH", "{}", "d" * 64, '{"x": 1}')
        assert refused is not None
        assert refused.status is RunStatus.FAILED
        assert bench.ledger.decisions(run.run_id) == ('{"x": 1}',)
        assert bench.ledger.refuse(run, "X", "{}", "e" * 64, "{}") is None
        assert len(bench.ledger.decisions(run.run_id)) == 1

    def test_a_decision_is_recorded_once(self, bench: Bench) -> None:
        run = submitted(bench)
        found = at_once(
            *(
                lambda ledger=ledger: ledger.record_decision(run.run_id, "d" * 64, "{}")
                for ledger in (bench.ledger, bench.other, bench.ledger, bench.other)
            )
        )
        assert found == [None] * 4
        assert bench.ledger.decisions(run.run_id) == ("{}",)

    def test_a_blocked_run_says_so(self, bench: Bench) -> None:
        run = submitted(bench)
        assert bench.ledger.misplaced([run.queue]) == ()
        assert [each.run_id for each in bench.ledger.misplaced(["another"])] == [run.run_id]
        bench.ledger.block(run, "UNSUPPORTED_CONTRACT")
        assert bench.other.misplaced(["another"]) == ()
        now = bench.other.find(run.run_id)
        assert now is not None
        assert now.blocked_code == "UNSUPPORTED_CONTRACT"

    # One write

    def test_a_write_that_fails_stores_nothing(self, bench: Bench) -> None:
        run = made(bench)
        enqueue = bench.ledger._enqueue

        def fail(_into: object, _ticket: object) -> None:
            raise RolledBack

        bench.ledger._enqueue = fail
        with pytest.raises(RolledBack):
            bench.ledger.create(run, "created")
        bench.ledger._enqueue = enqueue
        assert bench.other.find(run.run_id) is None
        assert bench.other.revisions(run.run_id) == ()
        assert records(bench) == []
        bench.ledger.create(run, "created")
        assert bench.other.find(run.run_id) is not None

    def test_each_write_has_one_record_that_binds_its_rows(self, bench: Bench) -> None:
        run = claimed(bench)
        bench.ledger.start_step(run, step_of(run))
        bench.ledger.end_step(run, 0, StepStatus.SUCCESS, current_state="a" * 64)
        bench.ledger.set_status(run, RunStatus.COMPLETE)
        found = records(bench)
        assert [each["event"] for each in found] == [
            *("submitted", "claimed", "step-started", "step-ended", "status-changed")
        ]
        newest: dict[tuple[str, Any], dict[str, Any]] = {}
        for record in found:
            for bound in record[bench.rows_field]:
                key = tuple(bound["columns"][name] for name in BOUND[bound["table"]].key)
                newest[bound["table"], key] = bound["columns"]
        assert {table for table, _ in newest} == {
            *("agent_runs", "run_contracts", "agent_steps", "run_receipts")
        }
        for table in ("agent_runs", "run_contracts", "agent_steps", "run_receipts"):
            for row in bench.table(table):
                columns = newest.pop((table, tuple(row[name] for name in BOUND[table].key)))
                assert [*differing(table, columns, row)] == []
        assert newest == {}

    def test_what_was_recorded_stays(self, bench: Bench) -> None:
        run = claimed(bench)
        bench.ledger.start_step(run, step_of(run))
        bench.ledger.end_step(run, 0, StepStatus.SUCCESS)
        bench.ledger.record_decision(run.run_id, "d" * 64, "{}")
        bench.ledger.set_status(run, RunStatus.COMPLETE)
        tables = ("agent_runs", "agent_steps", "run_contracts", "run_decisions", "run_receipts")
        before = {name: bench.table(name) for name in tables}
        for sql in (
            *(f"DELETE FROM {name}" for name in tables),
            "UPDATE run_contracts SET seal = 'x'",
            "UPDATE run_decisions SET document = 'x'",
            "UPDATE run_receipts SET sha256 = 'x'",
            "UPDATE agent_steps SET status = 'failure'",
        ):
            with pytest.raises(Exception, match=r"append-only|a step ends once"):
                bench.attack(sql)
            assert {name: bench.table(name) for name in tables} == before, sql
        bench.attack("UPDATE agent_runs SET priority = 7")  # the control
        assert bench.rows("SELECT priority FROM agent_runs") == [(7,)]

    def test_documents_come_back_to_the_letter(self, bench: Bench) -> None:
        text = "items: []  # Größe 100 % ? \U0001f600 \\ ' \" {}\n"
        run = replace(made(bench), source=text, source_sha256=sha256_bytes(text.encode()))
        bench.ledger.create(run, "created")
        assert bench.other.find(run.run_id) == run
        assert [*_ids(bench.other.listed())] == [run.run_id]
        assert bench.other.latest(run.source_sha256, run.workspace) == run


def _ids(runs: Sequence[Run]) -> list[str]:
    return [run.run_id for run in runs]
