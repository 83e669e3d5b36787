"""The row of an execution: open while it may run, closed for ever afterwards.

It ensures that one execution id starts at most one tool, and that a repeated request gets the
recorded answer. The row proves nothing; the receipt does. `store.writer` writes it.
"""

from __future__ import annotations

import json
import sqlite3

from actum.contract.canonical import sha256_bytes
from actum.contract.model import Json
from actum.contract.outcome import PROJECTIONS, Outcome
from actum.errors import EvidenceUnavailable, Refused
from actum.evidence.owner import is_alive
from actum.evidence.records.facts import Intent
from actum.store.database import Database
from actum.value import value


@value
class KnownExecution:
    """The stored state of an execution id."""

    execution_id: str
    identity_sha256: str
    contract_sha256: str
    trace_id: str
    session: str
    tool_id: str
    outcome: Outcome | None  #: ``None``: still open
    result: dict[str, Json] | None  #: as given to `seal`; ``None`` also if it was interrupted
    receipt_id: str | None
    started_at: str
    ended_at: str | None

    @property
    def may_have_run(self) -> bool:
        """Whether a tool may have been started, so that this id must not start another."""
        return _Found(self.outcome).may_have_run


@value
class OpenExecution:
    """A PENDING execution: still running if its process is `alive`, else interrupted."""

    execution_id: str
    tool_id: str
    session: str
    started_at: str
    alive: bool


class Executions:
    def __init__(self, database: Database) -> None:
        self._database = database

    def get(self, execution_id: str) -> KnownExecution | None:
        found = self._select("WHERE execution_id = ?", (execution_id,))
        return found[0] if found else None

    def of_session(self, session: str) -> tuple[KnownExecution, ...]:
        return self._select("WHERE session = ? ORDER BY started_at, execution_id", (session,))

    def open_executions(self) -> tuple[OpenExecution, ...]:
        """Every PENDING execution, oldest first."""
        rows = self._database.rows(
            "SELECT execution_id, tool_id, session, started_at, owner FROM executions"
            " WHERE state = 'PENDING' ORDER BY started_at, execution_id"
        )
        return tuple(
            OpenExecution(
                execution_id=execution_id,
                tool_id=tool_id,
                session=session,
                started_at=started_at,
                alive=is_alive(owner),
            )
            for execution_id, tool_id, session, started_at, owner in rows
        )

    def _select(self, where: str, parameters: tuple[str, ...]) -> tuple[KnownExecution, ...]:
        rows = self._database.rows(f"{_SELECT} {where}", parameters)
        return tuple(
            KnownExecution(
                execution_id=row[0],
                identity_sha256=row[1],
                contract_sha256=row[2],
                trace_id=row[3],
                session=row[4],
                tool_id=row[5],
                outcome=Outcome(row[6]) if row[6] else None,
                result=json.loads(row[7]) if row[7] else None,
                receipt_id=row[8],
                started_at=row[9],
                ended_at=row[10],
            )
            for row in rows
        )


@value
class Opening:
    """The input of recovery: the owning process, and the opening record."""

    owner: str
    document: bytes

    @property
    def sha256(self) -> str:
        return sha256_bytes(b"%s\n%s" % (self.owner.encode(), self.document))


def require_startable(cursor: sqlite3.Cursor, intent: Intent) -> None:
    """Refuse an id that has been started: of two simultaneous starts, the second."""
    found = _found(cursor, intent.execution_id)
    require_unstarted((found.outcome,) if found else None, intent)


def require_unstarted(found: tuple[str | None] | None, intent: Intent) -> None:
    """The same check on the result of `Entry.outcome_of`."""
    if found is not None and _Found(Outcome(found[0]) if found[0] else None).may_have_run:
        raise Refused(
            "EXECUTION_ID_REUSED",
            f"execution_id: {intent.execution_id} has been started already.",
            remedy="Ask for its result, or use a new execution_id.",
        )


def require_open(cursor: sqlite3.Cursor, intent: Intent) -> None:
    found = _found(cursor, intent.execution_id)
    if not (found and found.open):
        raise not_open(intent.execution_id)


def may_have_run(cursor: sqlite3.Cursor, execution_id: str) -> bool:
    """Whether an id may have started a tool. A refusal does not replace such a row."""
    found = _found(cursor, execution_id)
    return found is not None and found.may_have_run


def not_open(execution_id: str) -> EvidenceUnavailable:
    return EvidenceUnavailable(
        f"Execution {execution_id} is not open in the store, so it cannot be continued or closed.",
        remedy="Another process may have closed it as interrupted: look with `actum verify --all`.",
    )


@value(kw_only=False)
class _Found:
    outcome: Outcome | None

    @property
    def open(self) -> bool:
        return self.outcome is None

    @property
    def may_have_run(self) -> bool:
        return self.outcome is None or PROJECTIONS[self.outcome].tool_run is not None


_SELECT = """
SELECT execution_id, identity_sha256, contract_sha256, trace_id, session, tool_id, outcome,
    result_json, receipt_id, started_at, ended_at
FROM executions
"""


def _found(cursor: sqlite3.Cursor, execution_id: str) -> _Found | None:
    row = cursor.execute(
        "SELECT outcome FROM executions WHERE execution_id = ?", (execution_id,)
    ).fetchone()
    if row is None:
        return None
    return _Found(Outcome(row[0]) if row[0] else None)
