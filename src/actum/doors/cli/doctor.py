"""`actum doctor`: per runner and limit, can this host enforce it? If not: the remedy.

It names the build as well: the digests of the native parts that sandboxes would run with.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from actum.contract.model import Json
from actum.doors.cli import exit_codes, say, words
from actum.value import as_dict

if TYPE_CHECKING:
    from actum.runners.base import Capability

_INSTEAD = "Use the local one: `actum init DIR --runner local`."
_ABSENT = {
    "docker": f"This version has no docker runner. {_INSTEAD}",
    "remote": f"This version has no remote runner. {_INSTEAD}",
}


@click.command("doctor", cls=words.Command, short_help="What this host can enforce.")
def command() -> int:
    """Say what each runner can enforce on this host. Exits 0 if at least one runner is usable."""
    from actum.runners.local import LocalRunner

    runner = LocalRunner()
    try:
        capabilities = runner.capabilities()
    finally:
        runner.close()
    build, missing = _build()
    usable = not missing and all(capability.enforceable for capability in capabilities)
    if words.wants_json():
        runners = _documents(capabilities, usable, missing)
        say.document({"runners": runners, "build": build})
    else:
        _tell(capabilities, usable, missing)
        for part, sha256 in build.items():
            say.line(f"{part}: {sha256 or 'missing'}")
    return exit_codes.SUCCESS if usable else exit_codes.FAILED


def _build() -> tuple[dict[str, Json], str]:
    """(the digests of the native parts, the remedy if one is missing)"""
    from actum import native

    digests: dict[str, Json] = {}
    remedy = ""
    for name, part in (
        ("init_sha256", native.INIT),
        ("determinism_sha256", native.DETERMINISM),
    ):
        try:
            digests[name] = native.sha256(part)
        except native.NotBuilt as error:
            digests[name] = None
            remedy = str(error)
    return digests, remedy


def _documents(capabilities: tuple[Capability, ...], usable: bool, missing: str) -> list[Json]:
    local: Json = {
        "runner": "local",
        "usable": usable,
        "limits": [as_dict(capability) for capability in capabilities],
        "remedy": missing,
    }
    absent = [
        {"runner": name, "usable": False, "limits": [], "remedy": remedy}
        for name, remedy in _ABSENT.items()
    ]
    return [local, *absent]


def _tell(capabilities: tuple[Capability, ...], usable: bool, missing: str) -> None:
    say.line(f"local: {'usable' if usable else 'not usable'}")
    say.table(
        ("  LIMIT", "ENFORCED", "BY"),
        [(f"  {each.limit}", _yes(each.enforceable), each.mechanism) for each in capabilities],
    )
    remedies = [missing, *(each.remedy for each in capabilities)]
    for remedy in dict.fromkeys(filter(None, remedies)):
        say.line(f"  Remedy: {remedy}")
    for name, remedy in _ABSENT.items():
        say.line(f"{name}: not available. {remedy}")


def _yes(enforceable: bool) -> str:
    return "yes" if enforceable else "NO"
