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
    """Say what each runner can enforce on this host, and whether work items left this project
    damaged. Exits 0 if at least one runner is usable and nothing is damaged."""
    from actum.runners.local import LocalRunner

    runner = LocalRunner()
    try:
        capabilities = runner.capabilities()
    finally:
        runner.close()
    build, missing = _build()
    damaged = _damaged()
    usable = not missing and all(capability.enforceable for capability in capabilities)
    if words.wants_json():
        runners = _documents(capabilities, usable, missing)
        say.document({"runners": runners, "build": build, "damaged": damaged})
    else:
        _tell(capabilities, usable, missing)
        for part, sha256 in build.items():
            say.line(f"{part}: {sha256 or 'missing'}")
        for each in damaged:
            say.line(f"work item run {each['run_id']}: {each['damage']}")
            say.line(
                f"  Remedy: put back what is missing, then `actum item accept {each['run_id']}`."
            )
    return exit_codes.SUCCESS if usable and not damaged else exit_codes.FAILED


def _damaged() -> list[dict[str, str]]:
    """What recovery found after crashes of work items in this project, if this is one."""
    from pathlib import Path

    from actum import settings as project
    from actum.errors import Refused

    try:
        home = project.discover(Path.cwd(), words.given_home())
    except Refused:
        if words.given_home() is not None:
            raise
        return []
    if not (home / "work").is_dir():
        return []
    with words.open_runtime() as runtime:  # which recovers
        found = runtime.workshop.records.damaged()
    return [{"run_id": run, "receipt_id": receipt, "damage": text} for run, receipt, text in found]


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
