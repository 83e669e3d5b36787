"""Compares policies: the dimensions in which one permits more than another."""

from __future__ import annotations

from collections.abc import Iterable

from actum.contract.call import EffectivePolicy
from actum.policy.network import reaches
from actum.policy.paths import common, is_covered


def wider(a: EffectivePolicy, b: EffectivePolicy) -> tuple[str, ...]:
    """The dimensions in which `a` permits something that `b` does not; empty if none."""
    reach_a, reach_b = _reach(a), _reach(b)
    verdicts = {
        "timeout_ms": a.limits.timeout_ms > b.limits.timeout_ms,
        "memory_mb": a.limits.memory_mb > b.limits.memory_mb,
        "cpu_cores": a.limits.cpu_cores > b.limits.cpu_cores,
        "max_children": a.limits.children > b.limits.children,
        "allow_fork": a.limits.allow_fork and not b.limits.allow_fork,
        "read": not _all_covered(reach_a, reach_b),
        "write": not _all_covered(a.write, b.write),
        "deny": _opens(b.deny, reach_a, a.deny),
        "changes": bool(a.write) and b.transaction and not a.transaction,
        "protect": _opens(b.protect, a.write, (*a.protect, *a.deny)),
        "network.enabled": a.network.enabled and not b.network.enabled,
        "network.allow": a.network.enabled
        and not all(reaches(b.network.allow, host) for host in a.network.allow),
        "network.deny": a.network.enabled and not all(_shut(host, a) for host in b.network.deny),
        "network.outbound": not set(a.network.outbound) <= set(b.network.outbound),
        "network.internal": not all(
            reaches(b.network.internal, host) for host in a.network.internal
        ),
        "environment": not set(a.environment) <= set(b.environment),
    }
    return tuple(name for name, more in verdicts.items() if more)


def _reach(policy: EffectivePolicy) -> tuple[str, ...]:
    return (*policy.read, *policy.write, *(each.prefix for each in policy.interpreters))


def _all_covered(paths: Iterable[str], by: tuple[str, ...]) -> bool:
    return all(is_covered(path, by) for path in paths)


def _opens(
    closed: tuple[str, ...], granted: tuple[str, ...], still_closed: tuple[str, ...]
) -> bool:
    """Whether something `closed` elsewhere is `granted` here and not closed."""
    return any(not is_covered(path, still_closed) for path in common(closed, granted))


def _shut(host: str, policy: EffectivePolicy) -> bool:
    """Whether `policy` excludes a host: by denying it, or by allowing nothing that overlaps."""
    if reaches(policy.network.deny, host):
        return True
    return not any(
        reaches([host], allowed) or reaches([allowed], host) for allowed in policy.network.allow
    )
