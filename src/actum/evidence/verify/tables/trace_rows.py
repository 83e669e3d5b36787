"""`trace_events`: the events of each receipt, together, in order, and as they were signed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import itemgetter
from typing import Any

from actum.contract.canonical import sha256_bytes
from actum.evidence.records.encoding import encoded
from actum.evidence.traces import FIELDS
from actum.evidence.verify.findings import Finding, difference, guarded, judged
from actum.evidence.verify.tables.receipt_rows import Signed, SignedTrace
from actum.store.snapshot import Snapshot

_COLUMNS = ("seq", "receipt_id", *FIELDS)
_receipt = itemgetter(1)


def trace_findings(database: Snapshot, signed: Signed) -> Iterator[Finding]:
    """Every event, and that none is missing."""
    numbers = _Numbers()
    before = -1
    rows = numbers.watched(database.scan("trace_events", _COLUMNS))
    for receipt_id, group in groupby(rows, key=_receipt):
        events = tuple(group)
        expected = signed.traces.pop(receipt_id, None)
        if expected is None:
            subject, first = f"trace of {events[0][3]}", events[0][0]
            detail = f"trace_events.receipt_id: no receipt signs event {first}, or not at its place"
            yield Finding(subject, "receipt", False, detail)
            continue
        subject = f"trace of {expected.execution_id}"
        yield from guarded(subject, "events", _events_findings(subject, events, expected))
        if expected.place < before:
            detail = "trace_events.seq: its events come behind those of a later execution"
            yield Finding(subject, "order", False, detail)
        before = max(before, expected.place)
    for left in signed.traces.values():
        detail = f"trace_events: all {left.count} events are gone; its receipt signs them"
        yield Finding(f"trace of {left.execution_id}", "events", False, detail)
    yield judged("trace events", "order", not numbers.gap, numbers.gap)


class _Numbers:
    """Checks the numbers of events as they pass: 1, 2, 3 without a gap."""

    def __init__(self) -> None:
        self.gap = ""

    def watched(self, rows: Iterable[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
        for due, row in enumerate(rows, start=1):
            if row[0] != due and not self.gap:
                self.gap = difference("trace_events.seq", due, row[0])
            yield row


def _events_findings(
    subject: str, events: tuple[tuple[Any, ...], ...], expected: SignedTrace
) -> Iterator[Finding]:
    if len(events) != expected.count:
        differs = difference("trace_events: number of events", expected.count, len(events))
        yield Finding(subject, "events", False, differs)
        return
    for seq, _, _, execution_id, *_ in events:
        if execution_id != expected.execution_id:
            where = f"trace_events.execution_id of event {seq}"
            differs = difference(where, expected.execution_id, execution_id)
            yield Finding(subject, "events", False, differs)
            return
    documents = []
    for seq, _, *values in events:
        *short, data = values
        parsed = json.loads(data)
        if encoded(parsed).decode() != data:
            detail = f"trace_events.data of event {seq} is not written as it was"
            yield Finding(subject, "events", False, detail)
            return
        documents.append(dict(zip(FIELDS, (*short, parsed), strict=True)))
    digest = sha256_bytes(encoded(documents))
    differs = difference(
        f"SHA-256 of trace_events {events[0][0]} to {events[-1][0]}", expected.sha256, digest
    )
    yield judged(subject, "events", digest == expected.sha256, differs)
