"""`actum doctor`: per runner and limit, can this host enforce it? If not: the remedy."""

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
    usable = all(capability.enforceable for capability in capabilities)
    if words.wants_json():
        say.document({"runners": _documents(capabilities, usable)})
    else:
        _tell(capabilities, usable)
    return exit_codes.SUCCESS if usable else exit_codes.FAILED


def _documents(capabilities: tuple[Capability, ...], usable: bool) -> list[Json]:
    local: Json = {
        "runner": "local",
        "usable": usable,
        "limits": [as_dict(capability) for capability in capabilities],
        "remedy": "",
    }
    absent = [
        {"runner": name, "usable": False, "limits": [], "remedy": remedy}
        for name, remedy in _ABSENT.items()
    ]
    return [local, *absent]


def _tell(capabilities: tuple[Capability, ...], usable: bool) -> None:
    say.line(f"local: {'usable' if usable else 'not usable'}")
    say.table(
        ("  LIMIT", "ENFORCED", "BY"),
        [(f"  {each.limit}", _yes(each.enforceable), each.mechanism) for each in capabilities],
    )
    for remedy in dict.fromkeys(each.remedy for each in capabilities if each.remedy):
        say.line(f"  Remedy: {remedy}")
    for name, remedy in _ABSENT.items():
        say.line(f"{name}: not available. {remedy}")


def _yes(enforceable: bool) -> str:
    return "yes" if enforceable else "NO"
