"""Findings of `actum verify` about runs: contracts, steps, receipts. Writes nothing.

A step is compared with the signed receipt of its work item, and each receipt of the run with the
rows. A folder that was changed between two steps from outside is no finding: a run permits that,
and its receipts state it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from actum.contract.canonical import sha256_bytes
from actum.contract.model import Json
from actum.errors import EvidenceUnavailable, VerificationFailed
from actum.evidence.verify.findings import DATA_ERRORS, Finding, guarded, judged, said
from actum.evidence.verify.unwritten import reading
from actum.evidence.verify.work_findings import read_work_receipt
from actum.runs.contract.check import MISSING, UNSUPPORTED
from actum.runs.contract.seal import require_seal
from actum.runs.model import (
    RUN_COLUMNS,
    STEP_COLUMNS,
    Run,
    Step,
    StepState,
    StepStatus,
    run_from,
    step_from,
)
from actum.runs.run_receipt import (
    contract_hash,
    end_statement,
    read_run_receipt,
    step_statement,
)
from actum.runs.run_status import ENDED
from actum.runs.stored_contract import stored_flaw
from actum.store.keys import PublicKey, Signer
from actum.store.snapshot import Reader
from actum.value import replace

Trusted = Mapping[str, PublicKey]
_RUNS = f"SELECT {', '.join(RUN_COLUMNS)} FROM agent_runs"  # noqa: S608 -- constants
_STEPS = f"SELECT {', '.join(STEP_COLUMNS)} FROM agent_steps"  # noqa: S608 -- constants


def every_run_findings(home: Path, signer: Signer, trusted: Trusted) -> Iterator[Finding]:
    """Of all runs in a home, for `verify --all`."""
    try:
        with reading(home, signer) as (database, _journal):
            if not _there(database):
                return
            for (run_id,) in database.rows("SELECT run_id FROM agent_runs ORDER BY created_at"):
                yield from run_findings(database, trusted, run_id)
    except EvidenceUnavailable:
        return  # `verify_home` reports it


def run_findings(
    database: Reader, trusted: Trusted, run_id: str, *, items: Reader | None = None
) -> tuple[Finding, ...]:
    """One run; nothing if there is none. `items` has the receipts of its work items, if `database`
    does not."""
    row = database.row(f"{_RUNS} WHERE run_id = ?", (run_id,))
    if row is None:
        return ()
    return tuple(guarded(f"run {run_id}", "readable", _findings(database, items, trusted, row)))


def of_run_receipt(database: Reader, receipt_id: str) -> str | None:
    """The run that a receipt is about."""
    if not _there(database):
        return None
    row = database.row("SELECT run_id FROM run_receipts WHERE receipt_id = ?", (receipt_id,))
    return None if row is None else str(row[0])


def run_receipt_envelope(database: Reader, receipt_id: str) -> dict[str, Json] | None:
    return receipt_of_fleet(database, receipt_id) if _there(database) else None


def receipt_of_fleet(tables: Reader, receipt_id: str) -> dict[str, Json] | None:
    """The same in tables that certainly are there."""
    row = tables.row("SELECT envelope FROM run_receipts WHERE receipt_id = ?", (receipt_id,))
    if row is None:
        return None
    decoded: dict[str, Json] = json.loads(row[0])
    return decoded


def run_file_findings(
    envelope: Mapping[str, Json], trusted: Trusted, database: Reader | None
) -> tuple[Finding, ...]:
    """A run's receipt from a file: its signature, and that the store, if there is one, keeps it."""
    try:
        predicate = read_run_receipt(envelope, trusted)
    except VerificationFailed as error:
        return (Finding("run receipt", "signature", False, error.message),)
    receipt_id = str(predicate["receipt_id"])
    subject = f"run receipt {receipt_id}"
    signed = Finding(subject, "signature", True)
    if database is None:
        open_questions = "not checked without its home: contract, steps and their receipts"
        return (signed, Finding(subject, "alone", True, open_questions))
    stored = run_receipt_envelope(database, receipt_id)
    kept = stored is not None and stored.get("payload") == envelope.get("payload")
    known = run_findings(database, trusted, str(predicate["run_id"]))
    return (signed, judged(subject, "kept", kept, "this home has no such receipt"), *known)


def _there(database: Reader) -> bool:
    return database.row("SELECT 1 FROM sqlite_master WHERE name = 'run_receipts'") is not None


def _findings(
    database: Reader, items: Reader | None, trusted: Trusted, row: tuple[Any, ...]
) -> Iterator[Finding]:
    run = run_from(row)
    found = database.rows(f"{_STEPS} WHERE run_id = ? ORDER BY step_index", (run.run_id,))
    steps = tuple(map(step_from, found))
    yield _contract(run, trusted)
    yield from _revisions(database, run, trusted)
    if run.plan is not None:
        same = sha256_bytes(run.plan.encode("utf-8", "surrogatepass")) == run.plan_sha256
        yield judged(f"run {run.run_id}", "plan", same, "it is not the one that was frozen")
    for step in steps:
        yield from _step(database if items is None else items, run, step, trusted)
    yield _chain(run, steps)
    yield from _receipts(database, run, steps, trusted)


def _contract(run: Run, trusted: Trusted) -> Finding:
    subject = f"run {run.run_id}"
    flaw = stored_flaw(run, trusted)
    if flaw is None:
        return Finding(subject, "contract", True)
    if flaw.code in (MISSING, UNSUPPORTED):
        return Finding(subject, "contract", True, f"not checked: {flaw.message}")
    return Finding(subject, "contract", False, f"{flaw.code}: {flaw.message}")


def _revisions(database: Reader, run: Run, trusted: Trusted) -> Iterator[Finding]:
    """Every contract that the run had: sealed, and the last one is in force."""
    rows = database.rows(
        "SELECT revision, metadata, seal FROM run_contracts WHERE run_id = ? ORDER BY revision",
        (run.run_id,),
    )
    for revision, metadata, seal in rows:
        subject = f"contract {revision} of run {run.run_id}"
        about = replace(run, revision=revision, metadata=metadata).sealed
        try:
            require_seal(seal, about, trusted)
        except DATA_ERRORS as error:
            yield Finding(subject, "seal", False, said(error))
        else:
            yield Finding(subject, "seal", True)
    if rows:
        in_force = (run.revision, run.metadata, run.seal)
        detail = "the run does not have the last contract that is on record for it"
        yield judged(f"run {run.run_id}", "revision", rows[-1] == in_force, detail)


def _step(database: Reader, run: Run, step: Step, trusted: Trusted) -> Iterator[Finding]:
    """A step against the signed receipt of its work item."""
    if step.receipt_id is None:
        return
    subject = f"step {step.step_index} of run {run.run_id}"
    row = database.row(
        "SELECT envelope FROM work_receipts WHERE receipt_id = ?", (step.receipt_id,)
    )
    if row is None:
        yield Finding(subject, "receipt", False, f"there is no work receipt {step.receipt_id}")
        return
    try:
        stated: Any = read_work_receipt(json.loads(row[0]), trusted)
    except DATA_ERRORS as error:
        yield Finding(subject, "receipt", False, said(error))
        return
    committed = stated["status"] == StepStatus.SUCCESS
    status = {StepStatus.INTERRUPTED: "failure"}.get(StepStatus(str(step.status)), step.status)
    differing = [
        name
        for name, held, expected in (
            ("receipt_sha256", step.receipt_sha256, sha256_bytes(row[0].encode())),
            ("work_run_id", step.work_run_id, stated["run_id"]),
            ("item_id", step.item_id, stated["work_item"]["id"]),
            ("status", status, stated["status"]),
            ("base_state", step.base_state, stated["before_hash"]),
            ("after_state", step.after_state, stated["after_hash" if committed else "before_hash"]),
        )
        if held != expected
    ]
    detail = f"agent_steps.{', '.join(differing)}: not what the receipt of its work item states"
    yield judged(subject, "receipt", not differing, detail)


def _chain(run: Run, steps: tuple[Step, ...]) -> Finding:
    """The states between committed steps; the state of the run is that of the last one."""
    subject = f"run {run.run_id}"
    committed = [
        step for step in steps if step.status is StepStatus.SUCCESS and step.receipt_id is not None
    ]
    if committed and run.current_state != committed[-1].after_state:
        detail = "agent_runs.current_state is not the state that the last committed step left"
        return Finding(subject, "states", False, detail)
    gaps = [
        str(step.step_index)
        for before, step in pairwise(committed)
        if step.base_state != before.after_state
    ]
    if not gaps:
        return Finding(subject, "states", True)
    listed = ", ".join(gaps[:5])
    return Finding(subject, "states", True, f"changed outside of the run before step {listed}")


def _receipts(
    database: Reader, run: Run, steps: tuple[Step, ...], trusted: Trusted
) -> Iterator[Finding]:
    rows = database.rows(
        "SELECT receipt_id, sha256, envelope FROM run_receipts WHERE run_id = ? ORDER BY rowid",
        (run.run_id,),
    )
    previous = None
    for receipt_id, digest, envelope in rows:
        subject = f"run receipt {receipt_id}"
        intact = sha256_bytes(envelope.encode()) == digest
        yield judged(subject, "stored bytes", intact, "they are not those that were stored")
        try:
            stated = read_run_receipt(json.loads(envelope), trusted)
        except DATA_ERRORS as error:
            yield Finding(subject, "signature", False, said(error))
            continue
        yield Finding(subject, "signature", True)
        named = (stated["receipt_id"], stated["run_id"], stated["previous_receipt"])
        detail = "it is not the receipt that follows the one before it"
        yield judged(subject, "place", named == (receipt_id, run.run_id, previous), detail)
        yield _stated_steps(subject, stated, steps)
        if receipt_id == run.receipt_id and run.status in ENDED:
            yield _stated_end(subject, stated, run, steps)
        previous = receipt_id
    if rows or run.receipt_id is not None:
        newest = rows[-1][0] if rows else None
        detail = "agent_runs.receipt_id is not its newest receipt"
        yield judged(f"run {run.run_id}", "receipt", run.receipt_id == newest, detail)


def _stated_steps(subject: str, stated: Mapping[str, Any], steps: tuple[Step, ...]) -> Finding:
    """The steps that had ended when the receipt was signed: a step ends once."""
    now = {step.step_index: step_statement(step) for step in steps}
    differing = [
        str(each["index"])
        for each in stated["steps"]
        if each["state"] != StepState.STARTED and now.get(each["index"]) != each
    ]
    detail = f"agent_steps: step {', '.join(differing[:5])} differs from what was signed"
    return judged(subject, "steps", not differing, detail)


def _stated_end(
    subject: str, stated: Mapping[str, Any], run: Run, steps: tuple[Step, ...]
) -> Finding:
    differing = [name for name, held in end_statement(run).items() if stated.get(name) != held]
    contract = stated["contract"]
    if (contract["revision"], contract["hash"]) != (run.revision, contract_hash(run.metadata)):
        differing.append("contract")
    if len(stated["steps"]) != len(steps):
        differing.append("steps")
    detail = f"agent_runs: {', '.join(differing)} differs from what was signed"
    return judged(subject, "run", not differing, detail)
