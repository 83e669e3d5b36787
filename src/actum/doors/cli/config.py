"""`actum config`: the settings in force, as read from actum.toml and the environment."""

from __future__ import annotations

import os
from pathlib import Path

import click

from actum.contract.model import Json
from actum.doors.cli import exit_codes, say, words


@click.group("config", cls=words.Group)
def command() -> None:
    """The settings in force."""


@command.command("show")
def show_config() -> int:
    """Every setting and its value."""
    from actum import settings

    found = settings.load(settings.discover(Path.cwd(), words.given_home()), os.environ)
    document: dict[str, Json] = {
        "root": str(found.root),
        "home": str(found.home),
        "login": found.login,
        "runners": sorted(kind.value for kind in found.runners),
        "trust.keys": list(found.trusted_keys),
        "filesystem.dependencies": list(found.dependencies),
        "network.registries": list(found.registries),
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
        "work.exclusive": found.work_exclusive,
        "secrets": [f"{name} (from {source})" for name, source in found.secrets.items()],
    }
    if words.wants_json():
        say.document(document)
        return exit_codes.SUCCESS
    for name, value in document.items():
        text = ", ".join(value) if isinstance(value, list) else value
        say.line(f"{name}: {'none' if text in ('', None) else text}")
    return exit_codes.SUCCESS
