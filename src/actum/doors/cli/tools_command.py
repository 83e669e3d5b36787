"""`actum tools`: the registry: tools, their state and the decisions about them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from actum.contract.model import Json
from actum.contract.timestamps import utc_text
from actum.doors.cli import command_table, exit_codes, table, terminal
from actum.errors import ContractInvalid, Refused
from actum.value import as_dict

if TYPE_CHECKING:
    from actum.registry.model import Pin, Tool
    from actum.registry.registry import Registry
    from actum.runtime import Runtime

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


@click.group("tools", cls=command_table.Group)
def command() -> None:
    """The registry and its change control."""


@command.command("list")
def list_tools() -> int:
    """List every tool of the project, and whether it may run."""
    with command_table.open_runtime() as runtime:
        registry = runtime.services.registry
        tools, problems = registry.survey()
        rows = [(tool, _state(registry, tool)) for tool in tools]
    if command_table.wants_json():
        terminal.document(
            {
                "tools": [{**_brief(tool), "state": state} for tool, state in rows],
                "problems": [as_dict(problem) for problem in problems],
            }
        )
        return exit_codes.SUCCESS
    table.show(
        (
            *(table.whole("ID"), table.whole("NAME"), table.whole("VERSION")),
            *(table.whole("RUNNER"), table.states("STATE"), "DOES"),
        ),
        [
            (t.tool_id, t.name, t.version, t.permissions.runner.value, state, t.description.strip())
            for t, state in rows
        ],
    )
    for problem in problems:
        terminal.aside(str(problem))
    return exit_codes.SUCCESS


@command.command("show")
@click.argument("tool", metavar="ID|NAME")
def show_tool(tool: str) -> int:
    """Show one tool: its scope, its permissions, its approval."""
    with command_table.open_runtime() as runtime:
        registry = runtime.services.registry
        found = registry.find_tool(tool)
        document = _document(registry, found)
    if command_table.wants_json():
        terminal.document(document)
        return exit_codes.SUCCESS
    import yaml

    terminal.block(yaml.safe_dump(document, sort_keys=False, allow_unicode=True).rstrip())
    return exit_codes.SUCCESS


@command.command("propose")
@click.argument(
    "folder", type=click.Path(path_type=Path, exists=True, file_okay=False), metavar="DIR"
)
def propose_tool(folder: Path) -> int:
    """Validate a tool folder and show what an approval would pin. Changes nothing."""
    from actum.registry.approval_workflow import grants, propose, scope_change

    with command_table.open_runtime() as runtime:
        proposal = propose(runtime.settings.root, folder.resolve())
        if proposal.problems or proposal.tool is None:
            raise ContractInvalid(proposal.problems)
        tool = proposal.tool
        former = _pin(runtime.services.registry, tool)
        wanted = grants(tool)
        change = scope_change(former.grants if former else {}, wanted).value
        home = folder.resolve().parent == runtime.settings.root / "tools"
    approve = f"actum tools approve {tool.tool_id} --by WHO --evidence REF"
    following = approve if home else f"copy the folder to tools/{tool.name}, then: {approve}"
    if command_table.wants_json():
        terminal.document(
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
    terminal.line(f"{tool.tool_id} {tool.name} {tool.version} is well-formed.")
    terminal.line(f"digest {proposal.digest}, {len(proposal.files)} files")
    terminal.line(f"adapters: {', '.join(adapter.adapter_id for adapter in proposal.adapters)}")
    terminal.line(f"scope, compared with what is approved now: {change}")
    for name, value in wanted.items():
        text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
        terminal.line(f"  {name}: {text or 'none'}")
    terminal.line(f"Next: {following}")
    return exit_codes.SUCCESS


@command.command("diff")
@click.argument("tool", metavar="ID|NAME")
def diff_tool(tool: str) -> int:
    """Show what has changed in a tool's folder since it was approved.

    The files and fields that differ, and whether the tool could do more or less if it were approved
    as it is now. Changes nothing. Exits with 1 if something differs.
    """
    from actum.doors.cli.tool_diff_text import diff_document, diff_lines
    from actum.registry.tool_diff import tool_diff

    with command_table.open_runtime() as runtime:
        lock = runtime.services.registry.lock()
        found = tool_diff(runtime.settings.root, runtime.settings.home, lock, tool)
    if command_table.wants_json():
        terminal.document(diff_document(found))
    else:
        for line in diff_lines(found):
            terminal.line(terminal.one_line(line))
    return exit_codes.SUCCESS if found.same else exit_codes.FAILED


def _decision(function: Decorated) -> Decorated:
    """Every decision names its author and its evidence."""
    function = click.option(
        "--evidence", required=True, metavar="REF", help="The evidence for the decision."
    )(function)
    function = click.option("--by", required=True, metavar="WHO", help="Who decides.")(function)
    return click.argument("tool", metavar="ID|NAME")(function)


@command.command("approve")
@_decision
def approve_tool(tool: str, by: str, evidence: str) -> int:
    """Pin the folder of a tool exactly as it is now, so that it may run."""
    from actum.registry.approval_workflow import approve

    return _decide(approve, tool, by, evidence)


@command.command("deprecate")
@_decision
def deprecate_tool(tool: str, by: str, evidence: str) -> int:
    """Withdraw the right to run from an obsolete tool."""
    from actum.registry.approval_workflow import deprecate

    return _decide(deprecate, tool, by, evidence)


@command.command("block")
@_decision
def block_tool(tool: str, by: str, evidence: str) -> int:
    """Withdraw the right to run at once. Only `actum tools unblock` lifts it."""
    from actum.registry.approval_workflow import block

    return _decide(block, tool, by, evidence)


@command.command("unblock")
@click.argument("tool", metavar="ID|NAME")
@click.option("--why", required=True, metavar="TEXT", help="The reason, for the record.")
@click.option("--by", metavar="WHO", help="Who decides; by default the user of this system.")
def unblock_tool(tool: str, why: str, by: str | None) -> int:
    """Lift a block: the last approved version may run again."""
    import os

    from actum.registry.approval_workflow import unblock
    from actum.settings import login_of

    return _decide(unblock, tool, by or f"user:{login_of(os.environ)}", why)


@command.command("history")
@click.argument("tool", required=False, metavar="[ID|NAME]")
def tool_history(tool: str | None) -> int:
    """List the decisions about a tool, or about all, oldest first."""
    from actum.registry.approval_workflow import history

    with command_table.open_runtime() as runtime:
        tool_id = _tool_id(runtime, tool) if tool else None
        changes = history(runtime.settings.root, runtime.keyring.approving, tool_id)
    if command_table.wants_json():
        terminal.document({"history": [as_dict(change) for change in changes]})
        return exit_codes.SUCCESS
    table.show(
        (
            *(table.whole("DATE"), table.whole("TOOL"), table.whole("VERSION")),
            *(table.states("DECISION"), table.whole("SCOPE"), "BY", "ROLE", "EVIDENCE"),
        ),
        [
            (c.date, c.tool_id, c.version, c.action, c.scope_change.value, c.by, c.role, c.evidence)
            for c in changes
        ],
    )
    return exit_codes.SUCCESS


def _decide(decision: Callable[..., Pin], tool: str, by: str, evidence: str) -> int:
    date = utc_text(datetime.now(UTC))
    with command_table.open_runtime() as runtime:
        tool_id = _tool_id(runtime, tool)
        root, keyring = runtime.settings.root, runtime.keyring
        pin = decision(root, keyring, tool_id, by=by, evidence=evidence, date=date)
    if command_table.wants_json():
        terminal.document(as_dict(pin))
    else:
        terminal.line(f"{pin.tool_id} {pin.name} {pin.version} is {pin.status}: {pin.digest}")
        if pin.status == "blocked":
            terminal.line(f"Only `actum tools unblock {pin.name} --why TEXT` lets it run again.")
    return exit_codes.SUCCESS


def _tool_id(runtime: Runtime, tool: str) -> str:
    """The id of a name, also of a pinned tool whose folder is missing."""
    pin = runtime.services.registry.lock().pin(tool)
    return pin.tool_id if pin else runtime.services.registry.find_tool(tool).tool_id


def _pin(registry: Registry, tool: Tool) -> Pin | None:
    return registry.lock().pin(tool.tool_id)


def _state(registry: Registry, tool: Tool) -> str:
    """`blocked`, the code with which the registry would refuse, or that it may run."""
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
    from actum.registry.approval_workflow import grants

    pin = _pin(registry, tool)
    approval = pin and {
        "approver": pin.approver,
        "role": pin.role,
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
