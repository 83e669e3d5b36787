"""`actum tools`: what exists, what may run, and who decided so."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from actum.contract.model import Json
from actum.doors.cli import exit_codes, say, words
from actum.errors import ContractInvalid, Refused
from actum.value import as_dict

if TYPE_CHECKING:
    from actum.registry.model import Pin, Tool
    from actum.registry.registry import Registry
    from actum.wiring import Runtime

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


@click.group("tools", cls=words.Group)
def command() -> None:
    """The registry and its change control."""


@command.command("list")
def list_tools() -> int:
    """Every tool of the project, and whether it may run."""
    with words.open_runtime() as runtime:
        registry = runtime.rooms.registry
        tools, problems = registry.survey()
        rows = [(tool, _state(registry, tool)) for tool in tools]
    if words.wants_json():
        say.document(
            {
                "tools": [{**_brief(tool), "state": state} for tool, state in rows],
                "problems": [as_dict(problem) for problem in problems],
            }
        )
        return exit_codes.SUCCESS
    say.table(
        ("ID", "NAME", "VERSION", "RUNNER", "STATE", "DOES"),
        [
            (t.tool_id, t.name, t.version, t.permissions.runner.value, state, t.description.strip())
            for t, state in rows
        ],
    )
    for problem in problems:
        say.aside(str(problem))
    return exit_codes.SUCCESS


@command.command("show")
@click.argument("tool", metavar="ID|NAME")
def show_tool(tool: str) -> int:
    """One tool: its scope, its permissions, its approval."""
    with words.open_runtime() as runtime:
        registry = runtime.rooms.registry
        found = registry.find_tool(tool)
        document = _document(registry, found)
    if words.wants_json():
        say.document(document)
        return exit_codes.SUCCESS
    import yaml

    say.block(yaml.safe_dump(document, sort_keys=False, allow_unicode=True).rstrip())
    return exit_codes.SUCCESS


@command.command("propose")
@click.argument(
    "folder", type=click.Path(path_type=Path, exists=True, file_okay=False), metavar="DIR"
)
def propose_tool(folder: Path) -> int:
    """Validate a tool folder and say what an approval would pin. Changes nothing."""
    from actum.registry.change import grants, propose, scope_change

    with words.open_runtime() as runtime:
        proposal = propose(runtime.settings.root, folder.resolve())
        if proposal.problems or proposal.tool is None:
            raise ContractInvalid(proposal.problems)
        tool = proposal.tool
        former = _pin(runtime.rooms.registry, tool)
        wanted = grants(tool)
        change = scope_change(former.grants if former else {}, wanted).value
        home = folder.resolve().parent == runtime.settings.root / "tools"
    approve = f"actum tools approve {tool.tool_id} --by WHO --evidence REF"
    following = approve if home else f"copy the folder to tools/{tool.name}, then: {approve}"
    if words.wants_json():
        say.document(
            {
                **_brief(tool),
                "digest": proposal.digest,
                "files": dict(proposal.files),
                "adapters": [adapter.adapter_id for adapter in proposal.adapters],
                "grants": wanted,
                "scope_change": change,
                "next": following,
            }
        )
        return exit_codes.SUCCESS
    say.line(f"{tool.tool_id} {tool.name} {tool.version} is well-formed.")
    say.line(f"digest {proposal.digest}, {len(proposal.files)} files")
    say.line(f"adapters: {', '.join(adapter.adapter_id for adapter in proposal.adapters)}")
    say.line(f"scope, compared with what is approved now: {change}")
    for name, value in wanted.items():
        text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
        say.line(f"  {name}: {text or 'none'}")
    say.line(f"Next: {following}")
    return exit_codes.SUCCESS


def _decision(function: Decorated) -> Decorated:
    """Every decision names who took it and on what evidence."""
    function = click.option("--evidence", required=True, metavar="REF", help="On what evidence.")(
        function
    )
    function = click.option("--by", required=True, metavar="WHO", help="Who decides.")(function)
    return click.argument("tool", metavar="ID|NAME")(function)


@command.command("approve")
@_decision
def approve_tool(tool: str, by: str, evidence: str) -> int:
    """Pin the folder of a tool exactly as it is now, so that it may run."""
    from actum.registry.change import approve

    return _decide(approve, tool, by, evidence)


@command.command("deprecate")
@_decision
def deprecate_tool(tool: str, by: str, evidence: str) -> int:
    """Withdraw the right to run, so that nobody depends on the tool any more."""
    from actum.registry.change import deprecate

    return _decide(deprecate, tool, by, evidence)


@command.command("block")
@_decision
def block_tool(tool: str, by: str, evidence: str) -> int:
    """Withdraw the right to run at once. Only `actum tools unblock` lifts it."""
    from actum.registry.change import block

    return _decide(block, tool, by, evidence)


@command.command("unblock")
@click.argument("tool", metavar="ID|NAME")
@click.option("--why", required=True, metavar="TEXT", help="The reason, for the record.")
@click.option("--by", metavar="WHO", help="Who decides; by default the user of this system.")
def unblock_tool(tool: str, why: str, by: str | None) -> int:
    """Lift a block: what was approved last may run again."""
    import os

    from actum.registry.change import unblock
    from actum.settings import login_of

    return _decide(unblock, tool, by or f"user:{login_of(os.environ)}", why)


@command.command("history")
@click.argument("tool", required=False, metavar="[ID|NAME]")
def tool_history(tool: str | None) -> int:
    """What was decided about a tool, or about all, oldest first."""
    from actum.registry.change import history

    with words.open_runtime() as runtime:
        tool_id = _tool_id(runtime, tool) if tool else None
        changes = history(runtime.settings.root, runtime.keyring.approving, tool_id)
    if words.wants_json():
        say.document({"history": [as_dict(change) for change in changes]})
        return exit_codes.SUCCESS
    say.table(
        ("DATE", "TOOL", "VERSION", "DECISION", "SCOPE", "BY", "EVIDENCE"),
        [
            (c.date, c.tool_id, c.version, c.action, c.scope_change.value, c.by, c.evidence)
            for c in changes
        ],
    )
    return exit_codes.SUCCESS


def _decide(decision: Callable[..., Pin], tool: str, by: str, evidence: str) -> int:
    date = datetime.now(UTC).date().isoformat()
    with words.open_runtime() as runtime:
        tool_id = _tool_id(runtime, tool)
        root, keyring = runtime.settings.root, runtime.keyring
        pin = decision(root, keyring, tool_id, by=by, evidence=evidence, date=date)
    if words.wants_json():
        say.document(as_dict(pin))
    else:
        say.line(f"{pin.tool_id} {pin.name} {pin.version} is {pin.status}: {pin.digest}")
        if pin.status == "blocked":
            say.line(f"Only `actum tools unblock {pin.name} --why TEXT` lets it run again.")
    return exit_codes.SUCCESS


def _tool_id(runtime: Runtime, tool: str) -> str:
    """The id behind a name, also of a pinned tool whose folder is gone."""
    pin = runtime.rooms.registry.lock().pin(tool)
    return pin.tool_id if pin else runtime.rooms.registry.find_tool(tool).tool_id


def _pin(registry: Registry, tool: Tool) -> Pin | None:
    return registry.lock().pin(tool.tool_id)


def _state(registry: Registry, tool: Tool) -> str:
    """Blocked, or the code with which the registry would refuse, or that it would not."""
    adapters = registry.adapters(tool)
    try:
        pin = _pin(registry, tool)
        if "blocked" in (tool.status, pin.status if pin else ""):
            return "blocked"
        registry.entry(tool.tool_id, adapters[0].adapter_id if adapters else None)
    except Refused as refusal:
        return refusal.code
    return "approved"


def _brief(tool: Tool) -> dict[str, Json]:
    return {
        "tool_id": tool.tool_id,
        "name": tool.name,
        "version": tool.version,
        "owner": tool.owner,
        "description": tool.description.strip(),
        "runner": tool.permissions.runner.value,
    }


def _document(registry: Registry, tool: Tool) -> dict[str, Json]:
    from actum.registry.change import grants

    pin = _pin(registry, tool)
    approval = pin and {
        "approver": pin.approver,
        "date": pin.date,
        "evidence": pin.evidence,
        "digest": pin.digest,
        "status": pin.status.value,
    }
    return {
        **_brief(tool),
        "state": _state(registry, tool),
        "provenance": dict(tool.provenance),
        "grants": grants(tool),
        "args_schema": tool.args_schema,
        "adapters": [
            {
                "adapter_id": each.adapter_id,
                "name": each.name,
                "type": each.kind.value,
                "status": each.status.value,
            }
            for each in registry.adapters(tool)
        ],
        "approval": approval,
        "last_review": tool.last_review,
        "next_review": tool.next_review,
        "folder": tool.folder,
    }
