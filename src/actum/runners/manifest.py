"""The enforcement manifest of the local runner: per limit, what holds it and how close it came."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TypeAlias

from actum.capture.model import Enforced
from actum.contract.call import EffectivePolicy
from actum.contract.limits import ARTIFACTS_BYTES, MIB, STDERR_BYTES, STDOUT_BYTES, Limits
from actum.runners.attend import Attended, Stop
from actum.runners.base import Capability
from actum.runners.outside import Outside
from actum.sandbox import seccomp
from actum.sandbox.become import FILE_BYTES
from actum.sandbox.cgroup import Usage
from actum.sandbox.probe import Host

#: How close it came to a limit, if that can be told, and whether the limit was hit.
Figure: TypeAlias = tuple[int | None, bool]
_UNTOLD: Figure = (None, False)

_MECHANISMS = {
    "timeout_ms": "host deadline: SIGTERM, then SIGKILL of the pid namespace",
    "memory_mb": "cgroup memory",
    "cpu_cores": "cgroup cpu",
    "max_children": "cgroup pids",
    "allow_fork": "seccomp",
    "filesystem": "mount namespace with a covered /proc, Landlock",
    "network": "own network namespace without routes, one door per name, addresses judged",
    "privileges": "unmapped uid, no capabilities, no_new_privs",
    "system_calls": "seccomp: allow-list",
    "scratch_bytes": "tmpfs size",
    "file_bytes": "RLIMIT_FSIZE, per file",
    "stdout_bytes": "bounded capture, rest drained",
    "stderr_bytes": "bounded capture, rest drained",
    "artifacts_bytes": "tmpfs size, bounded collection",
}
#: Which part of the host a mechanism rests on.
_RESTS_ON: Mapping[str, tuple[str, ...]] = {
    "memory_mb": ("cgroups", "privileges"),
    "cpu_cores": ("cgroups", "privileges"),
    "max_children": ("architecture", "cgroups"),
    "allow_fork": ("architecture",),
    "filesystem": ("landlock", "privileges"),
    "network": ("architecture", "privileges"),
    "privileges": ("privileges",),
    "system_calls": ("architecture",),
}


def scratch_bytes(limits: Limits) -> int:
    """Scratch lives in memory and is charged to the tool, so it can never exceed its memory."""
    return limits.memory_mb * MIB // 2


def capabilities(host: Host) -> tuple[Capability, ...]:
    rows = []
    for limit, mechanism in _MECHANISMS.items():
        lacking = [part for part in _RESTS_ON.get(limit, ()) if part in host.problems]
        remedies = "; ".join(dict.fromkeys(host.problems[part][1] for part in lacking))
        rows.append(
            Capability(
                limit=limit,
                enforceable=not lacking,
                mechanism=_mechanism(limit, mechanism, host),
                remedy=remedies,
            )
        )
    return tuple(rows)


def _mechanism(limit: str, mechanism: str, host: Host, *, allow_fork: bool = True) -> str:
    if limit == "system_calls":
        return _filter(allow_fork)
    if limit == "filesystem":
        return f"{mechanism} ABI {host.landlock_abi}"
    return mechanism if host.cgroups is None else host.cgroups.mechanisms.get(limit, mechanism)


@cache
def _filter(allow_fork: bool) -> str:
    return seccomp.described(allow_fork=allow_fork)


#: What was foreseen lately, by the very policy and host it follows from, which it keeps alive.
_foreseen: dict[tuple[int, int], tuple[EffectivePolicy, Host, tuple[Enforced, ...]]] = {}
_MOST_FORESEEN = 64


def foresee(policy: EffectivePolicy, host: Host) -> tuple[Enforced, ...]:
    known = _foreseen.get((id(policy), id(host)))
    if known is None:
        if len(_foreseen) >= _MOST_FORESEEN:
            _foreseen.clear()
        known = _foreseen[id(policy), id(host)] = (policy, host, _foresee(policy, host))
    return known[2]


def _foresee(policy: EffectivePolicy, host: Host) -> tuple[Enforced, ...]:
    limits = policy.limits
    requested = {
        "timeout_ms": str(limits.timeout_ms),
        "memory_mb": str(limits.memory_mb),
        "cpu_cores": str(limits.cpu_cores),
        "max_children": str(limits.max_children),
        "allow_fork": str(limits.allow_fork).lower(),
        "filesystem": f"read {len(policy.read)}, write {len(policy.write)},"
        f" deny {len(policy.deny)}",
        "network": ", ".join(policy.network.allow) if policy.network.enabled else "none",
        "privileges": "none",
        "system_calls": "allow-list",
        "scratch_bytes": str(scratch_bytes(limits)),
        "file_bytes": str(FILE_BYTES),
        "stdout_bytes": str(STDOUT_BYTES),
        "stderr_bytes": str(STDERR_BYTES),
        "artifacts_bytes": str(ARTIFACTS_BYTES),
    }
    return tuple(
        Enforced(
            limit=limit,
            requested=requested[limit],
            mechanism=_mechanism(limit, mechanism, host, allow_fork=limits.allow_fork),
            enforced=True,
        )
        for limit, mechanism in _MECHANISMS.items()
    )


def measured(
    rows: tuple[Enforced, ...],
    policy: EffectivePolicy,
    attended: Attended,
    usage: Usage,
    duration_ms: int,
    outside: Outside,
    note: str = "",
) -> tuple[Enforced, ...]:
    denials, full, session = attended.denials, attended.full, outside.session
    fork_denied = bool(denials) and any(each.kind == "fork" for each in denials)
    memory, tasks, artifacts = usage.memory_peak_bytes, usage.tasks_peak, attended.artifacts_bytes
    stdout, stderr = attended.stdout, attended.stderr
    # In the order of `_MECHANISMS`, as the rows are.
    figures: tuple[Figure, ...] = (
        (duration_ms, attended.stop is Stop.DEADLINE),  # timeout_ms
        (None if memory is None else -(-memory // MIB), usage.oom_kills > 0),  # memory_mb
        (usage.cpu_ns // 1_000_000, usage.periods_throttled > 0),  # cpu_cores
        (  # max_children: the tool itself is a task and no child; threads are in this figure too
            None if tasks is None else max(0, tasks - 1),
            (fork_denied and policy.limits.allow_fork) or usage.forks_refused > 0,
        ),
        (None, fork_denied and not policy.limits.allow_fork),  # allow_fork
        _UNTOLD,  # filesystem
        (0, False) if session is None else (session.connections, session.tripped),  # network
        _UNTOLD,  # privileges
        (None, bool(attended.violation) or attended.denials_total > 0),  # system_calls
        (attended.scratch_bytes, "scratch_bytes" in full),  # scratch_bytes
        _UNTOLD,  # file_bytes
        (stdout.total_bytes, stdout.truncated),  # stdout_bytes
        (stderr.total_bytes, stderr.truncated),  # stderr_bytes
        # artifacts_bytes: its tmpfs has room for more than may be collected
        (artifacts, "artifacts_bytes" in full or (artifacts or 0) > ARTIFACTS_BYTES),
    )
    return tuple(_row(*each, note) for each in zip(rows, figures, strict=True))


def _row(row: Enforced, figure: Figure, note: str = "") -> Enforced:
    peak, tripped = figure
    if peak is None and not tripped and not note:
        return row  # as foreseen
    return Enforced(
        limit=row.limit,
        requested=row.requested,
        mechanism=row.mechanism + note,
        enforced=row.enforced,
        peak=peak,
        tripped=tripped,
    )
