"""Reads the records of work items: runs, receipts and resulting states. Writes nothing."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from pathlib import Path

from actum.contract.model import Json
from actum.evidence.owner import is_alive
from actum.evidence.verify.work_findings import damaged_runs
from actum.store.snapshot import Reader
from actum.value import value
from actum.work.model import RunResult, Status, WorkItem

_COMMITTED = "SELECT run_id FROM work_runs WHERE status = 'success'"
#: An undo has no agent: an item with such an id that has an agent is not an undo.
_UNDONE_BY = f"{_COMMITTED} AND agent_sha256 = '' AND item_id = 'undo:' || ?"


@value
class LostRun:
    """An open run whose process has ended."""

    run_id: str
    item: WorkItem
    agent_sha256: str
    workspace: Path
    started_at: str
    before_hash: str | None  #: ``None``: it froze no state, or version 0.1 opened it


@value
class KeptRun:
    run_id: str
    item: WorkItem
    workspace: Path
    status: Status | None  #: ``None`` while it runs
    result: RunResult | None


class WorkHistory:
    def __init__(self, database: Reader) -> None:
        self._database = database

    def in_history(self, run_hash: str) -> bool:
        return self._any_stands(f"{_COMMITTED} AND run_hash = ?", (run_hash,))

    def _any_stands(self, runs: str, parameters: tuple[str, ...]) -> bool:
        """Whether one of these committed runs was not undone, or its undo was undone."""
        return any(
            not self._any_stands(_UNDONE_BY, (row[0],))
            for row in self._database.rows(runs, parameters)
        )

    def stands(self, run_id: str) -> bool:
        """Whether a run was committed and not undone since."""
        return self._any_stands(f"{_COMMITTED} AND run_id = ?", (run_id,))

    def undo_of(self, run_id: str) -> str | None:
        """The receipt of the last undo of a run."""
        row = self._database.row(
            "SELECT receipt_id FROM work_runs WHERE status = 'success' AND agent_sha256 = ''"
            " AND item_id = 'undo:' || ? ORDER BY ended_at DESC LIMIT 1",
            (run_id,),
        )
        return None if row is None else str(row[0])

    def missing(self, needs: Iterable[str], workspace: Path) -> tuple[str, ...]:
        """Of these items, those without a committed run here that was not undone."""
        return tuple(
            name
            for name in needs
            if not self._any_stands(
                f"{_COMMITTED} AND item_id = ? AND workspace = ?", (name, str(workspace))
            )
        )

    def states_of(self, run_id: str) -> tuple[str | None, str | None]:
        """The state before a run, and after it."""
        row = self._database.row(
            "SELECT before_hash, after_hash FROM work_runs WHERE run_id = ?", (run_id,)
        )
        return (None, None) if row is None else (row[0], row[1])

    def receipt_sha256(self, run_id: str) -> str | None:
        row = self._database.row("SELECT sha256 FROM work_receipts WHERE run_id = ?", (run_id,))
        return None if row is None else str(row[0])

    def was_interrupted(self, run_id: str) -> bool:
        """Whether recovery closed the run because its process had died. Its receipt says so: only
        such a run had no space for changes."""
        row = self._database.row("SELECT envelope FROM work_receipts WHERE run_id = ?", (run_id,))
        if row is None:
            return False
        payload = json.loads(base64.b64decode(json.loads(row[0])["payload"]))
        return bool(payload["predicate"]["isolation"]["cap_bytes"] == 0)

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

    def leads(self, workspace: Path, start: str, end: str) -> bool:
        """Whether the newest committed runs lead from one state to another, step by step."""
        for before, after in self._database.rows(
            "SELECT before_hash, after_hash FROM work_runs JOIN work_receipts USING (run_id)"
            " WHERE workspace = ? AND status = 'success' ORDER BY final_seq DESC",
            (str(workspace),),
        ):
            if after != end:
                return False
            if before == start:
                return True
            end = before
        return False

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
            # An acceptance changed no file.
            " AND NOT (later.agent_sha256 = '' AND later.item_id LIKE 'accept:%')"
            " AND theirs.final_seq >= its.final_seq ORDER BY theirs.final_seq DESC",
            (run_id,),
        )
        return tuple(row[0] for row in rows)

    def standing_since(self, run_id: str) -> tuple[str, ...]:
        """Items committed on the same workspace after this run and not undone, the oldest first.
        Undos and acceptances, which have no agent, are none."""
        rows = self._database.rows(
            "SELECT later.run_id FROM work_runs AS this"
            " JOIN work_receipts AS its ON its.run_id = this.run_id"
            " JOIN work_runs AS later ON later.workspace = this.workspace"
            " JOIN work_receipts AS theirs ON theirs.run_id = later.run_id"
            " WHERE this.run_id = ? AND later.status = 'success' AND later.agent_sha256 <> ''"
            " AND theirs.final_seq > its.final_seq ORDER BY theirs.final_seq",
            (run_id,),
        )
        return tuple(row[0] for row in rows if self.stands(row[0]))

    def lost(self) -> tuple[LostRun, ...]:
        """Open runs whose process has ended."""
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
        """(run, receipt, damage) for damage that no person has accepted."""
        return damaged_runs(self._database, run_id)

    def envelope(self, receipt_id: str) -> dict[str, Json] | None:
        row = self._database.row(
            "SELECT envelope FROM work_receipts WHERE receipt_id = ?", (receipt_id,)
        )
        if row is None:
            return None
        decoded: dict[str, Json] = json.loads(row[0])
        return decoded
