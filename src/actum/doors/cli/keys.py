"""`actum keys`: the public half, to be handed out, and its successor. Nothing private is shown."""

from __future__ import annotations

import click

from actum.doors.cli import exit_codes, say, words


@click.group("keys", cls=words.Group)
def command() -> None:
    """The key that signs here."""


@command.command("show")
def show_keys() -> int:
    """The public key that others need to verify what was signed here."""
    with words.open_runtime() as runtime:
        keyring, home = runtime.keyring, runtime.settings.home
        signing = keyring.public(keyring.signer.keyid)
        others = [key for key in keyring.trusted.values() if key.keyid != signing.keyid]
    path = home / "keys" / f"{signing.keyid}.pub"
    if words.wants_json():
        say.document(
            {
                "keyid": signing.keyid,
                "path": str(path),
                "pem": signing.pem,
                "trusted": [{"keyid": key.keyid, "pem": key.pem} for key in others],
            }
        )
        return exit_codes.SUCCESS
    say.line(f"keyid {signing.keyid}")
    say.line(f"file  {path}")
    say.block(signing.pem.rstrip())
    for key in others:
        say.line(f"also trusted: {key.keyid}")
    return exit_codes.SUCCESS


@command.command("rotate")
def rotate_keys() -> int:
    """Sign with a new key from now on; receipts of the old one stay valid.

    The audit log says which key follows which, tools.lock is signed anew, and the old private key
    is removed. What a copy of it signs later approves nothing. Hand out the new public key to those
    who verify elsewhere.
    """
    from actum.evidence.rotation import rotate

    with words.open_runtime() as runtime:
        settings = runtime.settings
        done = rotate(
            runtime.rooms.ledger,
            root=settings.root,
            home=settings.home,
            approving=runtime.keyring.approving,
            at=runtime.rooms.clock(),
        )
    path = settings.home / "keys" / f"{done.signer.keyid}.pub"
    if words.wants_json():
        say.document(
            {
                "retired": done.retired,
                "keyid": done.signer.keyid,
                "path": str(path),
                "audit_record": done.seq,
                "lock_signed": done.lock_signed,
            }
        )
        return exit_codes.SUCCESS
    say.line(f"keyid {done.signer.keyid}")
    say.line(f"file  {path}")
    say.line(f"retired {done.retired}")
    if not done.lock_signed:
        say.aside("actum: tools.lock is signed by someone else and was left as it is.")
    return exit_codes.SUCCESS
