"""`actum init`: creates a project, or adds what one is missing."""

from __future__ import annotations

from pathlib import Path

from actum.contract.model import RunnerKind
from actum.contract.os_user import os_user
from actum.errors import Refused
from actum.registry.approval_workflow import approve_together
from actum.registry.lock import lock_bytes, parse_lock, read_lock
from actum.registry.pinned_settings import approve_settings
from actum.registry.registry import Registry
from actum.registry.ship import ship
from actum.settings_file import read_settings
from actum.store.anchor import write_anchor
from actum.store.database import Database
from actum.store.keys import Keyring, named_keys
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
The rules of this project are in this folder. No tool can write to it, and it must exist: a tool
could create a folder that is missing.
"""
_IGNORE = "*\n"


@value
class Created:
    root: Path
    made: tuple[str, ...]  #: what was added, relative to the root
    pinned: tuple[str, ...]  #: names of the tools that were approved
    settings: tuple[str, ...]  #: keys of actum.toml that were approved
    trusted: tuple[str, ...]  #: ids of foreign keys that count in the new home
    untrusted: Refused | None  #: why every execution is refused: the lock of a clone, usually


def create(root: Path, runner: RunnerKind | None, *, by: str, date: str) -> Created:
    """Add what a project needs and does not have. Existing files are not changed. Without `runner`
    only a project that names its runners already, as a clone does."""
    runner = runner or _runner_named_by(root)
    made = []
    root.mkdir(parents=True, exist_ok=True)
    home = root / ".actum"
    is_new = not home.exists()
    has_lock = lock_bytes(root) is not None
    if is_new:
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
    if not (root / "tools").exists() and not has_lock:
        shipped, registry = ship(root / "tools", runner), Registry(root, keyring.approving)
        pins = approve_together(
            root,
            keyring,
            [folder.name for folder in shipped],
            by=by,
            evidence="shipped with actum",
            date=date,
            registry=registry,
        )
        pinned += [pin.name for pin in pins]
        made += ["tools/", "tools.lock"]
    settings: tuple[str, ...] = ()
    # Only with a new home or our own file: running `init` again approves no edit.
    if not has_lock and (is_new or "actum.toml" in made):
        approved = approve_settings(root, home, by=by, user=os_user(), date=date, why="actum init")
        settings = tuple(each.setting for each in approved)
    trusted = _trusted_from_now(root, home, keyring) if is_new and has_lock else ()
    return Created(
        root=root,
        made=tuple(made),
        pinned=tuple(pinned),
        settings=settings,
        trusted=trusted,
        untrusted=_objection_to_lock(root, home),
    )


def _runner_named_by(root: Path) -> RunnerKind:
    """Docker, the default: where a project has tools and settings already, which name their own
    runner, or where an engine answers. Else a refusal."""
    has_tools = (root / "tools").exists() or lock_bytes(root) is not None
    if (root / "actum.toml").exists() and has_tools:
        return RunnerKind.DOCKER
    from actum.runners.container.container_runner import ContainerRunner  # few commands need it

    for problem, remedy in ContainerRunner().host.problems.values():
        raise Refused(
            "RUNNER_UNAVAILABLE",
            f"The default runner is docker, and {problem}. Nothing was created.",
            remedy=f"{remedy} Or use the sandbox of this host: `actum init --runner local`.",
        )
    return RunnerKind.DOCKER


def _objection_to_lock(root: Path, home: Path) -> Refused | None:
    trust = read_settings(root).get("trust", "keys")
    try:
        read_lock(root, Keyring.open(home, trust=trust).approving)
    except Refused as refusal:
        return refusal
    return None


def _trusted_from_now(root: Path, home: Path, keyring: Keyring) -> tuple[str, ...]:
    """In a clone, trust the keys that its settings name, if they signed its lock.

    A lock without settings is left to `actum config approve`: its signature does not cover them.
    """
    keys = {key.keyid: key for key in named_keys(read_settings(root).get("trust", "keys"))}
    try:
        lock = parse_lock(lock_bytes(root), {**keyring.approving, **keys})
    except Refused:
        return ()  # the first execution reports it, with the remedy
    if lock.settings is None:
        return ()
    write_anchor(home, keys)
    return tuple(keys)
