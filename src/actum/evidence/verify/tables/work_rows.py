"""`work_receipts`, and the columns of `work_runs` that they sign.

A receipt repeats most columns of its run. The rest (result, owner) is bound by the record that
closed the run, see `logged_rows`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from actum.contract.canonical import sha256_bytes, sha256_json
from actum.contract.model import Json
from actum.evidence.records.audit import closed
from actum.evidence.records.work_names import FILES
from actum.evidence.verify.findings import Finding, difference, guarded, judged
from actum.evidence.verify.log_findings import LogReading
from actum.evidence.verify.work_files import ClosedRun
from actum.evidence.verify.work_findings import content_findings, read_work_receipt
from actum.store.keys import PublicKey
from actum.store.snapshot import Snapshot

_COLUMNS = ("receipt_id", "run_id", "final_seq", "envelope", "sha256")
_RUN = (
    *("item_id", "item", "agent_sha256", "workspace", "state", "status", "run_hash"),
    *("before_hash", "after_hash", "receipt_id", "result", "started_at", "ended_at"),
)
_SELECT_RUN = f"SELECT {', '.join(_RUN)} FROM work_runs WHERE run_id = ?"  # noqa: S608
#: An acceptance has no agent: an item of an agent that only has such an id is none.
_ACCEPTANCES = (
    "SELECT item_id FROM work_runs WHERE status = 'success' AND agent_sha256 = ''"
    " AND item_id LIKE 'accept:%'"
)


def work_findings(
    database: Snapshot,
    reading: LogReading,
    trusted: Mapping[str, PublicKey],
    runs: dict[str, ClosedRun],
) -> Iterator[Finding]:
    """Every work receipt and its run. Fills `runs`, and takes closings from `reading`."""
    accepted = {str(item).removeprefix("accept:") for (item,) in database.rows(_ACCEPTANCES)}
    before = 0
    for values in database.scan("work_receipts", _COLUMNS):
        row = dict(zip(_COLUMNS, values, strict=True))
        subject = f"work receipt {row['receipt_id']}"
        is_accepted = row["run_id"] in accepted
        found = _row_findings(row, database, reading, trusted, runs, accepted=is_accepted)
        yield from guarded(subject, "signature", found)
        if isinstance(row["final_seq"], int):
            if row["final_seq"] <= before:
                detail = "work_receipts.final_seq: its row comes behind that of a later run"
                yield Finding(subject, "order", False, detail)
            before = max(before, row["final_seq"])
    yield from _lost_runs(database, reading)


def _row_findings(
    row: dict[str, Any],
    database: Snapshot,
    reading: LogReading,
    trusted: Mapping[str, PublicKey],
    runs: dict[str, ClosedRun],
    *,
    accepted: bool,
) -> Iterator[Finding]:
    subject, record = f"work receipt {row['receipt_id']}", f"audit record {row['final_seq']}"
    digest = sha256_bytes(row["envelope"].encode("utf-8", "surrogatepass"))
    differs = difference("work_receipts.sha256", digest, row["sha256"])
    yield judged(subject, "stored bytes", digest == row["sha256"], differs)
    closing = reading.facts.closings.get(row["final_seq"])
    if closing is None:
        detail = f"work_receipts.final_seq: {record}, which closed it, is gone or closes nothing"
        yield Finding(subject, "audit record", False, detail)
    elif closing.receipt_sha256 != row["sha256"]:
        differs = difference("work_receipts.sha256", closing.receipt_sha256, row["sha256"])
        yield Finding(record, "receipt", False, differs)
    else:
        del reading.facts.closings[row["final_seq"]]
    predicate: Any = read_work_receipt(json.loads(row["envelope"]), trusted)
    yield Finding(subject, "signature", True)
    wrong = [
        difference(f"work_receipts.{name}", predicate[name], row[name])
        for name in ("receipt_id", "run_id")
        if predicate[name] != row[name]
    ]
    yield judged(subject, "place", not wrong, "; ".join(wrong))
    yield from content_findings(subject, predicate, accepted=accepted)
    yield _run_finding(subject, predicate, database)
    yield _record_finding(subject, predicate, row["final_seq"], reading)
    logged = reading.facts.work.get(predicate["run_id"], (0, {}))[1]
    runs[predicate["run_id"]] = ClosedRun(
        run_id=predicate["run_id"],
        receipt_id=predicate["receipt_id"],
        receipt_sha256=digest,
        workspace=predicate["workspace"],
        committed=predicate["status"] == "success"
        and predicate["isolation"]["engine"] not in ("accept", "none"),
        files=logged.get(FILES),
    )


def _run_finding(subject: str, predicate: Mapping[str, Any], database: Snapshot) -> Finding:
    found = database.row(_SELECT_RUN, (predicate["run_id"],))
    if found is None:
        detail = f"work_runs: the row of run {predicate['run_id']} is gone"
        return Finding(subject, "run", False, detail)
    row = dict(zip(_RUN, found, strict=True))
    expected = {
        "item_id": predicate["work_item"]["id"],
        "agent_sha256": predicate["agent_sha256"],
        "workspace": predicate["workspace"],
        "state": "FINAL",
        **{name: predicate[name] for name in ("status", "run_hash", "before_hash", "after_hash")},
        "receipt_id": predicate["receipt_id"],
        "started_at": predicate["time"]["started"],
        "ended_at": predicate["time"]["finished"],
    }
    wrong = [
        difference(f"work_runs.{name}", value, row[name])
        for name, value in expected.items()
        if row[name] != value
    ]
    item = sha256_json(json.loads(row["item"]))
    if item != predicate["work_item"]["sha256"]:
        wrong.append(difference("digest of work_runs.item", predicate["work_item"]["sha256"], item))
    wrong += _result_differences(json.loads(row["result"]), predicate)
    return judged(subject, "run", not wrong, "; ".join(wrong))


def _result_differences(result: Mapping[str, Any], predicate: Mapping[str, Any]) -> list[str]:
    """The part of the result that the receipt repeats."""
    tests = predicate["tests"] or {}
    reason = result.get("error") or result.get("denial_reason")
    expected = {
        "status": (predicate["status"], result.get("status")),
        "receipt_id": (predicate["receipt_id"], result.get("receipt_id")),
        "output_hash": (predicate["after_hash"], result.get("output_hash")),
        "metrics": (predicate["metrics"], result.get("metrics")),
        "reason": (predicate["reason_sha256"], _sha256(reason)),
    }
    if tests:
        expected["test_output"] = (tests["output_sha256"], _sha256(result.get("test_output")))
    return [
        difference(f"{name} of work_runs.result", wanted, found)
        for name, (wanted, found) in expected.items()
        if wanted != found
    ]


def _record_finding(
    subject: str, predicate: Mapping[str, Any], final_seq: Json, reading: LogReading
) -> Finding:
    """Whether the newest record about the run is the one that closed it, and matches."""
    seq, logged = reading.facts.work.get(predicate["run_id"], (None, {}))
    expected = {
        "status": predicate["status"],
        "before_hash": predicate["before_hash"],
        "after_hash": predicate["after_hash"],
        "work_item_id": closed(predicate["work_item"]["id"]),
        "item_sha256": predicate["work_item"]["sha256"],
        "agent_sha256": predicate["agent_sha256"],
    }
    wrong = [
        difference(f"its {name}", logged.get(name), value)
        for name, value in expected.items()
        if logged.get(name) != value
    ]
    if seq != final_seq:
        wrong.append(difference("work_receipts.final_seq", seq, final_seq))
    return judged(subject, "audit record", not wrong, "; ".join(wrong))


def _lost_runs(database: Snapshot, reading: LogReading) -> Iterator[Finding]:
    """Runs of older versions, of which the log knows and which have no row."""
    stored = {run_id for (run_id,) in database.scan("work_runs", ("run_id",))}
    bound = reading.facts.rows["work_runs"]
    for run_id, (seq, _) in reading.facts.work.items():
        if run_id not in stored and (run_id,) not in bound:
            detail = f"work_runs: its row is gone; audit record {seq} is about it"
            yield Finding(f"work run {run_id}", "present", False, detail)


def _sha256(text: str | None) -> str | None:
    return None if text is None else sha256_bytes(text.encode("utf-8", "surrogatepass"))
