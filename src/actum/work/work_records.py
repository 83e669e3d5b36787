"""Writes the records of work items: one row per run, and its receipt.

A run is recorded, with the hash of the state that it froze, before anything of it starts, and
closed exactly once. The next process that finds an open row of a dead process closes it: as a
success if its commit was decided, else as a failure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from actum.contract.canonical import sha256_bytes
from actum.contract.ids import new_id
from actum.contract.model import Json
from actum.evidence.log import Log
from actum.evidence.owner import current_owner
from actum.evidence.records.audit import VERSION, Kind, closed
from actum.evidence.records.bound_rows import ROWS, bound_now
from actum.evidence.records.facts import ACTUM_VERSION
from actum.evidence.records.receipt import Receipt
from actum.evidence.records.trace import rfc3339
from actum.evidence.records.work_names import BACKWARD, FILES, MET
from actum.store.database import Database
from actum.store.whole_file import write_whole
from actum.work import work_receipt as receipts
from actum.work.admission import RunCapsule
from actum.work.history import WorkHistory
from actum.work.model import Metrics, RunResult, Status
from actum.work.work_receipt import After, Before

_TABLE = "work_runs"


class WorkRecords(WorkHistory):
    """The records of work items, and the only writer of them."""

    def __init__(self, database: Database, log: Log, home: Path) -> None:
        super().__init__(database.tables)
        self._log = log
        self.home = home

    def open(self, before: Before, state: str | None) -> None:
        """Record a run ahead of its start; durable when this returns. `state` is the hash of the
        frozen state; ``None`` if that could not be read, and then nothing runs."""
        with self._log.page() as page:
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
            row = bound_now(page.cursor, _TABLE, before.run_id)
            page.append({**_audit(before, "open", state, None, None), ROWS: [row]})

    def record(
        self,
        before: Before,
        after: After,
        result: RunResult,
        receipt: Receipt,
        *,
        script: str | None = None,
        kept: str | None = None,
    ) -> dict[str, Json]:
        """Everything needed to close a run, as data that survives a crash in an intent.

        `kept` is the digest of the file that describes how to undo the run.
        """
        files = {receipts.FILE_NAME: receipt.sha256}
        if script is not None:
            name = Path(result.proof_script or "").name
            files[name] = sha256_bytes(script.encode())
        if kept is not None:
            files[BACKWARD] = kept
        audit = _audit(
            before, result.status.value, after.before_hash, result.output_hash, receipt.sha256
        )
        return {
            "run_id": before.run_id,
            "run_hash": after.run_hash,
            "before_hash": after.before_hash,
            "result": result.document(),
            "receipt": receipt.encoded.decode(),
            "receipt_sha256": receipt.sha256,
            "script": script,
            "ended_at": rfc3339(after.ended_at),
            "audit": {**audit, FILES: files},
        }

    def close(self, record: Mapping[str, Any]) -> None:
        """Close a run. If it is closed already, only its files are written again."""
        result = record["result"]
        row = self._database.row(
            "SELECT state, receipt_id FROM work_runs WHERE run_id = ?", (record["run_id"],)
        )
        if row == ("FINAL", result["receipt_id"]):
            self._hand_out(record)
        if row is None or row[0] != "OPEN":
            return
        with self._log.page() as page:
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
            seq = page.append(
                {
                    **_with_met(record),
                    # This version also closes intents of an older version.
                    "v": VERSION,
                    ROWS: [bound_now(page.cursor, _TABLE, record["run_id"])],
                }
            )
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
            # Before the commit: every closed run has its files.
            self._hand_out(record)

    def _hand_out(self, record: Mapping[str, Any]) -> None:
        """Write receipt and script as files: copies, complete even after a power cut."""
        result = record["result"]
        folder = receipts.folder_of(self.home, result["receipt_id"])
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(folder / receipts.FILE_NAME, record["receipt"].encode(), synced=True)
        if record["script"] is not None:
            path = Path(result["proof_script"])
            write_whole(path, record["script"].encode(), synced=True)
            path.chmod(0o700)


def _with_met(record: Mapping[str, Any]) -> dict[str, Json]:
    """The audit record, with the digests of people's edits that recovery stored (`Space`)."""
    audit: dict[str, Json] = dict(record["audit"])
    if record.get(MET):
        met = {f"{MET}/{name}": digest for name, digest in record[MET].items()}
        audit[FILES] = {**audit.get(FILES, {}), **met}
    return audit


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
    """The result of a run that changed nothing."""
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
        "v": VERSION,
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
