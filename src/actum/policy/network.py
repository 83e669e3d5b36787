"""Which hosts a call may reach: default, adapter, contract; then never beyond the tool's scope.

The pin of a tool approves the hosts in its scope (AG-03). What the contract asks for beyond them
is a violation; what an adapter or a level would add beyond them is simply not granted.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from actum.contract.call import NetworkPolicy
from actum.contract.levels import NetworkGrant, expand_network, host_covers, narrow_network
from actum.contract.model import NetworkLevel, NetworkRequest
from actum.errors import Violation
from actum.policy.gates import NETWORK, ApprovalNeeded
from actum.policy.settings import PolicySettings
from actum.registry.model import Entry


@dataclass(frozen=True, slots=True, kw_only=True)
class Connected:
    """The network part of an effective policy, and what stands in its way."""

    policy: NetworkPolicy
    violations: tuple[Violation, ...] = ()
    needed: tuple[ApprovalNeeded, ...] = ()


def connected(request: NetworkRequest, entry: Entry, settings: PolicySettings) -> Connected:
    scope, outbound = entry.tool.scope, entry.tool.permissions.outbound
    grant, violations = narrow_network(_granted(request, entry, settings), request)
    off = NetworkPolicy(enabled=False, allow=(), deny=grant.deny, outbound=())
    if not grant.enabled:
        return Connected(policy=off, violations=violations)
    if not scope.network or not outbound:
        return Connected(policy=off, violations=(*violations, *_no_network(request, entry)))
    allow = tuple(
        host for host in common_hosts(grant.allow, scope.hosts) if not reaches(grant.deny, host)
    )
    policy = NetworkPolicy(enabled=True, allow=allow, deny=grant.deny, outbound=outbound)
    return Connected(
        policy=policy if allow else off,
        violations=(*violations, *_beyond(request, grant, entry)),
        needed=tuple(_needed(request, policy)),
    )


def _granted(request: NetworkRequest, entry: Entry, settings: PolicySettings) -> NetworkGrant:
    """What the contract's lists narrow: its level, or the adapter's override of the default."""
    override, hosts = entry.adapter.override, entry.tool.scope.hosts
    if request.level is not None:
        return expand_network(
            request.level,
            registry_hosts=settings.registry_hosts,
            api_hosts=settings.api_hosts or hosts,
        )
    if not request.enabled:
        enabled = bool(override.network_enabled)
        return NetworkGrant(
            enabled=enabled, allow=(override.network_allow or ()) if enabled else ()
        )
    if request.allow is None and override.network_allow is not None:
        return NetworkGrant(enabled=True, allow=override.network_allow)
    # With a list of its own, each host of it is judged against the scope, with its own message.
    return NetworkGrant(enabled=True, allow=hosts if request.allow is None else request.allow)


def _asked(request: NetworkRequest) -> bool:
    return bool(request.enabled) or request.level not in (None, NetworkLevel.OFFLINE)


def _no_network(request: NetworkRequest, entry: Entry) -> Iterator[Violation]:
    if _asked(request):
        yield _exceeded(
            "sandbox.network",
            str(request.level or "enabled"),
            f"{entry.tool.tool_id} has no network in its scope and permissions. Leave it out, or "
            "have a wider scope approved.",
        )


def _beyond(request: NetworkRequest, grant: NetworkGrant, entry: Entry) -> Iterator[Violation]:
    hosts = entry.tool.scope.hosts
    permitted = ", ".join(hosts) or "none"
    for index, host in enumerate(request.allow or ()):
        if host in grant.allow and not reaches(hosts, host):
            yield _exceeded(
                f"sandbox.network.allow[{index}]",
                host,
                f"{host} is not among the hosts approved for {entry.tool.tool_id} ({permitted}).",
            )
    if request.level is NetworkLevel.OPEN:
        return  # not a matter of listed hosts: it needs a person's approval
    if request.allow is None and _asked(request) and not common_hosts(grant.allow, hosts):
        yield _exceeded(
            "sandbox.network",
            str(request.level or "enabled"),
            f"None of the hosts this would reach is approved for {entry.tool.tool_id} "
            f"({permitted}).",
        )


def _exceeded(field: str, value: str, message: str) -> Violation:
    return Violation(code="SCOPE_EXCEEDED", field=field, value=value, message=message)


def _needed(request: NetworkRequest, policy: NetworkPolicy) -> Iterator[ApprovalNeeded]:
    if request.level is NetworkLevel.OPEN:
        yield _connect("any host")
    for host in policy.allow:
        if is_internal(host):
            yield _connect(host)
    if policy.allow and "tcp" in policy.outbound:
        yield _connect("class tcp")


def _connect(target: str) -> ApprovalNeeded:
    return ApprovalNeeded(gate=NETWORK, target=target, operation="connect")


def reaches(granted: Iterable[str], host: str) -> bool:
    """Whether one of the `granted` patterns stands for everything that `host` does."""
    return any(host_covers(pattern, host) for pattern in granted)


def common_hosts(some: Iterable[str], others: Iterable[str]) -> tuple[str, ...]:
    """The hosts that both sides stand for: of each overlapping pair, the narrower one."""
    left, right = tuple(some), tuple(others)
    return tuple(
        sorted(
            {
                *(host for host in left if reaches(right, host)),
                *(host for host in right if reaches(left, host)),
            }
        )
    )


def is_internal(host: str) -> bool:
    """Whether `host` names this machine or an address that is not public.

    Only what the text says: the address a name resolves to is judged where it is connected to.
    """
    name = host.lower().rstrip(".")
    if name.startswith("["):
        name = name[1:].partition("]")[0]
    elif name.count(":") == 1:
        name = name.partition(":")[0].rstrip(".")
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return not ipaddress.ip_address(name).is_global
    except ValueError:  # a name, not an address
        return False
