"""`actum config`: the settings in force, and their approval."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from actum.contract.model import Json
from actum.contract.timestamps import utc_text
from actum.doors.cli import command_table, exit_codes, terminal
from actum.value import as_dict

if TYPE_CHECKING:
    from actum.registry.pinned_settings import Difference, SettingsState
    from actum.settings import Settings


@click.group("config", cls=command_table.Group)
def command() -> None:
    """Show and approve the settings in force."""


@command.command("show")
def show_config() -> int:
    """Show every setting and its value."""
    found = _settings()
    document: dict[str, Json] = {
        "root": str(found.root),
        "home": str(found.home),
        "login": found.login,
        "runners": sorted(kind.value for kind in found.runners),
        "docker.host": found.docker_host,
        "docker.runtime": found.docker_runtime,
        "trust.keys": list(found.trusted_keys),
        "filesystem.dependencies": list(found.dependencies),
        "interpreters.prefixes": list(found.interpreters),
        "network.registries": list(found.registries(()).hosts),
        "network.apis": list(found.apis),
        "egress.resolve": [f"{name} = {place}" for name, place in found.resolve.items()],
        "egress.ca_file": found.ca_file,
        "mcp.websocket": "true" if found.mcp_websocket else "false",
        "egress.max_connections": found.egress_connections,
        "egress.max_at_once": found.egress_at_once,
        "egress.max_mb": found.egress_mb,
        "limits.max_concurrent": found.max_concurrent,
        "limits.max_queued": found.max_queued,
        "limits.max_wait_s": found.max_wait_s,
        "limits.max_sessions": found.max_sessions,
        "work.engine": found.work_engine,
        "workspace.changes": "transaction" if found.transactions else "direct",
        "workspace.on_stop": "commit" if found.commit_when_stopped else "discard",
        "workspace.last_wins": ", ".join(found.last_wins),
        "workspace.keep": found.keep_changes,
        "workspace.keep_mb": found.keep_changes_mb,
        "workspace.engine": found.workspace_engine,
        "workspace.copy_max_mb": found.copy_max_mb,
        "workspace.copy_max_files": found.copy_max_files,
        "protect.names": ", ".join(found.protected_names),
        "work.exclusive": found.work_exclusive,
        "work.ignore": ", ".join(found.work_ignore),
        "runs.store": found.runs_store,
        "runs.password": found.runs_password,
        "runs.dead_after_s": found.runs_dead_after_s,
        "secrets": [f"{name} (from {source})" for name, source in found.secrets.items()],
        "approvers": [
            f"{name} ({', '.join(given['roles'])})"
            for name, given in found.file.values.get("approvers", {}).items()
        ],
    }
    if command_table.wants_json():
        terminal.document(document)
        return exit_codes.SUCCESS
    for name, value in document.items():
        text = ", ".join(value) if isinstance(value, list) else value
        terminal.line(f"{name}: {'none' if text in ('', None) else text}")
    return exit_codes.SUCCESS


@command.command("diff")
def diff_config() -> int:
    """Show the differences between actum.toml and the approved settings, key by key.

    Exits 0 if there are none, 1 if there are some: then every execution is refused.
    """
    from actum.registry.pinned_settings import settings_state

    found = _settings()
    state = settings_state(found.file, found.home)
    if command_table.wants_json():
        terminal.document(_state_document(state))
    else:
        _tell(state)
    return exit_codes.SUCCESS if state.approved else exit_codes.FAILED


@command.command("approve")
@click.option("--by", required=True, metavar="WHO", help="Who approves.")
@click.option("--why", default="", metavar="TEXT", help="The reason, for the record.")
def approve_config(by: str, why: str) -> int:
    """Pin the settings of actum.toml, exactly as they are now, in the signed tools.lock."""
    from actum.contract.os_user import os_user
    from actum.registry.pinned_settings import approve_settings

    found = _settings()
    date = utc_text(datetime.now(UTC))
    changed = approve_settings(found.root, found.home, by=by, user=os_user(), date=date, why=why)
    if command_table.wants_json():
        terminal.document({"approved": [as_dict(each) for each in changed], "by": by})
        return exit_codes.SUCCESS
    for line in _lines(changed):
        terminal.line(line)
    terminal.line(f"The settings of {found.root / 'actum.toml'} are approved by {by}.")
    return exit_codes.SUCCESS


def settings_note(found: Settings) -> dict[str, Json]:
    """Whether the settings are approved, for other commands to report."""
    from actum.registry.pinned_settings import settings_state

    state = settings_state(found.file, found.home)
    names = [each.setting for each in state.differences]
    if state.approved:
        text = "as approved"
    elif names:
        text = f"not approved: {', '.join(names)}; see `actum config diff`"
    else:
        text = "not approved; see `actum config diff`"
    return {"approved": state.approved, "changed": names, "text": text}


def _settings() -> Settings:
    from actum import settings

    return settings.load(settings.discover(Path.cwd(), command_table.given_home()), os.environ)


def _state_document(state: SettingsState) -> dict[str, Json]:
    return {
        "approved": state.approved,
        "differences": [as_dict(each) for each in state.differences],
        "approval": None if state.approval is None else as_dict(state.approval),
        "unapproved_keys": list(state.unapproved_keys),
        "lock_trusted": state.lock_trusted,
    }


def _tell(state: SettingsState) -> None:
    for line in _lines(state.differences):
        terminal.line(line)
    for keyid in state.unapproved_keys:
        terminal.line(
            f"trust.keys: {keyid} is not trusted in this home before it is approved here."
        )
    if not state.lock_trusted:
        terminal.line("tools.lock is not signed by a trusted key.")
    if not state.approved:
        terminal.line("Every execution is refused. Next: actum config approve --by WHO --why TEXT")
    elif state.approval is None:
        terminal.line("Nothing here needs an approval.")
    else:
        approval = state.approval
        who = f"{approval.approver} (user {approval.user}, uid {approval.uid})"
        terminal.line(f"As approved by {who} on {approval.date}.")


def _lines(differences: tuple[Difference, ...]) -> list[str]:
    return [
        f"{each.setting}: {_shown(each.setting, each.old)} → {_shown(each.setting, each.new)}"
        f"  ({each.because})"
        for each in differences
    ]


def _shown(setting: str, value: Json) -> str:
    if value is None:
        return "not set"
    if setting == "trust.keys":
        from actum.store.keys import named_keys

        value = [key.keyid for key in named_keys(value)]
    return json.dumps(value, sort_keys=True)
