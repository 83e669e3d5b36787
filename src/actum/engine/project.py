"""`actum init`: a project from nothing, or what is missing of one."""

from __future__ import annotations

from pathlib import Path

from actum.contract.model import RunnerKind
from actum.registry.change import approve
from actum.registry.lock import lock_bytes
from actum.registry.ship import ship
from actum.store.database import Database
from actum.store.keys import Keyring
from actum.value import value

_TOML = """\
# What this project enables. Every setting: docs/configuration.md

[runners]
# A tool runs only where its approved tool.yaml says, and only if that runner is enabled here.
local = {local}
docker = {docker}

[trust]
# Public keys (PEM) whose approvals in tools.lock count here, beside this project's own key.
keys = []
"""
_RULES = """\
Rules of this project live here. No tool can write to this folder, and it must exist: a folder
that is missing could be created by a tool.
"""
_IGNORE = "*\n"


@value
class Created:
    root: Path
    made: tuple[str, ...]  #: what was added, relative to the root
    pinned: tuple[str, ...]  #: names of the tools that were approved


def create(root: Path, runner: RunnerKind, *, by: str, date: str) -> Created:
    """Add what a project needs and does not have; nothing that exists is touched."""
    made = []
    root.mkdir(parents=True, exist_ok=True)
    home = root / ".actum"
    if not home.exists():
        home.mkdir(mode=0o700)
        (home / ".gitignore").write_text(_IGNORE)
        made.append(".actum/")
    keyring = Keyring.open(home, create=True)
    Database.open(home).close()
    if not (root / "actum.toml").exists():
        enabled = {kind: str(runner is kind).lower() for kind in RunnerKind}
        (root / "actum.toml").write_text(
            _TOML.format(local=enabled[RunnerKind.LOCAL], docker=enabled[RunnerKind.DOCKER])
        )
        made.append("actum.toml")
    if not (root / "rules").exists():
        (root / "rules").mkdir()
        (root / "rules" / "README.md").write_text(_RULES)
        made.append("rules/")
    pinned: list[str] = []
    if not (root / "tools").exists() and lock_bytes(root) is None:
        for folder in ship(root / "tools", runner):
            approve(root, keyring, folder.name, by=by, evidence="shipped with actum", date=date)
            pinned.append(folder.name)
        made += ["tools/", "tools.lock"]
    return Created(root=root, made=tuple(made), pinned=tuple(pinned))
