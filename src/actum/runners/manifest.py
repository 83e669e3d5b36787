"""The enforcement manifest of the local runner: the mechanism and the peak of each limit."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TypeAlias

from actum.capture.model import Enforced
from actum.contract.call import EffectivePolicy
from actum.contract.limits import ARTIFACTS_BYTES, MIB, STDERR_BYTES, STDOUT_BYTES, Limits
from actum.runners.base import Capability
from actum.runners.egress_setup import Egress
from actum.runners.supervise import Stop, Supervised
from actum.sandbox import seccomp
from actum.sandbox.cgroup import Usage
from actum.sandbox.host_probe import Host
from actum.sandbox.snippet_fork import FILE_BYTES

#: The peak, if it is measured, and whether the limit was hit.
Figure: TypeAlias = tuple[int | None, bool]
_UNMEASURED: Figure = (None, False)

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
#: The parts of the host that a mechanism needs.
_NEEDS: Mapping[str, tuple[str, ...]] = {
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
    """Scratch is in memory and is charged to the tool, so it can never exceed its memory."""
    return limits.memory_mb * MIB // 2


def capabilities(host: Host) -> tuple[Capability, ...]:
    rows, mechanisms = [], _mechanisms(host)
    for limit in _MECHANISMS:
        lacking = [part for part in _NEEDS.get(limit, ()) if part in host.problems]
        remedies = "; ".join(dict.fromkeys(host.problems[part][1] for part in lacking))
        rows.append(
            Capability(
                limit=limit,
                enforceable=not lacking,
                mechanism=mechanisms[limit],
                remedy=remedies,
            )
        )
    return tuple(rows)


def _mechanisms(host: Host, *, allow_fork: bool = True) -> dict[str, str]:
    return {
        **_MECHANISMS,
        **({} if host.cgroups is None else host.cgroups.mechanisms),
        "filesystem": f"{_MECHANISMS['filesystem']} ABI {host.landlock_abi}",
        "system_calls": _filter(allow_fork),
    }


def prepare() -> None:
    """Compile the filters of system calls, which are the same for every execution."""
    for allow_fork in (True, False):
        _filter(allow_fork)


@cache
def _filter(allow_fork: bool) -> str:
    return seccomp.described(allow_fork=allow_fork)


def foresee(policy: EffectivePolicy, host: Host) -> tuple[Enforced, ...]:
    limits = policy.limits
    requested = {
        "timeout_ms": str(limits.timeout_ms),
        "memory_mb": str(limits.memory_mb),
        "cpu_cores": str(limits.cpu_cores),
        "max_children": str(limits.max_children),
        "allow_fork": str(limits.allow_fork).lower(),
        "filesystem": f"read {len(policy.read) + len(policy.interpreters)},"
        f" write {len(policy.write)}, deny {len(policy.deny)}",
        "network": ", ".join(policy.network.allow) if policy.network.enabled else "none",
        "privileges": "none",
        "system_calls": "allow-list",
        "scratch_bytes": str(scratch_bytes(limits)),
        "file_bytes": str(FILE_BYTES),
        "stdout_bytes": str(STDOUT_BYTES),
        "stderr_bytes": str(STDERR_BYTES),
        "artifacts_bytes": str(ARTIFACTS_BYTES),
    }
    mechanisms = _mechanisms(host, allow_fork=limits.allow_fork)
    return tuple(
        Enforced(
            limit=limit,
            requested=requested[limit],
            mechanism=mechanisms[limit],
            enforced=True,
        )
        for limit in _MECHANISMS
    )


def measured(
    rows: tuple[Enforced, ...],
    policy: EffectivePolicy,
    supervised: Supervised,
    usage: Usage,
    duration_ms: int,
    egress: Egress,
    note: str = "",
) -> tuple[Enforced, ...]:
    denials, full, session = supervised.denials, supervised.full, egress.session
    fork_denied = bool(denials) and any(each.kind == "fork" for each in denials)
    memory, tasks, artifacts = usage.memory_peak_bytes, usage.tasks_peak, supervised.artifacts_bytes
    stdout, stderr = supervised.stdout, supervised.stderr
    # In the order of `_MECHANISMS`, as the rows are.
    figures: tuple[Figure, ...] = (
        (duration_ms, supervised.stop is Stop.DEADLINE),  # timeout_ms
        (None if memory is None else -(-memory // MIB), usage.oom_kills > 0),  # memory_mb
        (usage.cpu_ns // 1_000_000, usage.periods_throttled > 0),  # cpu_cores
        (  # max_children: the tool itself is a task and no child; threads are in this figure too
            None if tasks is None else max(0, tasks - 1),
            (fork_denied and policy.limits.allow_fork) or usage.forks_refused > 0,
        ),
        (None, fork_denied and not policy.limits.allow_fork),  # allow_fork
        _UNMEASURED,  # filesystem
        (0, False) if session is None else (session.connections, session.tripped),  # network
        _UNMEASURED,  # privileges
        (None, bool(supervised.violation) or supervised.denials_total > 0),  # system_calls
        (supervised.scratch_bytes, "scratch_bytes" in full),  # scratch_bytes
        _UNMEASURED,  # file_bytes
        (stdout.total_bytes, stdout.truncated),  # stdout_bytes
        (stderr.total_bytes, stderr.truncated),  # stderr_bytes
        # artifacts_bytes: its tmpfs is larger than the limit
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
