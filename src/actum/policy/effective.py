"""The effective policy: the intersection of all policy sources.

Table default ← adapter override ← explicit request; then never more than the tool's permissions,
its scope, or the time left. An override may raise a default up to the table's maximum; it never
raises a requested value and never widens the scope. A right that needs a person's approval is
part of the policy only if it is in `granted`; missing approvals are returned beside the policy.

Proved never to be wider than any of its inputs by tests/unit/policy/test_effective.py.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from actum.contract.call import EffectivePolicy, Narrowed
from actum.contract.limits import (
    CPU_CORES,
    MAX_CHILDREN,
    MEMORY_MB,
    RANGES,
    TIMEOUT_MS,
    Limits,
    Range,
)
from actum.contract.model import ChangesMode, Contract, SandboxRequest
from actum.errors import Violation
from actum.policy.changes_mode import changes_mode
from actum.policy.environment import approved_names
from actum.policy.filesystem import reachable
from actum.policy.gates import BY_PIN, FIRST_USE, NETWORK, ApprovalNeeded, Granted
from actum.policy.network import connected
from actum.policy.policy_settings import PolicySettings
from actum.registry.model import Entry, SandboxOverride
from actum.registry.path_snapshot import PathSnapshot

__all__ = ["PolicySettings", "effective_policy"]


def effective_policy(
    contract: Contract,
    entry: Entry,
    settings: PolicySettings,
    granted: tuple[Granted, ...] = (),
    snapshot: PathSnapshot | None = None,
) -> tuple[EffectivePolicy, tuple[Violation, ...], tuple[ApprovalNeeded, ...]]:
    """What the call may do, every way in which it requests more, and the approvals it lacks."""
    given = {grant.need: grant for grant in granted}
    mode, refused_mode = changes_mode(contract.sandbox.filesystem.changes, entry, settings)
    apart = mode is ChangesMode.TRANSACTION
    files = reachable(
        contract, entry.tool, settings, frozenset(given), snapshot=snapshot or PathSnapshot()
    )
    hosts = connected(contract.sandbox.network, entry, settings, frozenset(given))
    limits, lowered = _limits(contract.sandbox, entry, settings.time_left_ms)
    needed = (*files.needed, *hosts.needed)
    approvals = [f"{FIRST_USE}:{BY_PIN}"]
    if hosts.policy.enabled:
        approvals.append(f"{NETWORK}:{BY_PIN}")
    # Only approvals that this call uses: others are not mentioned.
    approvals += [given[need].entry for need in needed if need in given]
    policy = EffectivePolicy(
        runner=entry.tool.permissions.runner,
        limits=limits,
        read=files.read,
        write=files.write,
        deny=files.deny,
        protect=files.protect,
        transaction=apart and bool(files.write),
        network=hosts.policy,
        environment=approved_names(entry),
        approvals=tuple(approvals),
        narrowed=(*lowered, *files.narrowed),
    )
    violations = (
        *_override_out_of_range(entry.adapter.override),
        *_no_time(limits),
        *files.violations,
        *refused_mode,
        *hosts.violations,
    )
    return policy, violations, tuple(need for need in needed if need not in given)


def _limits(
    request: SandboxRequest, entry: Entry, time_left_ms: int | None
) -> tuple[Limits, tuple[Narrowed, ...]]:
    """The limits in force, and those that are lower than the request names."""
    override, ceiling = entry.adapter.override, entry.tool.permissions
    longest_ms = None if ceiling.max_duration_s is None else ceiling.max_duration_s * 1_000
    processes = request.processes
    asked = {
        "timeout_ms": _chosen(TIMEOUT_MS, override.timeout_ms, request.timeout_ms),
        "memory_mb": _chosen(MEMORY_MB, override.memory_mb, request.memory_mb),
        "cpu_cores": _chosen(CPU_CORES, None, request.cpu_cores),
    }
    ceilings: dict[str, dict[str, int | None]] = {
        "timeout_ms": {"max_duration_sec": longest_ms, _TIME_LEFT: time_left_ms},
        "memory_mb": {"max_memory_mb": ceiling.max_memory_mb},
        "cpu_cores": {"max_cpu_cores": ceiling.max_cpu_cores},
    }
    given = {name: _least(value, *ceilings[name].values()) for name, value in asked.items()}
    limits = Limits(
        **given,
        max_children=_chosen(MAX_CHILDREN, None, processes.max_children),
        allow_fork=processes.allow_fork is not False,
    )
    if given == asked:
        return limits, ()
    return limits, tuple(
        Narrowed(
            field=f"sandbox.{name}",
            asked=str(asked[name]),
            given=str(value),
            by=_lowest(ceilings[name]),
        )
        for name, value in given.items()
        # A ceiling that lowers a default takes nothing from the request.
        if getattr(request, name) is not None and value < asked[name]
    )


#: In place of a field of tool.yaml.
_TIME_LEFT = "the time left of the enclosing work"


def _lowest(ceilings: Mapping[str, int | None]) -> str:
    """The name of the lowest ceiling."""
    name = min(
        (name for name, value in ceilings.items() if value is not None),
        key=lambda name: ceilings[name] or 0,
    )
    return name if name == _TIME_LEFT else f"permissions.execution.{name} of the tool"


def _chosen(table: Range, override: int | None, request: int | None) -> int:
    if request is not None:
        return request
    return table.default if override is None else min(override, table.most)


def _least(value: int, *ceilings: int | None) -> int:
    return max(0, min([value, *(ceiling for ceiling in ceilings if ceiling is not None)]))


def _override_out_of_range(override: SandboxOverride) -> Iterator[Violation]:
    for name in ("timeout_ms", "memory_mb"):
        value, permitted = getattr(override, name), RANGES[name]
        if value is not None and not permitted.least <= value <= permitted.most:
            yield Violation(
                code="LIMIT_OUT_OF_RANGE",
                field=f"sandbox_override.{name}",
                value=str(value),
                message=f"The adapter's {name} {value} is outside {permitted}; fix the adapter.",
            )


def _no_time(limits: Limits) -> Iterator[Violation]:
    if limits.timeout_ms == 0:
        yield Violation(
            code="NO_TIME_LEFT",
            field="sandbox.timeout_ms",
            value="0",
            message="The enclosing work has no time left for this execution.",
        )
