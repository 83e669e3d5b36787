"""The permissions of one run: never wider than those of the tool, and never silently narrower.

A caller of `run_tool` states what the run may do. Anything beyond the tool's approved permissions
is a violation, and so is anything that policy would reduce: the permissions that were given are
those that are applied, or nothing runs.
"""

from __future__ import annotations

from collections.abc import Iterator

from actum.contract.call import EffectivePolicy
from actum.errors import Violation
from actum.registry.given_permissions import FIELD, GivenPermissions
from actum.registry.model import AdapterKind, Entry
from actum.value import replace


def within(entry: Entry, given: GivenPermissions) -> tuple[Entry, tuple[Violation, ...]]:
    """`entry` with the permissions of this run, and every way in which they are wider."""
    own = entry.tool.permissions
    permissions = replace(
        own,
        outbound=tuple(name for name in own.outbound if name in given.outbound),
        secrets=tuple(name for name in own.secrets if name in given.secrets),
    )
    tool = replace(entry.tool, permissions=permissions)
    return replace(entry, tool=tool), (*_wider(entry, given), *_shared(entry, given))


def _wider(entry: Entry, given: GivenPermissions) -> Iterator[Violation]:
    own, tool_id = entry.tool.permissions, entry.tool.tool_id
    for field, names, permitted in (
        ("network.outbound", given.outbound, own.outbound),
        ("secrets.allowed", given.secrets, own.secrets),
    ):
        for name in names:
            if name not in permitted:
                listed = ", ".join(permitted) or "none"
                yield _exceeded(field, name, f"{tool_id} has {listed}; leave {name} out.")
    if given.runner is not None and given.runner is not own.runner:
        yield _exceeded(
            "execution.runner",
            given.runner.value,
            f"{tool_id} runs on {own.runner.value}; leave the field out.",
        )
    for field, value, most in (
        ("execution.max_duration_sec", given.max_duration_s, own.max_duration_s),
        ("execution.max_memory_mb", given.max_memory_mb, own.max_memory_mb),
        ("execution.max_cpu_cores", given.max_cpu_cores, own.max_cpu_cores),
    ):
        if value is not None and most is not None and value > most:
            yield _exceeded(field, str(value), f"{tool_id} has at most {most}.")


def _shared(entry: Entry, given: GivenPermissions) -> Iterator[Violation]:
    """An MCP server may be kept for several callers, with the permissions of its tool."""
    own = entry.tool.permissions
    if entry.adapter.kind is not AdapterKind.MCP:
        return
    for field, mine, all_of_them in (
        ("network.outbound", given.outbound, own.outbound),
        ("secrets.allowed", given.secrets, own.secrets),
    ):
        if not set(all_of_them) <= set(mine):
            yield Violation(
                code="LIMIT_NOT_ENFORCEABLE",
                field=f"{FIELD}.{field}",
                value=", ".join(mine),
                message=f"{FIELD}.{field}: the server of {entry.tool.tool_id} has"
                f" {', '.join(all_of_them)}, and several calls share it. Give all of them.",
            )


def reduced(policy: EffectivePolicy) -> tuple[Violation, ...]:
    """The parts of a run's permissions of which policy would grant less."""
    return tuple(
        Violation(
            code="SCOPE_EXCEEDED",
            field=each.field,
            value=each.asked,
            message=f"{each.field} {each.asked} exceeds {each.by}; give at most"
            f" {each.given or 'nothing'}.",
        )
        for each in policy.narrowed
    )


def _exceeded(field: str, value: str, why: str) -> Violation:
    return Violation(
        code="SCOPE_EXCEEDED",
        field=f"{FIELD}.{field}",
        value=value,
        message=f"{FIELD}.{field} {value} is wider than the tool's permissions: {why}",
    )
