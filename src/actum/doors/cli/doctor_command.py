"""`actum doctor`: whether this host can enforce each limit of each runner, and the remedy if not.

It also names the build: the digests of the native parts that sandboxes use.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from actum.contract.model import Json
from actum.doors.cli import command_table, exit_codes, table, terminal
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


@click.command("doctor", cls=command_table.Command, short_help="What this host can enforce.")
def command() -> int:
    """Show what each runner can enforce on this host, whether work items left this project damaged,
    whether its settings are approved, and what to set in your own git. Exits 0 if at least one
    runner is usable, nothing is damaged and the settings are approved."""
    from actum.runners.local import LocalRunner
    from actum.sandbox.sweep import sweep_host
    from actum.workspace.host_git import takes_bare_repositories

    sweep_host()
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
    if command_table.wants_json():
        terminal.document(
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
            terminal.line(f"{part}: {sha256 or 'missing'}")
        if settings is not None:
            terminal.line(f"settings: {settings['text']}")
            if not settings["approved"]:
                terminal.line(
                    "  Remedy: every execution is refused. Review the change, then"
                    " `actum config approve --by WHO`."
                )
        for each in damaged:
            terminal.line(f"work item run {each['run_id']}: {each['damage']}")
            terminal.line(
                f"  Remedy: put back what is missing, then `actum item accept {each['run_id']}`."
            )
        for text in advice:
            terminal.line(f"Advice: {text}")
    approved = settings is None or settings["approved"]
    return exit_codes.SUCCESS if usable and approved and not damaged else exit_codes.FAILED


def _home() -> Path | None:
    """The project of the working directory, if there is one."""
    from actum import settings as project
    from actum.errors import Refused

    try:
        return project.discover(Path.cwd(), command_table.given_home())
    except Refused:
        if command_table.given_home() is not None:
            raise
        return None


def _settings(home: Path | None) -> dict[str, Json] | None:
    if home is None:
        return None
    from actum import settings as project
    from actum.doors.cli.config_command import settings_note

    return settings_note(project.load(home, os.environ))


def _damaged(home: Path | None) -> list[dict[str, str]]:
    """Damage that recovery found after crashes of work items in this project."""
    if home is None or not (home / "work").is_dir():
        return []
    with command_table.open_runtime() as runtime:  # opening it recovers
        found = runtime.work_items.records.damaged()
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
    terminal.line(f"local: {'usable' if usable else 'not usable'}")
    table.show(
        (table.whole("  LIMIT"), table.states("ENFORCED"), table.whole("BY")),
        [(f"  {each.limit}", _yes(each.enforceable), each.mechanism) for each in capabilities],
    )
    remedies = [missing, *(each.remedy for each in capabilities)]
    for remedy in dict.fromkeys(filter(None, remedies)):
        terminal.line(f"  Remedy: {remedy}")
    for name, remedy in _ABSENT.items():
        terminal.line(f"{name}: not available. {remedy}")


def _yes(enforceable: bool) -> str:
    return "yes" if enforceable else "NO"
