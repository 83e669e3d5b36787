"""`actum doctor`: per runner and limit, can this host enforce it? If not: the remedy.

It names the build as well: the digests of the native parts that sandboxes would run with.
"""

from __future__ import annotations

import os
from pathlib import Path
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
_BARE = (
    "git obeys the configuration of a bare repository that it finds, and a tool can write one."
    " Run: git config --global safe.bareRepository explicit"
)


@click.command("doctor", cls=words.Command, short_help="What this host can enforce.")
def command() -> int:
    """Say what each runner can enforce on this host, whether work items left this project damaged,
    whether its settings are approved, and what to set in your own git. Exits 0 if at least one
    runner is usable, nothing is damaged and the settings are approved."""
    from actum.engine.host_git import takes_bare_repositories
    from actum.runners.local import LocalRunner

    runner = LocalRunner()
    try:
        capabilities = runner.capabilities()
    finally:
        runner.close()
    build, missing = _build()
    home = _home()
    settings = _settings(home)
    damaged = _damaged(home)
    advice = [_BARE] if takes_bare_repositories() else []
    usable = not missing and all(capability.enforceable for capability in capabilities)
    if words.wants_json():
        say.document(
            {
                "runners": _documents(capabilities, usable, missing),
                "build": build,
                "damaged": damaged,
                "settings": settings,
                "advice": advice,
            }
        )
    else:
        _tell(capabilities, usable, missing)
        for part, sha256 in build.items():
            say.line(f"{part}: {sha256 or 'missing'}")
        if settings is not None:
            say.line(f"settings: {settings['text']}")
            if not settings["approved"]:
                say.line(
                    "  Remedy: every execution is refused. Review the change, then"
                    " `actum config approve --by WHO`."
                )
        for each in damaged:
            say.line(f"work item run {each['run_id']}: {each['damage']}")
            say.line(
                f"  Remedy: put back what is missing, then `actum item accept {each['run_id']}`."
            )
        for text in advice:
            say.line(f"Advice: {text}")
    approved = settings is None or settings["approved"]
    return exit_codes.SUCCESS if usable and approved and not damaged else exit_codes.FAILED


def _home() -> Path | None:
    """The project here, if this is one."""
    from actum import settings as project
    from actum.errors import Refused

    try:
        return project.discover(Path.cwd(), words.given_home())
    except Refused:
        if words.given_home() is not None:
            raise
        return None


def _settings(home: Path | None) -> dict[str, Json] | None:
    if home is None:
        return None
    from actum import settings as project
    from actum.doors.cli.config import settings_note

    return settings_note(project.load(home, os.environ))


def _damaged(home: Path | None) -> list[dict[str, str]]:
    """What recovery found after crashes of work items in this project."""
    if home is None or not (home / "work").is_dir():
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
