"""`actum verify`: says what holds and names what does not. Exits 1 if anything does not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from actum.contract.model import Json
from actum.doors.cli import exit_codes, say, words
from actum.doors.cli.config import settings_note
from actum.doors.cli.receipts import find
from actum.value import as_dict, value

if TYPE_CHECKING:
    from actum.evidence.findings import Finding
    from actum.evidence.log import Log
    from actum.evidence.receipts import KeptReceipt, Receipts
    from actum.settings import Settings
    from actum.store.blobs import BlobStore
    from actum.store.database import Database
    from actum.store.keys import PublicKey


@click.command("verify", cls=words.Command, short_help="Check receipts.")
@click.argument("target", required=False, metavar="[ID|FILE]")
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="Every row of every table and every file of a work item, against the signed audit log.",
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
    help="Hold a checkpoint that was kept elsewhere against the audit log.",
)
def command(target: str | None, everything: bool, key: Path | None, checkpoint: Path | None) -> int:
    """Check a receipt, by its id, its execution's id or its file; without one, the latest of an
    execution. Receipts of work items too.

    Looks at the signature, the evidence and files it signs, the trace and the audit log. FILE may
    also be a proof made by `actum audit prove`. Says as well whether the settings are approved,
    which is no part of the verdict.

    --all writes nothing, and names whatever was changed, deleted, swapped or added: table or file,
    row, column, what was expected and found. Without --checkpoint it cannot notice that the newest
    records were cut off together with all that belongs to them. Who has the signing key can write
    records that fit. Rows that an older version wrote and nothing binds are counted.
    """
    if (everything or checkpoint) and target:
        raise click.UsageError("Give an ID or FILE, or --all or --checkpoint, not both.")
    notes: dict[str, Json] = {}
    if key is not None:
        findings = _alone(target, key)
    elif everything:
        findings, notes = _everything(checkpoint)
    else:
        with _opened() as home:
            findings = _findings(home, target, checkpoint)
            notes = {"settings": settings_note(home.settings)}
    broken = [finding for finding in findings if not finding.passed]
    if words.wants_json():
        checked = {"verified": not broken, "findings": [as_dict(each) for each in findings]}
        say.document({**checked, **notes})
    else:
        for name, note in notes.items():
            say.line(f"{name}: {note['text']}")
        _tell(findings, broken, target or "")
    return exit_codes.FAILED if broken else exit_codes.SUCCESS


def _tell(findings: tuple[Finding, ...], broken: list[Finding], target: str) -> None:
    for each in findings:
        mark = "ok    " if each.passed else "BROKEN"
        say.line(f"{mark} {each.subject}: {each.check}{f': {each.detail}' if each.detail else ''}")
    if broken:
        subjects = ", ".join(dict.fromkeys(finding.subject for finding in broken))
        say.line(f"NOT verified: {f'{target}: ' if target else ''}{subjects}")
    else:
        say.line(f"Verified: {len(findings)} checks passed.")


@value(kw_only=False)
class _Home:
    """What verifying needs of a home, and nothing that would write to a log found broken."""

    settings: Settings
    database: Database
    log: Log
    blobs: BlobStore
    receipts: Receipts
    trusted: Mapping[str, PublicKey]


@contextmanager
def _opened() -> Iterator[_Home]:
    import os

    from actum import settings as project
    from actum.evidence.log import Log
    from actum.evidence.receipts import Receipts
    from actum.store.blobs import BlobStore
    from actum.store.database import Database
    from actum.store.keys import Keyring

    settings = project.load(project.discover(Path.cwd(), words.given_home()), os.environ)
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
        )
    finally:
        database.close()


def _alone(target: str | None, key: Path) -> tuple[Finding, ...]:
    from actum.evidence.proof import check_proof, is_proof
    from actum.evidence.verify import read_receipt_file, verify_file
    from actum.evidence.work_findings import is_work_receipt, work_file_findings
    from actum.store.keys import PublicKey

    if target is None:
        raise click.UsageError("--key checks a FILE; name one.")
    public = PublicKey.from_pem(key.read_text(), where=str(key))
    trusted = {public.keyid: public}
    document = read_receipt_file(Path(target))
    if is_proof(document):
        return tuple(check_proof(document, trusted))
    if is_work_receipt(document):
        return (_read_as(target), *work_file_findings(document, trusted, None))
    return verify_file(Path(target), trusted)


def _everything(checkpoint: Path | None) -> tuple[tuple[Finding, ...], dict[str, Json]]:
    """All that the home holds. Whatever stops it is a finding: a home that was changed is no fault
    of ours."""
    import os

    from actum import settings as project
    from actum.engine.work.verify_work import work_state_findings
    from actum.errors import ActumError
    from actum.evidence.findings import Finding
    from actum.evidence.upgrade import upgrade
    from actum.evidence.verify_home import verify_home
    from actum.store.keys import Keyring

    settings = project.load(project.discover(Path.cwd(), words.given_home()), os.environ)
    try:
        keyring = Keyring.open(settings.home, trust=settings.trusted_keys)
    except ActumError as error:
        return (Finding("keys", "usable", False, error.message),), {}
    upgrade(settings.home, keyring.signer)
    findings = (
        *verify_home(settings.home, keyring.signer, keyring.trusted, _kept(checkpoint)),
        *work_state_findings(settings.home, keyring.signer, keyring.trusted),
    )
    try:
        notes = {"settings": settings_note(settings)}
    except ActumError:
        notes = {}  # a lock that cannot be read governs nothing; every execution says so
    return findings, notes


def _kept(checkpoint: Path | None) -> tuple[str, str] | None:
    """A checkpoint kept elsewhere: its text and its name."""
    if checkpoint is None:
        return None
    return checkpoint.read_text(errors="replace"), str(checkpoint)


def _findings(home: _Home, target: str | None, checkpoint: Path | None) -> tuple[Finding, ...]:
    from actum.evidence.proof import check_proof, is_proof
    from actum.evidence.verify import Verifier, read_receipt_file, verify_receipt
    from actum.evidence.work_findings import (
        is_work_receipt,
        one_work_receipt,
        work_file_findings,
    )

    receipts, trusted = home.receipts, home.trusted
    if target is not None and Path(target).is_file():
        document = read_receipt_file(Path(target))
        if is_proof(document):
            return (_read_as(target), *check_proof(document, trusted))
        if is_work_receipt(document):
            return (_read_as(target), *work_file_findings(document, trusted, home.database))
        named = verify_receipt(document, trusted, home.database, home.blobs)
        return (_read_as(target), *named)
    verifier = Verifier(
        database=home.database, blobs=home.blobs, receipts=receipts, trusted=trusted
    )
    kept_elsewhere = _kept(checkpoint)
    if kept_elsewhere is not None:
        return verifier.verify_log(kept_elsewhere)
    if target is not None and (of_work := one_work_receipt(home.database, trusted, target)):
        return of_work
    kept = receipts.latest(1) if target is None else (find(receipts, target),)
    if not kept:
        raise click.UsageError("There is no receipt yet. `actum exec` makes one.")
    copy = _copy(receipts, kept[0])
    return (*verifier.verify_execution(kept[0].receipt_id), *((copy,) if copy else ()))


def _read_as(target: str) -> Finding:
    from actum.evidence.findings import Finding

    return Finding(f"file {target}", "read", True)


def _copy(receipts: Receipts, kept: KeptReceipt) -> Finding | None:
    """The exported file is a copy for handing out: if it is there, it is to be the receipt."""
    from actum.evidence.findings import judged

    path = receipts.path(kept.receipt_id)
    if not path.is_file():
        return None
    same = path.read_bytes() == kept.encoded
    return judged(f"receipt file {path}", "copy", same, "it is not the receipt that was signed")
