"""Receipts of executions and of work items in one list, newest first, by what they say.

A summary is made from the signed statement, not from other tables. The rows are read in pages, so
that a long history costs as much as is looked at. Signatures are not checked here: `actum verify`
does.
"""

from __future__ import annotations

import base64
import heapq
import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

from actum.contract.model import Json
from actum.store.snapshot import Reader
from actum.value import value

EXECUTION = "execution"
WORK_ITEM = "work item"
_PAGE = 200
_SELECT = {
    EXECUTION: "SELECT rowid, receipt_id, execution_id, final_seq, envelope FROM receipts",
    WORK_ITEM: "SELECT rowid, receipt_id, run_id, final_seq, envelope FROM work_receipts",
}


@value
class ReceiptSummary:
    """One receipt, as a list shows it."""

    kind: str  #: EXECUTION or WORK_ITEM
    receipt_id: str
    about: str  #: the execution, or the run of the work item
    seq: int  #: number of the audit record that names the receipt
    tool_id: str | None  #: of an execution
    work_item: str | None  #: of a work item: its id in the request
    outcome: str  #: of a work item, its status
    reason_codes: tuple[str, ...]
    by: str  #: who requested it; of a work item, its agent
    started: str
    finished: str
    duration_ms: int
    denials: int
    parent_receipt: str | None  #: of an execution in a work item: the item's receipt

    def document(self) -> dict[str, Json]:
        own = {
            "kind": self.kind,
            "receipt_id": self.receipt_id,
            "outcome": self.outcome,
            "by": self.by,
            "started": self.started,
            "finished": self.finished,
            "duration_ms": self.duration_ms,
        }
        if self.kind == WORK_ITEM:
            return {**own, "run_id": self.about, "work_item": self.work_item}
        return {
            **own,
            "execution_id": self.about,
            "tool_id": self.tool_id,
            "reason_codes": list(self.reason_codes),
            "denials": self.denials,
            "parent_receipt": self.parent_receipt,
        }


@value
class Wanted:
    """Which receipts a list has; what is ``None`` or empty does not matter."""

    tool_ids: frozenset[str] = frozenset()
    outcomes: frozenset[str] = frozenset()
    since: str | None = None  #: RFC 3339 in UTC, compared with the end
    until: str | None = None
    by: str | None = None  #: the whole name, or what follows its `user:`
    work_items_only: bool = False
    #: Receipt, run or id of a work item: its receipts, and those of the executions in it.
    work_item: str | None = None


def summaries(database: Reader, wanted: Wanted, limit: int) -> tuple[ReceiptSummary, ...]:
    """The newest receipts that fit, newest first."""
    every = heapq.merge(
        *(_newest_first(database, kind) for kind in _SELECT), key=lambda each: -each.seq
    )
    return tuple(islice(_fitting(every, wanted), limit))


def _fitting(every: Iterator[ReceiptSummary], wanted: Wanted) -> Iterator[ReceiptSummary]:
    items: set[str] = set()  #: receipts of the wanted work item; theirs come before their parts
    for each in every:
        if wanted.work_item in (each.receipt_id, each.about, each.work_item) and (
            each.kind == WORK_ITEM
        ):
            items.add(each.receipt_id)
        if (
            (not wanted.work_items_only or each.kind == WORK_ITEM)
            and (
                wanted.work_item is None or each.receipt_id in items or each.parent_receipt in items
            )
            and (not wanted.tool_ids or each.tool_id in wanted.tool_ids)
            and (not wanted.outcomes or each.outcome in wanted.outcomes)
            and (wanted.since is None or each.finished >= wanted.since)
            and (wanted.until is None or each.finished < wanted.until)
            and (wanted.by is None or wanted.by in (each.by, each.by.removeprefix("user:")))
        ):
            yield each


def _newest_first(database: Reader, kind: str) -> Iterator[ReceiptSummary]:
    before: int | None = None
    while True:
        where, parameters = ("", ()) if before is None else (" WHERE rowid < ?", (before,))
        rows = database.rows(
            f"{_SELECT[kind]}{where} ORDER BY rowid DESC LIMIT {_PAGE}", parameters
        )
        yield from (summary_of(kind, *row[1:]) for row in rows)
        if len(rows) < _PAGE:
            return
        before = rows[-1][0]


def summary_of(kind: str, receipt_id: str, about: str, seq: int, envelope: str) -> ReceiptSummary:
    payload = json.loads(envelope)["payload"]
    predicate: dict[str, Any] = json.loads(base64.b64decode(payload))["predicate"]
    time = predicate["time"]
    if kind == WORK_ITEM:
        return ReceiptSummary(
            kind=kind,
            receipt_id=receipt_id,
            about=about,
            seq=seq,
            tool_id=None,
            work_item=predicate["work_item"]["id"],
            outcome=predicate["status"],
            reason_codes=(),
            by=predicate["work_item"]["agent_id"],
            started=time["started"],
            finished=time["finished"],
            duration_ms=predicate["metrics"].get("execution_time_ms", 0),
            denials=0,
            parent_receipt=None,
        )
    return ReceiptSummary(
        kind=kind,
        receipt_id=receipt_id,
        about=about,
        seq=seq,
        tool_id=predicate["tool"]["id"],
        work_item=None,
        outcome=predicate["outcome"],
        reason_codes=tuple(predicate["reason_codes"]),
        by=predicate["requested_by"],
        started=time["started"],
        finished=time["finished"],
        duration_ms=time["duration_ms"],
        denials=int((predicate.get("denials") or {}).get("count", 0)),
        parent_receipt=predicate.get("parent_receipt"),
    )
