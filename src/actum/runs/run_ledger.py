"""The ledger of runs: the only writer of its four tables, and the reader that decisions use.

The rules are here, once; a store (`actum.runs.ledger`) holds the tables. Every write is one
transaction with an audit record that binds the rows it wrote. A write by a worker names the fence
of its claim; if another worker has claimed the run since, nothing is written and `Fenced` is
raised. So a worker that was stopped and comes back late can change nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any

from actum.contract.canonical import sha256_bytes
from actum.contract.model import Json
from actum.evidence.records.audit import VERSION, Kind, closed
from actum.evidence.records.facts import ACTUM_VERSION
from actum.evidence.records.trace import rfc3339
from actum.runs.dispatch.port import Enqueue, Ticket
from actum.runs.ledger.ledger_store import LedgerStore, Transaction
from actum.runs.model import (
    RUN_COLUMNS,
    STEP_COLUMNS,
    Run,
    Step,
    StepState,
    StepStatus,
    codes_text,
    run_from,
    step_from,
)
from actum.runs.run_receipt import Revision, run_receipt
from actum.runs.run_status import ACTIVE, AT_WORK, ENDED, RunStatus, may_move
from actum.store.snapshot import Reader
from actum.value import plain, replace

_RUN = f"SELECT {', '.join(RUN_COLUMNS)} FROM agent_runs"  # noqa: S608 -- constants
_STEPS = f"SELECT {', '.join(STEP_COLUMNS)} FROM agent_steps"  # noqa: S608 -- constants
#: Runs that a worker may take, the next one first.
_QUEUED = _RUN + (  # noqa: S608 -- constants
    " WHERE status = 'queued' AND (CAST(? AS TEXT) IS NULL OR queue = ?)"
    " AND (CAST(? AS TEXT) IS NULL OR run_id = ?)"
    " AND NOT EXISTS (SELECT 1 FROM agent_runs AS other"
    " WHERE {same_folder} AND other.status IN"
    " ('running', 'correcting', 'optimizing', 'validating'))"
    " ORDER BY priority DESC, created_at, run_id"
)
#: Folders with queued runs and none at work. Walks the index: one step for each folder.
_FREE_FOLDERS = """
WITH RECURSIVE folders (folder) AS (
    SELECT min(workspace) FROM agent_runs WHERE status = 'queued'
    UNION ALL
    SELECT (SELECT min(workspace) FROM agent_runs WHERE status = 'queued' AND workspace > folder)
    FROM folders WHERE folder IS NOT NULL
)
SELECT folder FROM folders WHERE folder IS NOT NULL AND NOT EXISTS (
    SELECT 1 FROM agent_runs WHERE workspace = folder
    AND status IN ('running', 'correcting', 'optimizing', 'validating'))
"""
#: The next run of a folder. A ticket's columns, and what the order of tickets is by.
_NEXT = (
    "SELECT run_id, epoch, queue, priority, created_at FROM agent_runs"
    " WHERE status = 'queued' AND workspace = ? AND queue IN ({queues})"
    " ORDER BY priority DESC, created_at, run_id LIMIT 1"
)
#: Queued runs whose `blocked_code` is not what the served queues make it.
_MISPLACED = _RUN + (
    " WHERE status = 'queued' AND (blocked_code IS NULL) = (queue NOT IN ({queues})) LIMIT ?"
)
#: The end of a claim without an end of the run. A cancelled run is not queued again:
#: the next worker would carry on until it looks. One parameter: the time.
_QUEUED_OR_CANCELLED = (
    "status = CASE WHEN cancel_by IS NULL THEN 'queued' ELSE 'cancelled' END,"
    " error_code = CASE WHEN cancel_by IS NULL THEN NULL ELSE 'CANCELLED' END,"
    " ended_at = CASE WHEN cancel_by IS NULL THEN NULL ELSE ? END"
)
_REVISIONS = "SELECT revision, cause, metadata, seal FROM run_contracts"
#: Takes a queued run of a folder in which no other run is at work. Parameters: worker, time, run.
_CLAIM = (
    "UPDATE agent_runs SET fence = fence + 1, worker = ?, status = 'running',"
    " started_at = coalesce(started_at, ?), blocked_code = NULL"
    " WHERE run_id = ? AND status = 'queued' AND NOT EXISTS ("
    " SELECT 1 FROM agent_runs AS other WHERE {same_folder}"
    " AND other.status IN ('running', 'correcting', 'optimizing', 'validating'))"
)


#: Whether a claim holds. Parameters: run, fence, epoch.
_MINE = (
    "SELECT 1 FROM agent_runs WHERE run_id = ? AND fence = ? AND epoch = ?"
    " AND status IN ('running', 'correcting', 'optimizing', 'validating')"
)

#: Changes that give a run its next epoch.
_ENQUEUES = ("continued", "handed-over", "brought-back")
LOST = "RUN_LOST"


class Fenced(Exception):
    """Another worker has claimed the run, or it has ended: stop, and write nothing."""


class _Unmoved(Exception):
    """The condition of a write does not hold; rolls its transaction back."""


class RunLedger:
    def __init__(self, store: LedgerStore, clock: Callable[[], datetime], enqueue: Enqueue) -> None:
        self._store = store
        self._clock = clock
        self._enqueue = enqueue
        self._queued = _QUEUED.format(same_folder=store.same_folder)
        self._claim = _CLAIM.format(same_folder=store.same_folder)

    # Reading

    @property
    def tables(self) -> Reader:
        """For code that reads the tables by themselves."""
        return self._store

    def find(self, run_id: str) -> Run | None:
        row = self._store.row(f"{_RUN} WHERE run_id = ?", (run_id,))
        return None if row is None else run_from(row)

    def steps(self, run_id: str) -> tuple[Step, ...]:
        rows = self._store.rows(f"{_STEPS} WHERE run_id = ? ORDER BY step_index", (run_id,))
        return tuple(map(step_from, rows))

    def listed(self, status: RunStatus | None = None, limit: int = 50) -> tuple[Run, ...]:
        """The newest runs first."""
        where, parameters = ("", ()) if status is None else (" WHERE status = ?", (status.value,))
        rows = self._store.rows(
            f"{_RUN}{where} ORDER BY created_at DESC, run_id LIMIT ?", (*parameters, limit)
        )
        return tuple(map(run_from, rows))

    def queued(
        self, limit: int = 16, *, queue: str | None = None, run_id: str | None = None
    ) -> tuple[Run, ...]:
        """Runs that may be claimed now, the next one first: one folder has one run at a time.

        Only those of a queue, or one run: the limit would hide them behind others.
        """
        parameters = (queue, queue, run_id, run_id, limit)
        rows = self._store.rows(f"{self._queued} LIMIT ?", parameters)
        return tuple(map(run_from, rows))

    def latest(self, source_sha256: str, workspace: str) -> Run | None:
        """The newest run of a work file in a folder of this project; a legacy run is none."""
        row = self._store.row(
            f"{_RUN} WHERE source_sha256 = ? AND workspace = ? AND revision > 0"
            f" AND {self._store.here}"
            " ORDER BY created_at DESC, run_id LIMIT 1",
            (source_sha256, workspace),
        )
        return None if row is None else run_from(row)

    def waiting(self, queues: Sequence[str], limit: int) -> tuple[Ticket, ...]:
        """The tickets of runs that may be claimed now, the next one first; of each folder one."""
        found = []
        next_of = _NEXT.format(queues=_marks(queues))
        for (folder,) in self._store.rows(_FREE_FOLDERS):
            row = self._store.row(next_of, (folder, *queues))
            if row is not None:
                found.append(row)
        found.sort(key=lambda row: (-row[3], row[4], row[0]))
        return tuple(
            Ticket(run_id=run_id, epoch=epoch, queue=queue, priority=priority)
            for run_id, epoch, queue, priority, _at in found[:limit]
        )

    def owner_of(self, run_id: str) -> str | None:
        """The process that has claimed a run; ``None`` if none has."""
        row = self._store.row("SELECT worker FROM agent_runs WHERE run_id = ?", (run_id,))
        return None if row is None else row[0]

    def misplaced(self, served: Sequence[str], limit: int = 100) -> tuple[Run, ...]:
        """Queued runs that are not shown as blocked and no worker supports, and the reverse."""
        sql = _MISPLACED.format(queues=_marks(served))
        return tuple(map(run_from, self._store.rows(sql, (*served, limit))))

    def is_here(self, run_id: str) -> bool:
        """Whether the folder of a run is the one of this project."""
        sql = f"SELECT 1 FROM agent_runs WHERE run_id = ? AND {self._store.here}"  # noqa: S608
        return self._store.row(sql, (run_id,)) is not None

    def at_work(self) -> tuple[Run, ...]:
        rows = self._store.rows(
            f"{_RUN} WHERE status IN ('running', 'correcting', 'optimizing', 'validating')"
        )
        return tuple(map(run_from, rows))

    def revisions(self, run_id: str) -> tuple[Mapping[str, Json], ...]:
        """Every contract that a run ever had."""
        rows = self._store.rows(
            "SELECT revision, metadata, cause, by_whom, at FROM run_contracts WHERE run_id = ?"
            " ORDER BY revision",
            (run_id,),
        )
        names = ("revision", "metadata", "cause", "by_whom", "at")
        return tuple(dict(zip(names, row, strict=True)) for row in rows)

    def decisions(self, run_id: str) -> tuple[str, ...]:
        """Documents of the decisions about a run, the newest last."""
        rows = self._store.rows(
            "SELECT document FROM run_decisions WHERE run_id = ? ORDER BY at, decision_hash",
            (run_id,),
        )
        return tuple(document for (document,) in rows)

    # Writing, by people

    def create(
        self, run: Run, cause: str, adopted: Sequence[Step] = (), *, claim_by: str | None = None
    ) -> Run:
        """A new run in the queue, with its first contract, and the steps that a fork takes over.

        With `claim_by`, that worker claims it in the same transaction, if the folder is free: no
        other worker can be faster.
        """

        def write(into: Transaction) -> Run:
            _insert_run(into, run)
            self._claim_now(into, run.run_id, claim_by)
            rows = [into.bound("agent_runs", run.run_id)]
            rows.append(self._insert_contract(into, run, cause))
            for step in adopted:
                _insert_step(into, step)
                rows.append(into.bound("agent_steps", run.run_id, step.step_index))
            created = self._row(into, run.run_id)
            if created.status is RunStatus.QUEUED:
                self._enqueue(into, created.ticket)
            self._append(into, "submitted", run.run_id, rows, created.status)
            return created

        return self._store.write(write)

    def requeue(
        self, run: Run, cause: str | None = None, *, claim_by: str | None = None
    ) -> Run | None:
        """Queue an ended run again with the contract that `run` has; ``None`` if it has moved.

        `cause` is why the contract differs from the one before; `claim_by` as for `create`.
        """
        return self._moved(
            "continued",
            run.run_id,
            "UPDATE agent_runs SET status = 'queued', metadata = ?, revision = ?, seal = ?,"
            " queue = ?, epoch = epoch + 1, worker = NULL, cancel_by = NULL, error_code = NULL,"
            " error_details = NULL, blocked_code = NULL, ended_at = NULL,"
            " validation_status = NULL, resumed_at = (SELECT count(*) FROM agent_steps"
            " WHERE agent_steps.run_id = agent_runs.run_id)"
            " WHERE run_id = ? AND epoch = ? AND status IN ('failed', 'cancelled')",
            (run.metadata, run.revision, run.seal, run.queue, run.run_id, run.epoch),
            lambda into: [] if cause is None else [self._insert_contract(into, run, cause)],
            claim_by=claim_by,
        )

    def cancel(self, run_id: str, by: str) -> Run | None:
        """Record who wants a run cancelled; one that no worker has is cancelled at once. ``None``
        if it has ended."""
        return self._moved(
            "cancel-requested",
            run_id,
            "UPDATE agent_runs SET cancel_by = ?,"
            " ended_at = CASE WHEN status = 'queued' THEN ? ELSE ended_at END,"
            " error_code = CASE WHEN status = 'queued' THEN 'CANCELLED' ELSE error_code END,"
            " status = CASE WHEN status = 'queued' THEN 'cancelled' ELSE status END"
            " WHERE run_id = ? AND status NOT IN ('complete', 'failed', 'cancelled')",
            (by, self._now(), run_id),
        )

    def record_decision(self, run_id: str, decision_hash: str, document: str) -> None:
        """Store a decision about a run; the same decision again is one row."""

        def write(into: Transaction) -> None:
            rows = [self._insert_decision(into, run_id, decision_hash, document)]
            self._append(into, "decided", run_id, rows, None)

        self._store.write(write)

    # Writing, by workers

    def claim(self, run: Run, worker: str) -> Run | None:
        """Take a queued run; ``None`` if another worker was faster or the run was cancelled."""
        return self._moved(
            "claimed",
            run.run_id,
            f"{self._claim} AND epoch = ?",
            (worker, self._now(), run.run_id, run.epoch),
            claims=True,
        )

    def refuse(
        self, run: Run, code: str, details: str, decision_hash: str, document: str
    ) -> Run | None:
        """Fail a queued run whose contract is refused, and record the decision, in one write."""
        return self._moved(
            "refused",
            run.run_id,
            "UPDATE agent_runs SET status = 'failed', error_code = ?, error_details = ?,"
            " ended_at = ? WHERE run_id = ? AND epoch = ? AND status = 'queued'",
            (code, details, self._now(), run.run_id, run.epoch),
            lambda into: [self._insert_decision(into, run.run_id, decision_hash, document)],
        )

    def require_claim(self, run: Run) -> None:
        """Raise `Fenced` if another worker has claimed the run since, or it has ended."""
        now = self.find(run.run_id)
        lost = now is None or (now.fence, now.epoch) != (run.fence, run.epoch)
        if lost or now is None or now.status not in AT_WORK:
            raise Fenced(run.run_id)

    def hand_over(self, run: Run) -> Run | None:
        """Queue a run again that this worker claimed and will not finish."""
        return self._moved(
            "handed-over",
            run.run_id,
            f"UPDATE agent_runs SET {_QUEUED_OR_CANCELLED}, worker = NULL, epoch = epoch + 1"  # noqa: S608
            " WHERE run_id = ? AND epoch = ? AND fence = ?"
            " AND status IN ('running', 'correcting', 'optimizing', 'validating')",
            (self._now(), run.run_id, run.epoch, run.fence),
        )

    def validated(self, run: Run, status: str) -> Run | None:
        """Record the verdict of a heavy validation that a person asked for."""
        return self._moved(
            "validated",
            run.run_id,
            "UPDATE agent_runs SET validation_status = ? WHERE run_id = ? AND epoch = ?"
            " AND status = 'complete'",
            (status, run.run_id, run.epoch),
        )

    def bring_back(self, run: Run, *, lost_after: int) -> Run | None:
        """Queue a run again whose worker is gone. After `lost_after` claims without a new step it
        fails with RUN_LOST."""
        newest = self._store.row(
            "SELECT max(fence) FROM agent_steps WHERE run_id = ?", (run.run_id,)
        )
        is_lost = run.fence - (newest[0] if newest and newest[0] else 0) >= lost_after
        end = f"status = 'failed', error_code = '{LOST}', ended_at = ?"
        return self._moved(
            "brought-back",
            run.run_id,
            f"UPDATE agent_runs SET {end if is_lost else _QUEUED_OR_CANCELLED}, worker = NULL,"  # noqa: S608
            " epoch = epoch + 1 WHERE run_id = ? AND epoch = ? AND fence = ?"
            " AND status IN ('running', 'correcting', 'optimizing', 'validating')",
            (self._now(), run.run_id, run.epoch, run.fence),
        )

    def block(self, run: Run, code: str | None) -> None:
        """Show that no live worker supports a queued run, or that one does again."""
        self._moved(
            "unblocked" if code is None else "blocked",
            run.run_id,
            "UPDATE agent_runs SET blocked_code = ? WHERE run_id = ? AND epoch = ?"
            " AND status = 'queued'",
            (code, run.run_id, run.epoch),
        )

    def set_status(self, run: Run, status: RunStatus, **columns: str | int | None) -> Run:
        """Change the status and other columns of a claimed run; raises `Fenced`."""
        if not may_move(run.status, status):
            raise ValueError(f"a run does not move from {run.status} to {status}")
        values = {"status": status.value, **columns}
        if status not in ACTIVE:
            values = {**values, "ended_at": self._now(), "worker": None}
        return self._changed(run, "status-changed", values)

    def plan(self, run: Run, plan: str) -> Run:
        """Freeze the plan of a claimed run."""
        digest = sha256_bytes(plan.encode())
        return self._changed(run, "planned", {"plan": plan, "plan_sha256": digest})

    def end_plan(self, run: Run, step_index: int, plan: str, document: str) -> Run:
        """Freeze the plan that a planner made, and record the end of its step."""
        digest = sha256_bytes(plan.encode())

        def write(into: Transaction) -> None:
            self._require_fence(into, run)
            into.execute(
                "UPDATE agent_runs SET plan = ?, plan_sha256 = ? WHERE run_id = ?",
                (plan, digest, run.run_id),
            )
            into.execute(
                "UPDATE agent_steps SET state = 'ended', status = 'success', document = ?,"
                " ended_at = ? WHERE run_id = ? AND step_index = ?",
                (document, self._now(), run.run_id, step_index),
            )
            rows = [
                into.bound("agent_runs", run.run_id),
                into.bound("agent_steps", run.run_id, step_index),
            ]
            self._append(into, "planned", run.run_id, rows, run.status)

        self._store.write(write)
        return replace(run, plan=plan, plan_sha256=digest)

    def start_step(self, run: Run, step: Step) -> None:
        """Record a step before it starts; durable when this returns."""

        def write(into: Transaction) -> None:
            self._require_fence(into, run)
            _insert_step(into, step)
            rows = [into.bound("agent_steps", run.run_id, step.step_index)]
            self._append(into, "step-started", run.run_id, rows, run.status)

        self._store.write(write)

    def end_step(
        self,
        run: Run,
        step_index: int,
        status: StepStatus,
        *,
        current_state: str | None = None,
        codes: tuple[str, ...] = (),
        **columns: str | int | None,
    ) -> None:
        """Record the end of a step, and with it the state that it left."""
        values = {
            "state": StepState.ENDED.value,
            "status": status.value,
            "codes": codes_text(codes),
            "ended_at": self._now(),
            **columns,
        }

        def write(into: Transaction) -> None:
            self._require_fence(into, run)
            names = ", ".join(f"{name} = ?" for name in values)
            into.execute(
                f"UPDATE agent_steps SET {names} WHERE run_id = ? AND step_index = ?",  # noqa: S608
                (*values.values(), run.run_id, step_index),
            )
            rows = [into.bound("agent_steps", run.run_id, step_index)]
            if current_state is not None:
                into.execute(
                    "UPDATE agent_runs SET current_state = ? WHERE run_id = ?",
                    (current_state, run.run_id),
                )
                rows.append(into.bound("agent_runs", run.run_id))
            self._append(into, "step-ended", run.run_id, rows, run.status)

        self._store.write(write)

    # Parts

    def _now(self) -> str:
        return rfc3339(self._clock())

    def _moved(
        self,
        event: str,
        run_id: str,
        sql: str,
        parameters: Sequence[Any],
        more: Callable[[Transaction], list[dict[str, Json]]] = lambda _into: [],
        *,
        claim_by: str | None = None,
        claims: bool = False,
    ) -> Run | None:
        """Change one row under a condition; ``None``, and nothing is written, if it does not hold.

        `more` writes further rows in the same transaction and returns them bound; `claims`: the
        change takes the run's folder.
        """

        def write(into: Transaction) -> Run:
            if claims:
                into.lock_folder(run_id)
            if into.execute(sql, parameters) != 1:
                raise _Unmoved  # rolls the transaction back
            self._claim_now(into, run_id, claim_by)
            rows = [*more(into), *self._sealed_end(into, run_id)]
            rows.insert(0, into.bound("agent_runs", run_id))
            moved = self._row(into, run_id)
            if event in _ENQUEUES and moved.status is RunStatus.QUEUED:
                self._enqueue(into, moved.ticket)
            self._append(into, event, run_id, rows, moved.status)
            return moved

        try:
            return self._store.write(write)
        except _Unmoved:
            return None

    def _changed(self, run: Run, event: str, values: Mapping[str, str | int | None]) -> Run:

        def write(into: Transaction) -> Run:
            self._require_fence(into, run)
            names = ", ".join(f"{name} = ?" for name in values)
            into.execute(
                f"UPDATE agent_runs SET {names} WHERE run_id = ?",  # noqa: S608 -- our names
                (*values.values(), run.run_id),
            )
            rows = self._sealed_end(into, run.run_id)
            rows.insert(0, into.bound("agent_runs", run.run_id))
            changed = self._row(into, run.run_id)
            self._append(into, event, run.run_id, rows, changed.status)
            return changed

        return self._store.write(write)

    def _require_fence(self, into: Transaction, run: Run) -> None:
        """The first statement of a worker's write: the claim holds until the write has ended."""
        found = into.row(
            f"{_MINE}{self._store.locking}",
            (run.run_id, run.fence, run.epoch),
        )
        if found is None:
            raise Fenced(run.run_id)  # rolls the transaction back

    def _sealed_end(self, into: Transaction, run_id: str) -> list[dict[str, Json]]:
        """The signed receipt of a run that this transaction ends, or whose end it changes. Returns
        the rows that it wrote, bound."""
        run = self._row(into, run_id)
        if run.status not in ENDED:
            return []
        steps = into.rows(f"{_STEPS} WHERE run_id = ? ORDER BY step_index", (run_id,))
        recorded = tuple(map(step_from, steps))
        contracts = into.rows(f"{_REVISIONS} WHERE run_id = ? ORDER BY revision", (run_id,))
        revisions = tuple(Revision(*row) for row in contracts)
        receipt = run_receipt(run, recorded, revisions, into.signer)
        into.execute(
            "INSERT INTO run_receipts (receipt_id, run_id, sha256, envelope) VALUES (?, ?, ?, ?)",
            (receipt.receipt_id, run_id, receipt.sha256, receipt.encoded.decode()),
        )
        into.execute(
            "UPDATE agent_runs SET receipt_id = ? WHERE run_id = ?", (receipt.receipt_id, run_id)
        )
        return [into.bound("run_receipts", receipt.receipt_id)]

    def _claim_now(self, into: Transaction, run_id: str, worker: str | None) -> None:
        if worker is not None:
            into.lock_folder(run_id)
            into.execute(self._claim, (worker, self._now(), run_id))

    def _row(self, into: Transaction, run_id: str) -> Run:
        row = into.row(f"{_RUN} WHERE run_id = ?", (run_id,))
        assert row is not None  # noqa: S101 -- this transaction has written it
        return run_from(row)

    def _insert_contract(self, into: Transaction, run: Run, cause: str) -> dict[str, Json]:
        into.execute(
            "INSERT INTO run_contracts (run_id, revision, metadata, seal, cause, by_whom, at)"
            " VALUES (?, ?, ?, ?, ?, ?, ?)",
            (
                *(run.run_id, run.revision, run.metadata, run.seal),
                *(cause, run.requested_by, self._now()),
            ),
        )
        return into.bound("run_contracts", run.run_id, run.revision)

    def _insert_decision(
        self, into: Transaction, run_id: str, decision_hash: str, document: str
    ) -> dict[str, Json]:
        into.execute(
            "INSERT INTO run_decisions (run_id, decision_hash, document, at) VALUES (?, ?, ?, ?)"
            " ON CONFLICT DO NOTHING",
            (run_id, decision_hash, document, self._now()),
        )
        return into.bound("run_decisions", run_id, decision_hash)

    def _append(
        self,
        into: Transaction,
        event: str,
        run_id: str,
        rows: list[dict[str, Json]],
        status: RunStatus | None,
    ) -> None:
        into.append(
            {
                "v": VERSION,
                "kind": Kind.RUN,
                "ts": self._now(),
                "versions": {"actum": ACTUM_VERSION},
                "run_id": closed(run_id),
                "event": event,
                "status": None if status is None else status.value,
            },
            rows,
        )


def _insert_run(into: Transaction, run: Run) -> None:
    into.execute(
        f"INSERT INTO agent_runs ({', '.join(RUN_COLUMNS)}) VALUES ({_marks(RUN_COLUMNS)})",  # noqa: S608
        tuple(plain(run).values()),
    )


def _insert_step(into: Transaction, step: Step) -> None:
    into.execute(
        f"INSERT INTO agent_steps ({', '.join(STEP_COLUMNS)}) VALUES ({_marks(STEP_COLUMNS)})",  # noqa: S608
        tuple(plain(step).values()),
    )


def _marks(columns: Sequence[str]) -> str:
    return ", ".join("?" for _ in columns)
