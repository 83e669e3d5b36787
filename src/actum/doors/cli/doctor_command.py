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
from actum.value import as_dict, value

if TYPE_CHECKING:
    from actum.runners.base import Capability
    from actum.runners.container.container_runner import ContainerRunner

_REMOTE = "This version has no remote runner. Use the local one: `actum init DIR --runner local`."
_LOCAL = "Or use the sandbox of this host: `actum init DIR --runner local`."
_BARE = (
    "git obeys the configuration of a bare repository that it finds, and a tool can write one."
    " Run: git config --global safe.bareRepository explicit"
)


@click.command("doctor", cls=command_table.Command)
def command() -> int:
    """Show what each runner can enforce on this host, and the remedy for what it cannot.

    Also shows whether a crash of a work item left the project damaged, whether its settings are
    approved, whether the code that decides about durable runs matches its versions, and what to set
    in your own git. Exits with 0 if at least one runner is usable and all of this is in order."""
    from actum.runners.local import LocalRunner
    from actum.runs.policy_surface import unrecorded
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
    containers = _containers(home)
    try:
        containers.remove_leftovers()
        in_containers = containers.capabilities()
        problems = [problem for problem, _remedy in containers.host.problems.values()]
    finally:
        containers.close()
    damaged = _damaged(home)
    decisions = unrecorded()
    advice = [_BARE] if takes_bare_repositories() else []
    found = [
        _Found(name="local", capabilities=capabilities, problems=(), missing=missing),
        _Found(name="docker", capabilities=in_containers, problems=(*problems,), missing=missing),
    ]
    usable = any(each.usable for each in found)
    if command_table.wants_json():
        terminal.document(
            {
                "runners": [*(each.document() for each in found), _ABSENT],
                "build": build,
                "damaged": damaged,
                "run_decisions": list(decisions),
                "settings": settings,
                "advice": advice,
            }
        )
    else:
        for each in found:
            each.tell()
        terminal.line(f"remote: not available. {_REMOTE}")
        for part, sha256 in build.items():
            terminal.line(f"{part}: {sha256 or 'missing'}")
        if settings is not None:
            terminal.line(f"settings: {settings['text']}")
            if not settings["approved"]:
                terminal.line(
                    "  Remedy: every execution is refused. Review the change, then"
                    " `actum config approve --by WHO`."
                )
        for item in damaged:
            terminal.line(f"work item run {item['run_id']}: {item['damage']}")
            terminal.line(
                f"  Remedy: put back what is missing, then `actum item accept {item['run_id']}`."
            )
        for each_changed in decisions:
            terminal.line(f"decisions about runs: {each_changed}")
        if decisions:
            terminal.line(
                "  Remedy: install Actum again; its runs would not do what their contracts say."
            )
        for text in advice:
            terminal.line(f"Advice: {text}")
    approved = settings is None or settings["approved"]
    sound = usable and approved and not damaged and not decisions
    return exit_codes.SUCCESS if sound else exit_codes.FAILED


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


def _containers(home: Path | None) -> ContainerRunner:
    """Of the engine that the project names; without a project of the usual one of this host."""
    from actum import settings as project
    from actum.runners.container.container_runner import ContainerRunner

    if home is None:
        return ContainerRunner()
    settings = project.load(home, os.environ)
    return ContainerRunner(host=settings.docker_host, runtime=settings.docker_runtime)


_ABSENT: Json = {"runner": "remote", "usable": False, "limits": [], "remedy": _REMOTE}


@value
class _Found:
    """What one runner can do here."""

    name: str
    capabilities: tuple[Capability, ...]
    problems: tuple[str, ...]
    missing: str  #: the remedy for a missing native part

    @property
    def usable(self) -> bool:
        return not self.missing and all(each.enforceable for each in self.capabilities)

    @property
    def remedies(self) -> list[str]:
        remedies = [self.missing, *(each.remedy for each in self.capabilities)]
        if self.name == "docker" and any(remedies):
            remedies.append(_LOCAL)
        return [*dict.fromkeys(filter(None, remedies))]

    def document(self) -> Json:
        return {
            "runner": self.name,
            "usable": self.usable,
            "limits": [as_dict(each) for each in self.capabilities],
            "problems": [*self.problems],
            "remedy": " ".join(self.remedies),
        }

    def tell(self) -> None:
        terminal.line(f"{self.name}: {'usable' if self.usable else 'not usable'}")
        for problem in self.problems:
            terminal.line(f"  {problem}")
        if not self.problems:
            table.show(
                (table.whole("  LIMIT"), table.states("ENFORCED"), table.whole("BY")),
                [
                    (f"  {each.limit}", "yes" if each.enforceable else "NO", each.mechanism)
                    for each in self.capabilities
                ],
            )
        for remedy in self.remedies:
            terminal.line(f"  Remedy: {remedy}")
