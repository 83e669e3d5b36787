"""`actum verify`: says what holds and names what does not. Exits 1 if anything does not."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from actum.doors.cli import exit_codes, say, words
from actum.doors.cli.receipts import find
from actum.value import as_dict, value

if TYPE_CHECKING:
    from actum.evidence.findings import Finding
    from actum.evidence.log import Log
    from actum.evidence.receipts import KeptReceipt, Receipts
    from actum.store.blobs import BlobStore
    from actum.store.database import Database
    from actum.store.keys import PublicKey


@click.command("verify", cls=words.Command, short_help="Check receipts.")
@click.argument("target", required=False, metavar="[ID|FILE]")
@click.option("--all", "everything", is_flag=True, help="Every receipt and the whole audit log.")
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
    also be a proof made by `actum audit prove`.
    """
    if (everything or checkpoint) and target:
        raise click.UsageError("Give an ID or FILE, or --all or --checkpoint, not both.")
    if key is not None:
        findings = _alone(target, key)
    else:
        with _opened() as home:
            findings = _findings(home, target, everything, checkpoint)
    broken = [finding for finding in findings if not finding.passed]
    if words.wants_json():
        say.document({"verified": not broken, "findings": [as_dict(each) for each in findings]})
    else:
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

    folder: Path
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
            folder=settings.home,
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


def _findings(
    home: _Home, target: str | None, everything: bool, checkpoint: Path | None
) -> tuple[Finding, ...]:
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
    kept_elsewhere = None
    if checkpoint is not None:
        kept_elsewhere = (checkpoint.read_text(errors="replace"), str(checkpoint))
    if everything:
        found = verifier.verify_all(kept_elsewhere)
        with home.database.as_it_is():  # it is filed by now, or was found to be changed
            copies = [_copy(receipts, receipt) for receipt in receipts.latest(-1)]
        return (*found, *(copy for copy in copies if copy), *_interrupted(home))
    if kept_elsewhere is not None:
        return verifier.verify_log(kept_elsewhere)
    if target is not None and (of_work := one_work_receipt(home.database, trusted, target)):
        return of_work
    kept = receipts.latest(1) if target is None else (find(receipts, target),)
    if not kept:
        raise click.UsageError("There is no receipt yet. `actum exec` makes one.")
    copy = _copy(receipts, kept[0])
    return (*verifier.verify_execution(kept[0].receipt_id), *((copy,) if copy else ()))


def _interrupted(home: _Home) -> tuple[Finding, ...]:
    """Work items whose process is gone and that no command has closed yet."""
    if not (home.folder / "work").is_dir():
        return ()
    from actum.engine.work.records import WorkRecords
    from actum.engine.work.recover import interrupted_findings

    records = WorkRecords(home.database, home.log, home.folder)
    return tuple(interrupted_findings(home.folder, records))


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
