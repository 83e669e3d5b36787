"""`actum verify`: says what holds and names what does not. Exits 1 if anything does not."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from actum.doors.cli import exit_codes, say, words
from actum.doors.cli.receipts import find

if TYPE_CHECKING:
    from actum.evidence.findings import Finding
    from actum.evidence.receipts import KeptReceipt, Receipts
    from actum.wiring import Runtime


@click.command("verify", cls=words.Command, short_help="Check receipts.")
@click.argument("target", required=False, metavar="[ID|FILE]")
@click.option("--all", "everything", is_flag=True, help="Every receipt and the whole audit log.")
@click.option(
    "--key",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    metavar="FILE.pub",
    help="Check FILE alone against this public key; needs no project.",
)
def command(target: str | None, everything: bool, key: Path | None) -> int:
    """Check a receipt, by its id, its execution's id or its file; without one, the latest.

    Looks at the signature, the evidence and files it signs, the trace and the audit log.
    """
    if everything and target:
        raise click.UsageError("Give an ID or FILE, or --all, not both.")
    if key is not None:
        findings = _alone(target, key)
    else:
        with words.open_runtime() as runtime:
            findings = _findings(runtime, target, everything)
    broken = [finding for finding in findings if not finding.passed]
    if words.wants_json():
        say.document({"verified": not broken, "findings": [asdict(each) for each in findings]})
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


def _alone(target: str | None, key: Path) -> tuple[Finding, ...]:
    from actum.evidence.verify import verify_file
    from actum.store.keys import PublicKey

    if target is None:
        raise click.UsageError("--key checks a FILE; name one.")
    public = PublicKey.from_pem(key.read_text(), where=str(key))
    return verify_file(Path(target), {public.keyid: public})


def _findings(runtime: Runtime, target: str | None, everything: bool) -> tuple[Finding, ...]:
    from actum.evidence.verify import Verifier, read_receipt_file, verify_receipt

    receipts, trusted = runtime.rooms.receipts, runtime.keyring.trusted
    if target is not None and Path(target).is_file():
        envelope = read_receipt_file(Path(target))
        named = verify_receipt(envelope, trusted, runtime.database, runtime.blobs)
        return (_read_as(target), *named)
    verifier = Verifier(
        database=runtime.database, blobs=runtime.blobs, receipts=receipts, trusted=trusted
    )
    if everything:
        copies = [_copy(receipts, receipt) for receipt in receipts.latest(-1)]
        return (*verifier.verify_all(), *(copy for copy in copies if copy))
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
