"""Which needs of a call a standing approval covers: AG-03 for its hosts, AG-04 for its paths.

No standing approval covers a level: neither network level open nor file system level elevated
(AG-05). Paths are compared as resolved paths and by whole components, hosts as in
`sandbox.network.allow`.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from actum.policy.gates import ANY_NAME, NETWORK, RAW_TCP, WRITE_OUTSIDE, ApprovalNeeded
from actum.policy.network import endpoint_in, reaches
from actum.policy.paths import is_covered

#: The gates that a standing approval can satisfy.
GATES = (NETWORK, WRITE_OUTSIDE)


def covers(
    need: ApprovalNeeded, *, hosts: Iterable[str], paths: Iterable[str], reached: Iterable[str]
) -> bool:
    """Whether an approval of `hosts` and `paths` covers `need` of a call that may reach `reached`.

    Class tcp is covered if every host that the call may reach is.
    """
    hosts, reached = tuple(hosts), tuple(reached)
    if need.gate == WRITE_OUTSIDE:
        return is_covered(need.target, paths)
    if need.gate != NETWORK or need.target == ANY_NAME:
        return False
    if need.target == RAW_TCP:
        return bool(reached) and all(reaches(hosts, host) for host in reached)
    return reaches(hosts, endpoint_in(need))


def as_bounds(need: ApprovalNeeded) -> str:
    """The options of `actum approvals grant` that cover `need`; empty if none do."""
    if need.gate == WRITE_OUTSIDE:
        return f"--path {shlex.quote(need.target)}"
    if need.gate == NETWORK and need.target not in (ANY_NAME, RAW_TCP):
        return f"--host {shlex.quote(endpoint_in(need))}"
    return ""
