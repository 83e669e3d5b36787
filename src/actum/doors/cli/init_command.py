"""`actum init`: creates a project, or the missing parts of one."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import click

from actum.doors.cli import command_table, exit_codes, terminal


@click.command("init", cls=command_table.Command)
@click.argument(
    "directory", type=click.Path(path_type=Path, file_okay=False), default=".", metavar="[DIR]"
)
@click.option(
    "--runner",
    type=click.Choice(["docker", "local"]),
    help="The runner of the shipped tools. Without it: docker, if an engine answers on this host;"
    " otherwise nothing is made.",
)
def command(directory: Path, runner: str | None) -> int:
    """Make a project in DIR: settings, ready tools with their approvals, keys.

    What exists already is left as it is, so a second run only adds what is missing. In a clone,
    which needs no --runner, it makes the keys and says which key of others to trust.
    """
    from actum import settings
    from actum.contract.model import RunnerKind
    from actum.contract.timestamps import utc_text
    from actum.project import create

    login = settings.login_of(os.environ)
    date = utc_text(datetime.now(UTC))
    chosen = None if runner is None else RunnerKind(runner)
    created = create(directory.resolve(), chosen, by=f"user:{login}", date=date)
    enabled = sorted(settings.load(created.root / ".actum", os.environ).runners)
    refusal = created.untrusted
    following = refusal.remedy if refusal else _next_step(directory, [*map(str, enabled)])
    if command_table.wants_json():
        terminal.document(
            {
                "root": str(created.root),
                "made": list(created.made),
                "pinned": list(created.pinned),
                "settings": list(created.settings),
                "trusted_keys": list(created.trusted),
                "untrusted": None if refusal is None else refusal.message,
                "runners": [kind.value for kind in enabled],
                "next": following,
            }
        )
        return exit_codes.SUCCESS
    if created.made:
        terminal.line(f"Made in {created.root}: {', '.join(created.made)}")
    else:
        terminal.line(f"{created.root} has everything already; nothing was changed.")
    if created.pinned:
        terminal.line(f"Approved tools: {', '.join(created.pinned)}")
    if created.settings:
        terminal.line(f"Approved settings: {', '.join(created.settings)}")
    if created.trusted:
        terminal.line(f"Trusted keys of actum.toml: {', '.join(created.trusted)}")
    terminal.line(f"Enabled runners: {', '.join(enabled) or 'none'}")
    if not enabled:
        terminal.line("No runner is enabled, so every tool will be refused here.")
    if refusal is not None:
        terminal.line(f"Every execution is refused: {refusal.message}")
    terminal.line(f"Next: {following}")
    return exit_codes.SUCCESS


def _next_step(directory: Path, enabled: list[str]) -> str:
    if not enabled:
        return "actum doctor, then enable a runner under [runners] in actum.toml"
    enter = "" if directory == Path() else f"cd {directory} && "
    return f"{enter}echo 'echo hello' | actum exec shell --stdin -"
