"""Ids by their first characters: which recorded ids begin with a text.

A whole id always means itself, also if other ids begin with it: requesters choose the ids of
executions and references, and could choose the beginning of another id. Rows are never removed, so
the beginning of an id that a person has read never comes to mean another one: at worst it becomes
ambiguous. Nothing here writes, and nothing is decided by a prefix.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import StrEnum

from actum.store.snapshot import Reader
from actum.value import value

LEAST = 4  #: characters of a prefix
_MOST = 20  #: candidates of one kind
_PREFIX = re.compile(rf"[A-Za-z0-9._:@+-]{{{LEAST},}}")


class IdKind(StrEnum):
    EXECUTION = "execution"
    RECEIPT = "receipt"
    WORK_RECEIPT = "work receipt"
    WORK_RUN = "work run"
    RUN = "run"
    RUN_RECEIPT = "run receipt"
    EVIDENCE = "evidence"
    TRACE = "trace"
    REQUEST = "approval request"
    STANDING_APPROVAL = "standing approval"


@value(kw_only=False)
class _Place:
    table: str
    column: str
    #: Columns of the table with texts that mean a row as a whole, never by a prefix.
    references: tuple[str, ...] = ()


_PLACES = {
    IdKind.EXECUTION: _Place("executions", "execution_id"),
    IdKind.RECEIPT: _Place("receipts", "receipt_id"),
    IdKind.WORK_RECEIPT: _Place("work_receipts", "receipt_id"),
    IdKind.WORK_RUN: _Place("work_runs", "run_id"),
    IdKind.RUN: _Place("agent_runs", "run_id"),
    IdKind.RUN_RECEIPT: _Place("run_receipts", "receipt_id"),
    IdKind.EVIDENCE: _Place("evidence_records", "evidence_id", ("evidence_ref",)),
    IdKind.TRACE: _Place("trace_events", "trace_id"),
    IdKind.REQUEST: _Place("approvals", "request_id"),
    IdKind.STANDING_APPROVAL: _Place("standing_approvals", "approval_id"),
}


@value(kw_only=False)
class Candidate:
    kind: IdKind
    full: str


def beginning_with(database: Reader, text: str, kinds: Iterable[IdKind]) -> tuple[Candidate, ...]:
    """The ids of these kinds that `text` may mean: itself if it is one, else those that begin with
    it. Nothing if it is too short."""
    wanted = tuple(kinds)
    if not _PREFIX.fullmatch(text) or any(_is_whole(database, text, kind) for kind in wanted):
        return ()
    return tuple(
        Candidate(kind, row[0])
        for kind in wanted
        # Names of tables and columns are constants.
        for row in database.rows(
            f"SELECT DISTINCT {_PLACES[kind].column} FROM {_PLACES[kind].table}"  # noqa: S608
            f" WHERE {_PLACES[kind].column} > ? AND {_PLACES[kind].column} < ?"
            f" ORDER BY {_PLACES[kind].column} LIMIT {_MOST}",
            (text, f"{text}\U0010ffff"),
        )
    )


def _is_whole(database: Reader, text: str, kind: IdKind) -> bool:
    place = _PLACES[kind]
    return any(
        database.row(f"SELECT 1 FROM {place.table} WHERE {column} = ? LIMIT 1", (text,))  # noqa: S608
        for column in (place.column, *place.references)
    )
