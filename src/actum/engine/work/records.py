"""What the store knows of work items: one row per run, its receipt, and the history of duplicates.

A run is written down, with the hash of the state that it froze, before anything of it starts, and
closed exactly once. The next process that finds a row whose own process is gone closes it: as a
success if its commit was decided, else as a failure.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from actum.contract.ids import new_id
from actum.contract.model import Json
from actum.engine.work import receipt as receipts
from actum.engine.work.admission import RunCapsule
from actum.engine.work.model import Metrics, RunResult, Status, WorkItem
from actum.engine.work.receipt import After, Before
from actum.evidence.audit import Kind, closed
from actum.evidence.facts import ACTUM_VERSION
from actum.evidence.log import Log
from actum.evidence.owner import current_owner, is_alive
from actum.evidence.receipt import Receipt
from actum.evidence.trace import rfc3339
from actum.evidence.work_findings import damaged_runs
from actum.store.database import Database
from actum.store.whole_file import write_whole
from actum.value import value

_COMMITTED = "SELECT run_id FROM work_runs WHERE status = 'success'"
#: An undo has no agent: an item of an agent that only has such an id is none.
_UNDONE_BY = f"{_COMMITTED} AND agent_sha256 = '' AND item_id = 'undo:' || ?"


@value
class LostRun:
    """A run that was opened by a process that is gone."""

    run_id: str
    item: WorkItem
    agent_sha256: str
    workspace: Path
    started_at: str
    before_hash: str | None  #: ``None``: it froze nothing, or version 0.1 opened it


@value
class KeptRun:
    run_id: str
    item: WorkItem
    workspace: Path
    status: Status | None  #: ``None`` while it runs
    result: RunResult | None


class WorkRecords:
    def __init__(self, database: Database, log: Log, home: Path) -> None:
        self._database = database
        self._log = log
        self.home = home

    def open(self, before: Before, state: str | None) -> None:
        """Write-ahead, on the disk when this returns. `state` is the hash of what the run froze;
        ``None`` if that could not be read, and then nothing runs."""
        with self._log.page() as page:
            page.append(_audit(before, "open", state, None, None))
            page.cursor.execute(
                "INSERT INTO work_runs (run_id, item_id, item, agent_sha256, workspace, state,"
                " before_hash, started_at, owner) VALUES (?, ?, ?, ?, ?, 'OPEN', ?, ?, ?)",
                (
                    before.run_id,
                    before.item.id,
                    json.dumps(before.item.document()),
                    before.agent_sha256,
                    str(before.workspace),
                    state,
                    rfc3339(before.started_at),
                    current_owner(),
                ),
            )

    def record(
        self, before: Before, after: After, result: RunResult, receipt: Receipt, script: str | None
    ) -> dict[str, Json]:
        """Everything that closing a run takes, as data that survives a crash in an intent."""
        return {
            "run_id": before.run_id,
            "run_hash": after.run_hash,
            "before_hash": after.before_hash,
            "result": result.document(),
            "receipt": receipt.encoded.decode(),
            "receipt_sha256": receipt.sha256,
            "script": script,
            "ended_at": rfc3339(after.ended_at),
            "audit": _audit(
                before, result.status.value, after.before_hash, result.output_hash, receipt.sha256
            ),
        }

    def close(self, record: Mapping[str, Any]) -> None:
        """Close a run. Done already: only its files are written again."""
        result = record["result"]
        row = self._database.row(
            "SELECT state FROM work_runs WHERE run_id = ?", (record["run_id"],)
        )
        if row is not None and row[0] == "OPEN":
            with self._log.page() as page:
                seq = page.append(dict(record["audit"]))
                page.cursor.execute(
                    "INSERT INTO work_receipts (receipt_id, run_id, final_seq, envelope, sha256)"
                    " VALUES (?, ?, ?, ?, ?)",
                    (
                        result["receipt_id"],
                        record["run_id"],
                        seq,
                        record["receipt"],
                        record["receipt_sha256"],
                    ),
                )
                page.cursor.execute(
                    "UPDATE work_runs SET state = 'FINAL', status = ?, run_hash = ?,"
                    " before_hash = ?, after_hash = ?, receipt_id = ?, result = ?, ended_at = ?"
                    " WHERE run_id = ?",
                    (
                        result["status"],
                        record["run_hash"],
                        record["before_hash"],
                        result["output_hash"],
                        result["receipt_id"],
                        json.dumps(result),
                        record["ended_at"],
                        record["run_id"],
                    ),
                )
        self._hand_out(record)

    def _hand_out(self, record: Mapping[str, Any]) -> None:
        """Receipt and script as files: copies, but whole ones after a power cut too."""
        result = record["result"]
        folder = receipts.folder_of(self.home, result["receipt_id"])
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(folder / receipts.FILE_NAME, record["receipt"].encode(), synced=True)
        if record["script"] is not None:
            path = Path(result["proof_script"])
            write_whole(path, record["script"].encode(), synced=True)
            path.chmod(0o700)

    def in_history(self, run_hash: str) -> bool:
        return self._any_stands(f"{_COMMITTED} AND run_hash = ?", (run_hash,))

    def _any_stands(self, runs: str, parameters: tuple[str, ...]) -> bool:
        """Whether one of these committed runs was not undone, or its undo was undone."""
        return any(
            not self._any_stands(_UNDONE_BY, (row[0],))
            for row in self._database.rows(runs, parameters)
        )

    def undo_of(self, run_id: str) -> str | None:
        """The receipt by which a run was last taken back."""
        row = self._database.row(
            "SELECT receipt_id FROM work_runs WHERE status = 'success' AND agent_sha256 = ''"
            " AND item_id = 'undo:' || ? ORDER BY ended_at DESC LIMIT 1",
            (run_id,),
        )
        return None if row is None else str(row[0])

    def missing(self, needs: Iterable[str], workspace: Path) -> tuple[str, ...]:
        """Of these items, the ones without a committed run here that still stands."""
        return tuple(
            name
            for name in needs
            if not self._any_stands(
                f"{_COMMITTED} AND item_id = ? AND workspace = ?", (name, str(workspace))
            )
        )

    def of_receipt(self, receipt_id: str) -> str | None:
        """The run that a receipt is about."""
        row = self._database.row(
            "SELECT run_id FROM work_receipts WHERE receipt_id = ?", (receipt_id,)
        )
        return None if row is None else str(row[0])

    def last_success(self, workspace: Path) -> tuple[str, str] | None:
        """(after hash, digest of the receipt) of the newest committed run on a workspace."""
        row = self._database.row(
            "SELECT after_hash, sha256 FROM work_runs JOIN work_receipts USING (run_id)"
            " WHERE workspace = ? AND status = 'success' ORDER BY final_seq DESC LIMIT 1",
            (str(workspace),),
        )
        return None if row is None else (row[0], row[1])

    def was_committed_since(self, run_id: str) -> bool:
        """Whether a run on the same workspace was committed after this one was opened."""
        # A run is first named by the audit record that opens it.
        row = self._database.row(
            "SELECT 1 FROM work_runs AS this JOIN work_runs AS other USING (workspace)"
            " JOIN work_receipts ON work_receipts.run_id = other.run_id"
            " WHERE this.run_id = ?1 AND other.status = 'success' AND final_seq >"
            " (SELECT min(seq) FROM audit WHERE instr(record, CAST(?1 AS BLOB)) > 0) LIMIT 1",
            (run_id,),
        )
        return row is not None

    def find(self, run_id: str) -> KeptRun | None:
        row = self._database.row(
            "SELECT run_id, item, workspace, status, result FROM work_runs WHERE run_id = ?",
            (run_id,),
        )
        if row is None:
            return None
        return KeptRun(
            run_id=row[0],
            item=WorkItem.parse(row[1]),
            workspace=Path(row[2]),
            status=Status(row[3]) if row[3] else None,
            result=RunResult.read(json.loads(row[4])) if row[4] else None,
        )

    def before_hash(self, run_id: str) -> str | None:
        row = self._database.row("SELECT before_hash FROM work_runs WHERE run_id = ?", (run_id,))
        return None if row is None else row[0]

    def successes_since(self, run_id: str) -> tuple[str, ...]:
        """Committed runs on the same workspace, from the newest back to `run_id` itself."""
        rows = self._database.rows(
            "SELECT later.run_id FROM work_runs AS this"
            " JOIN work_receipts AS its ON its.run_id = this.run_id"
            " JOIN work_runs AS later ON later.workspace = this.workspace"
            " JOIN work_receipts AS theirs ON theirs.run_id = later.run_id"
            " WHERE this.run_id = ? AND later.status = 'success'"
            # What was accepted as it was changed no file.
            " AND NOT (later.agent_sha256 = '' AND later.item_id LIKE 'accept:%')"
            " AND theirs.final_seq >= its.final_seq ORDER BY theirs.final_seq DESC",
            (run_id,),
        )
        return tuple(row[0] for row in rows)

    def lost(self) -> tuple[LostRun, ...]:
        """Runs whose process is gone."""
        rows = self._database.rows(
            "SELECT run_id, item, agent_sha256, workspace, started_at, before_hash, owner"
            " FROM work_runs WHERE state = 'OPEN'"
        )
        return tuple(
            LostRun(
                run_id=row[0],
                item=WorkItem.parse(row[1]),
                agent_sha256=row[2],
                workspace=Path(row[3]),
                started_at=row[4],
                before_hash=row[5],
            )
            for row in rows
            if not is_alive(row[6])
        )

    def damaged(self, run_id: str | None = None) -> list[tuple[str, str, str]]:
        """(run, receipt, what is wrong) for damage that no person has accepted."""
        return damaged_runs(self._database, run_id)

    def envelope(self, receipt_id: str) -> dict[str, Json] | None:
        row = self._database.row(
            "SELECT envelope FROM work_receipts WHERE receipt_id = ?", (receipt_id,)
        )
        if row is None:
            return None
        decoded: dict[str, Json] = json.loads(row[0])
        return decoded


def nothing_done(
    status: Status,
    reason: str,
    state: str,
    home: Path,
    *,
    receipt_id: str | None = None,
    metrics: Metrics | None = None,
    test_output: str | None = None,
) -> RunResult:
    """The result of a run that left the state as it was."""
    receipt_id = receipt_id or new_id()
    denied = status is Status.DENIED
    return RunResult(
        status=status,
        receipt_id=receipt_id,
        receipt_path=str(receipts.folder_of(home, receipt_id) / receipts.FILE_NAME),
        output_hash=state,
        artifact_hashes={},
        metrics=metrics or Metrics(),
        test_output=test_output,
        error=None if denied else reason,
        denial_reason=reason if denied else None,
    )


def interrupted(before_hash: str, ended_at: datetime) -> After:
    return After(
        before_hash=before_hash,
        base_hash=before_hash,
        capsule=RunCapsule(),
        run_hash="",
        engine="none",
        cap_bytes=0,
        ended_at=ended_at,
    )


def _audit(
    before: Before, status: str, state: str | None, after: str | None, receipt: str | None
) -> dict[str, Json]:
    return {
        "v": 1,
        "kind": Kind.WORK,
        "ts": rfc3339(before.started_at),
        "versions": {"actum": ACTUM_VERSION},
        "run_id": before.run_id,
        "work_item_id": closed(before.item.id),
        "agent_id": before.item.agent_id,
        "item_sha256": before.item.sha256,
        "agent_sha256": before.agent_sha256,
        "status": status,
        "before_hash": state,
        "after_hash": after,
        "receipt_sha256": receipt,
    }
