"""`actum keys`: shows the public key and rotates the signing key. Shows nothing private."""

from __future__ import annotations

import click

from actum.doors.cli import command_table, exit_codes, terminal


@click.group("keys", cls=command_table.Group)
def command() -> None:
    """Show the public key, and rotate the signing key."""


@command.command("show")
@click.option(
    "--pem", "alone", is_flag=True, help="Print the key alone: actum keys show --pem > project.pub"
)
def show_keys(alone: bool) -> int:
    """Show the public key that others need to verify signatures of this project."""
    if alone and command_table.wants_json():
        raise click.UsageError("Give --pem or --json, not both: the JSON has the key as `pem`.")
    with command_table.open_runtime() as runtime:
        keyring = runtime.keyring
        signing = keyring.public(keyring.signer.keyid)
        others = [key for key in keyring.trusted.values() if key.keyid != signing.keyid]
    path = keyring.public_file(signing.keyid)
    if command_table.wants_json():
        terminal.document(
            {
                "keyid": signing.keyid,
                "path": str(path),
                "pem": signing.pem,
                "trusted": [{"keyid": key.keyid, "pem": key.pem} for key in others],
            }
        )
        return exit_codes.SUCCESS
    if alone:
        terminal.block(signing.pem.rstrip())
        return exit_codes.SUCCESS
    terminal.line(f"keyid {signing.keyid}")
    terminal.line(f"file  {path}")
    terminal.block(signing.pem.rstrip())
    for key in others:
        terminal.line(f"also trusted: {key.keyid}")
    return exit_codes.SUCCESS


@command.command("rotate")
def rotate_keys() -> int:
    """Sign with a new key from now on; receipts of the old one stay valid.

    The audit log records the succession, tools.lock is signed again, and the old private key is
    removed. Later signatures by a copy of it approve nothing. Distribute the new public key to
    those who verify elsewhere.
    """
    from actum.evidence.rotation import rotate

    with command_table.open_runtime() as runtime:
        settings = runtime.settings
        done = rotate(
            runtime.services.ledger,
            root=settings.root,
            home=settings.home,
            approving=runtime.keyring.approving,
            at=runtime.services.clock(),
        )
    path = runtime.keyring.public_file(done.signer.keyid)
    if command_table.wants_json():
        terminal.document(
            {
                "retired": done.retired,
                "keyid": done.signer.keyid,
                "path": str(path),
                "audit_record": done.seq,
                "lock_signed": done.lock_signed,
            }
        )
        return exit_codes.SUCCESS
    terminal.line(f"keyid {done.signer.keyid}")
    terminal.line(f"file  {path}")
    terminal.line(f"retired {done.retired}")
    if not done.lock_signed:
        terminal.aside("actum: tools.lock is signed by another key and was left as it is.")
    return exit_codes.SUCCESS
