"""`actum verify`: checks receipts and records, and names what fails. Exits 1 if a check fails."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from actum.contract.model import Json
from actum.doors.cli import command_table, exit_codes, terminal
from actum.doors.cli.config_command import settings_note
from actum.doors.cli.receipts_command import find, full_receipt_id
from actum.value import as_dict, value

if TYPE_CHECKING:
    from actum.evidence.log import Log
    from actum.evidence.receipts import KeptReceipt, Receipts
    from actum.evidence.verify.findings import Finding
    from actum.settings import Settings
    from actum.store.blobs import BlobStore
    from actum.store.database import Database
    from actum.store.keys import PublicKey


@click.command("verify", cls=command_table.Command)
@click.argument("target", required=False, metavar="[ID|FILE]")
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Every row of every table and every file of a work item, against the signed audit log.",
)
@click.option(
    "--run", "run_id", metavar="RUN", help="A durable run: contract, steps, all its receipts."
)
@click.option(
    "--key",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE.pub",
    help="Check FILE alone against this public key; needs no project.",
)
@click.option(
    "--checkpoint",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE",
    help="Compare a checkpoint that was stored elsewhere with the audit log.",
)
def command(
    target: str | None,
    everything: bool,
    run_id: str | None,
    key: Path | None,
    checkpoint: Path | None,
) -> int:
    """Verify a receipt of an execution, a work item or a run.

    ID is of the receipt or of what it is about, FILE is the receipt itself. Without either, the
    latest receipt of an execution is verified.

    Checks the signature, the evidence and files it signs, the trace and the audit log. FILE may
    also be a proof made by `actum audit prove`, or an archive made by `actum evidence export`. Also
    reports whether the settings are approved, which is not part of the verdict.

    Removes control groups and temporary folders of processes that were killed, and changes no
    record.

    --all writes nothing in the project, and names everything that was changed, deleted, swapped or
    added: table or file, row, column, the expected and the actual value. Without --checkpoint it
    cannot detect that the newest records were removed together with all that belongs to them. An
    owner of the signing key can forge consistent records. Rows that an older version wrote and
    nothing binds are counted.
    """
    if (everything or checkpoint) and target:
        raise click.UsageError("Give an ID or FILE, or --all or --checkpoint, not both.")
    if run_id is not None and (everything or checkpoint or target or key):
        raise click.UsageError("--run stands alone.")
    notes: dict[str, Json] = {}
    if key is None:
        from actum.sandbox.sweep import sweep_host

        sweep_host()
    if key is not None:
        findings = _alone(target, key)
    elif everything:
        findings, notes = _everything(checkpoint)
    else:
        with _opened() as home:
            if run_id is None:
                findings = _findings(home, target, checkpoint)
            else:
                findings = _of_run(home, run_id)
            notes = {"settings": settings_note(home.settings)}
    broken = [finding for finding in findings if not finding.passed]
    if command_table.wants_json():
        checked = {"verified": not broken, "findings": [as_dict(each) for each in findings]}
        terminal.document({**checked, **notes})
    else:
        for name, note in notes.items():
            terminal.line(f"{name}: {note['text']}")
        _tell(findings, broken, target or "")
    return exit_codes.FAILED if broken else exit_codes.SUCCESS


def _tell(findings: tuple[Finding, ...], broken: list[Finding], target: str) -> None:
    for each in findings:
        mark = "ok    " if each.passed else "BROKEN"
        terminal.line(
            f"{mark} {each.subject}: {each.check}{f': {each.detail}' if each.detail else ''}"
        )
    if broken:
        subjects = ", ".join(dict.fromkeys(finding.subject for finding in broken))
        terminal.line(f"NOT verified: {f'{target}: ' if target else ''}{subjects}")
    else:
        terminal.line(f"Verified: {len(findings)} checks passed.")


@value(kw_only=False)
class _Home:
    """The parts of a home that verification reads; none writes to a log that may be broken."""

    settings: Settings
    database: Database
    log: Log
    blobs: BlobStore
    receipts: Receipts
    trusted: Mapping[str, PublicKey]
    approving: Mapping[str, PublicKey]  #: `trusted` without retired keys


@contextmanager
def _opened() -> Iterator[_Home]:
    import os

    from actum import settings as project
    from actum.evidence.log import Log
    from actum.evidence.receipts import Receipts
    from actum.store.blobs import BlobStore
    from actum.store.database import Database
    from actum.store.keys import Keyring

    settings = project.load(project.discover(Path.cwd(), command_table.given_home()), os.environ)
    keyring = Keyring.open(settings.home, trust=settings.trusted_keys)
    database = Database.open(settings.home, create=False)
    try:
        log = Log(database, keyring.signer)
        log.adopt()
        yield _Home(
            settings=settings,
            database=database,
            log=log,
            blobs=BlobStore(settings.home, database),
            receipts=Receipts(database, settings.home),
            trusted=keyring.trusted,
            approving=keyring.approving,
        )
    finally:
        database.close()


def _alone(target: str | None, key: Path) -> tuple[Finding, ...]:
    from actum.evidence.proof import check_proof, is_proof
    from actum.evidence.verify.archive_findings import is_archive
    from actum.evidence.verify.receipt_verifier import read_receipt_file, verify_file
    from actum.evidence.verify.work_findings import is_work_receipt, work_file_findings
    from actum.runs.run_receipt import is_run_receipt
    from actum.runs.verify_run import run_file_findings
    from actum.store.keys import PublicKey

    if target is None:
        raise click.UsageError("--key checks a FILE; name one.")
    public = PublicKey.from_pem(key.read_text(), where=str(key))
    trusted = {public.keyid: public}
    if is_archive(Path(target)):
        return _archive(Path(target), trusted)
    document = read_receipt_file(Path(target))
    if is_proof(document):
        return tuple(check_proof(document, trusted))
    if is_work_receipt(document):
        return (_read_as(target), *work_file_findings(document, trusted, None))
    if is_run_receipt(document):
        return (_read_as(target), *run_file_findings(document, trusted, None))
    return verify_file(Path(target), trusted)


def _archive(path: Path, trusted: Mapping[str, PublicKey]) -> tuple[Finding, ...]:
    from actum.evidence.verify.archive_findings import archive_findings

    with path.open("rb") as file:
        return tuple(archive_findings(file, trusted))


def _everything(checkpoint: Path | None) -> tuple[tuple[Finding, ...], dict[str, Json]]:
    """Check everything in the home. An error is a finding: a modified home is not a fault of
    Actum."""
    import os

    from actum import settings as project
    from actum.errors import ActumError
    from actum.evidence.upgrade import upgrade
    from actum.evidence.verify.findings import Finding
    from actum.evidence.verify.home import verify_home
    from actum.runs.verify_run import every_run_findings
    from actum.store.keys import Keyring
    from actum.work.verify_work import work_state_findings

    settings = project.load(project.discover(Path.cwd(), command_table.given_home()), os.environ)
    try:
        keyring = Keyring.open(settings.home, trust=settings.trusted_keys)
    except ActumError as error:
        return (Finding("keys", "usable", False, error.message),), {}
    upgrade(settings.home, keyring.signer)
    findings = (
        *verify_home(settings.home, keyring.signer, keyring.trusted, _kept(checkpoint)),
        *work_state_findings(settings.home, keyring.signer, keyring.trusted),
        *every_run_findings(settings.home, keyring.signer, keyring.trusted),
    )
    try:
        notes = {"settings": settings_note(settings)}
    except ActumError:
        notes = {}  # a lock that cannot be read grants nothing; every execution reports it
    return findings, notes


def _kept(checkpoint: Path | None) -> tuple[str, str] | None:
    """A checkpoint that was stored elsewhere: its text and its name."""
    if checkpoint is None:
        return None
    return checkpoint.read_text(errors="replace"), str(checkpoint)


def _findings(home: _Home, target: str | None, checkpoint: Path | None) -> tuple[Finding, ...]:
    from actum.evidence.proof import check_proof, is_proof
    from actum.evidence.verify.archive_findings import is_archive
    from actum.evidence.verify.receipt_verifier import Verifier, read_receipt_file, verify_receipt
    from actum.evidence.verify.work_findings import (
        is_work_receipt,
        one_work_receipt,
        work_file_findings,
    )
    from actum.runs.run_receipt import is_run_receipt
    from actum.runs.verify_run import of_run_receipt, run_file_findings, run_findings

    receipts, trusted = home.receipts, home.trusted
    if target is not None and Path(target).is_file():
        if is_archive(Path(target)):
            # Without retired keys: a copy of one could sign an archive with a log of its own.
            return _archive(Path(target), home.approving)
        document = read_receipt_file(Path(target))
        if is_proof(document):
            return (_read_as(target), *check_proof(document, trusted))
        if is_work_receipt(document):
            return (_read_as(target), *work_file_findings(document, trusted, home.database))
        if is_run_receipt(document):
            return (_read_as(target), *run_file_findings(document, trusted, home.database))
        named = verify_receipt(document, trusted, home.database, home.blobs)
        return (_read_as(target), *named)
    verifier = Verifier(
        database=home.database, blobs=home.blobs, receipts=receipts, trusted=trusted
    )
    kept_elsewhere = _kept(checkpoint)
    if kept_elsewhere is not None:
        return verifier.verify_log(kept_elsewhere)
    if target is not None:
        target = full_receipt_id(home.database, target)
        if of_work := one_work_receipt(home.database, trusted, target):
            return of_work
        of_run = of_run_receipt(home.database, target)
        if of_run is not None:
            return run_findings(home.database, trusted, of_run)
    kept = receipts.latest(1) if target is None else (find(receipts, target),)
    if not kept:
        raise click.UsageError("There is no receipt yet. `actum exec` makes one.")
    copy = _copy(receipts, kept[0])
    return (*verifier.verify_execution(kept[0].receipt_id), *((copy,) if copy else ()))


def _of_run(home: _Home, given: str) -> tuple[Finding, ...]:
    from actum.contract.run_store import EMBEDDED
    from actum.doors.cli.id_prefix import RUNS, full_id
    from actum.errors import Refused
    from actum.run_queue import fleet_ledger
    from actum.runs.folder_elsewhere import elsewhere
    from actum.runs.verify_run import run_findings

    if home.settings.runs_store != EMBEDDED:
        ledger = fleet_ledger(home.settings, home.log)
        run_id = full_id(ledger.tables, given, RUNS)
        if ledger.find(run_id) is not None and not ledger.is_here(run_id):
            raise elsewhere(run_id)
        found = run_findings(ledger.tables, home.trusted, run_id, items=home.database)
    else:
        found = run_findings(home.database, home.trusted, full_id(home.database, given, RUNS))
    if not found:
        raise Refused(
            "RUN_UNKNOWN",
            f"There is no run {given[:80]!r} in this home.",
            remedy="`actum runs list` shows those there are.",
        )
    return found


def _read_as(target: str) -> Finding:
    from actum.evidence.verify.findings import Finding

    return Finding(f"file {target}", "read", True)


def _copy(receipts: Receipts, kept: KeptReceipt) -> Finding | None:
    """The exported file is a copy of the receipt: if it exists, it must be equal to it."""
    from actum.evidence.verify.findings import judged

    path = receipts.path(kept.receipt_id)
    if not path.is_file():
        return None
    same = path.read_bytes() == kept.encoded
    return judged(f"receipt file {path}", "copy", same, "it is not the receipt that was signed")
