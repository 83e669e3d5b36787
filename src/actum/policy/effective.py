"""The effective policy: everything that has a say, intersected.

Table default ← adapter override ← explicit request; then never more than the tool's permissions,
its scope, or the time left. An override may raise a default up to the table's maximum; it never
raises what was asked for and never widens the scope. What needs a person's approval is part of
the policy only if it is among `granted`; what is missing is reported beside the policy.

Proved never to be wider than any of its inputs by tests/unit/policy/test_effective.py.
"""

from __future__ import annotations

from collections.abc import Iterator

from actum.contract.call import EffectivePolicy
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
from actum.policy.settings import PolicySettings
from actum.registry.looks import Looks
from actum.registry.model import Entry, SandboxOverride

__all__ = ["PolicySettings", "effective_policy"]


def effective_policy(
    contract: Contract,
    entry: Entry,
    settings: PolicySettings,
    granted: tuple[Granted, ...] = (),
    looks: Looks | None = None,
) -> tuple[EffectivePolicy, tuple[Violation, ...], tuple[ApprovalNeeded, ...]]:
    """What the call may do, every way in which it asks for more, and the approvals it lacks."""
    given = {grant.need: grant for grant in granted}
    mode, refused_mode = changes_mode(contract.sandbox.filesystem.changes, entry, settings)
    apart = mode is ChangesMode.TRANSACTION
    files = reachable(contract, entry.tool, settings, frozenset(given), looks=looks or Looks())
    hosts = connected(contract.sandbox.network, entry, settings, frozenset(given))
    limits = _limits(contract.sandbox, entry, settings.time_left_ms)
    needed = (*files.needed, *hosts.needed)
    approvals = [f"{FIRST_USE}:{BY_PIN}"]
    if hosts.policy.enabled:
        approvals.append(f"{NETWORK}:{BY_PIN}")
    # Only those that this call rests on: an approval of something else is not mentioned.
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
    )
    violations = (
        *_override_out_of_range(entry.adapter.override),
        *_no_time(limits),
        *files.violations,
        *refused_mode,
        *hosts.violations,
    )
    return policy, violations, tuple(need for need in needed if need not in given)


def _limits(request: SandboxRequest, entry: Entry, time_left_ms: int | None) -> Limits:
    override, ceiling = entry.adapter.override, entry.tool.permissions
    longest_ms = None if ceiling.max_duration_s is None else ceiling.max_duration_s * 1_000
    processes = request.processes
    return Limits(
        timeout_ms=_least(
            _chosen(TIMEOUT_MS, override.timeout_ms, request.timeout_ms), longest_ms, time_left_ms
        ),
        memory_mb=_least(
            _chosen(MEMORY_MB, override.memory_mb, request.memory_mb), ceiling.max_memory_mb
        ),
        cpu_cores=_least(_chosen(CPU_CORES, None, request.cpu_cores), ceiling.max_cpu_cores),
        max_children=_chosen(MAX_CHILDREN, None, processes.max_children),
        allow_fork=processes.allow_fork is not False,
    )


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
                message=f"The adapter's {name} {value} is outside {permitted}; mend the adapter.",
            )


def _no_time(limits: Limits) -> Iterator[Violation]:
    if limits.timeout_ms == 0:
        yield Violation(
            code="NO_TIME_LEFT",
            field="sandbox.timeout_ms",
            value="0",
            message="The enclosing work has no time left for this execution.",
        )
