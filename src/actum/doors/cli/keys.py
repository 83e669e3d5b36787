"""`actum keys`: the public half, to be handed out. The private half is never shown."""

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
    say.line(f"keyid {signing.keyid}\nfile  {path}")
    say.line(signing.pem.rstrip())
    for key in others:
        say.line(f"also trusted: {key.keyid}")
    return exit_codes.SUCCESS
