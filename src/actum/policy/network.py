"""Hosts that a call may reach: default, adapter, contract; never beyond the tool's scope.

The pin of a tool approves the hosts in its scope (AG-03). A host that the contract requests beyond
them is a violation; a host that an adapter or a level would add beyond them is not granted. Level
open, internal addresses, plain TCP and a host that only ``*`` covers need a person's approval each
time; a wildcard never covers an internal address.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Iterator

from actum.contract.call import NetworkPolicy
from actum.contract.egress import (
    Endpoint,
    class_ports,
    internal_network,
    is_odd_spelling,
    literal,
    plan_egress,
    split_address,
)
from actum.contract.levels import (
    ANY_HOST,
    NetworkGrant,
    expand_network,
    host_covers,
    narrow_network,
    split_port,
)
from actum.contract.model import NetworkLevel, NetworkRequest
from actum.errors import Violation
from actum.policy.gates import ANY_NAME, NETWORK, RAW_TCP, ApprovalNeeded
from actum.policy.policy_settings import PolicySettings
from actum.registry.model import Entry
from actum.value import replace, value


@value
class Connected:
    """The network part of an effective policy, with its violations and approvals."""

    policy: NetworkPolicy
    violations: tuple[Violation, ...] = ()
    needed: tuple[ApprovalNeeded, ...] = ()  #: granted or not


#: The addresses of the sandbox's relay sockets and of its name service.
_USED_INSIDE = tuple(ipaddress.ip_network(text) for text in ("198.18.0.0/15", "127.0.0.53/32"))
#: One address inside the sandbox for each; a longer list would be a way around level open.
MAX_HOSTS = 1_000
#: Between an endpoint and its address of [egress.resolve]; no host name contains a space.
_AT = " at "


def connected(
    request: NetworkRequest,
    entry: Entry,
    settings: PolicySettings,
    granted: frozenset[ApprovalNeeded] = frozenset(),
) -> Connected:
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
    wanted = NetworkPolicy(enabled=True, allow=allow, deny=grant.deny, outbound=outbound)
    internal = _internal(wanted, settings)
    named = _named(request, wanted, internal, entry, settings)
    needed = (*_needed(request, wanted, internal), *named.values())
    missing = frozenset(host for host, need in named.items() if need not in granted)
    allow = tuple(host for host in allow if host not in missing)
    policy = _without_missing(request, replace(wanted, allow=allow), internal, granted)
    return Connected(
        policy=policy if policy.allow and policy.outbound else off,
        violations=(*violations, *_beyond(request, grant, entry), *_unusable(allow)),
        needed=needed,
    )


def _granted(request: NetworkRequest, entry: Entry, settings: PolicySettings) -> NetworkGrant:
    """The hosts before the contract's lists: of its level, or the adapter's override."""
    override, hosts = entry.adapter.override, entry.tool.scope.hosts
    level = level_of(request, entry)
    if level is not None:
        return expand_network(
            level,
            registry_hosts=settings.registries().hosts if level is NetworkLevel.REGISTRY else (),
            api_hosts=settings.api_hosts or hosts,
        )
    if not request.enabled:
        enabled = bool(override.network_enabled)
        return NetworkGrant(
            enabled=enabled, allow=(override.network_allow or ()) if enabled else ()
        )
    if request.allow is None and override.network_allow is not None:
        return NetworkGrant(enabled=True, allow=override.network_allow)
    # With a list of its own, each host is checked against the scope, with its own message.
    return NetworkGrant(enabled=True, allow=hosts if request.allow is None else request.allow)


def level_of(request: NetworkRequest, entry: Entry) -> NetworkLevel | None:
    """The contract's level, or the adapter's where the contract names neither level nor hosts."""
    override = entry.adapter.override
    if request.level is not None or request.enabled is False or request.allow is not None:
        return request.level
    if override.network_enabled is False or override.network_allow is not None:
        return None
    return override.network_level


def _wants_network(request: NetworkRequest) -> bool:
    return bool(request.enabled) or request.level not in (None, NetworkLevel.OFFLINE)


def _no_network(request: NetworkRequest, entry: Entry) -> Iterator[Violation]:
    if _wants_network(request):
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
        elif not _may_use_port(host, entry):
            yield _exceeded(
                f"sandbox.network.allow[{index}]",
                host,
                f"{entry.tool.tool_id} has {', '.join(entry.tool.permissions.outbound)} approved, "
                f"and no other port of this host. Have {host} itself added to its scope.",
            )
    if request.level is NetworkLevel.OPEN:
        return  # no listed host: it needs a person's approval
    if request.allow is None and _wants_network(request) and not common_hosts(grant.allow, hosts):
        yield _exceeded(
            "sandbox.network",
            str(request.level or "enabled"),
            f"None of the hosts this would reach is approved for {entry.tool.tool_id} "
            f"({permitted}).",
        )


def _may_use_port(asked: str, entry: Entry) -> bool:
    """A host in the scope means the ports of the tool's classes; other ports are listed there with
    the host. The contract alone cannot turn https into a connection to port 22."""
    port, outbound = split_port(asked)[1], entry.tool.permissions.outbound
    if not port or "tcp" in outbound or int(port) in class_ports(outbound):
        return True
    return any(
        split_port(listed)[1] == port and host_covers(listed, asked)
        for listed in entry.tool.scope.hosts
    )


def _exceeded(field: str, value: str, message: str) -> Violation:
    return Violation(code="SCOPE_EXCEEDED", field=field, value=value, message=message)


def _unusable(allow: tuple[str, ...]) -> Iterator[Violation]:
    if len(allow) > MAX_HOSTS:
        yield _exceeded("sandbox.network", str(len(allow)), f"At most {MAX_HOSTS} hosts at once.")
    for entry in allow:
        host, port = split_port(entry)
        if port and not 0 < int(port) < 65_536:
            yield _exceeded("sandbox.network.allow", entry, f"{entry}: {port} is not a port.")
        address = literal(host)
        if address is not None and any(address in network for network in _USED_INSIDE):
            yield _exceeded(
                "sandbox.network.allow",
                entry,
                f"{entry} is reserved inside every sandbox; give the service a name in"
                " [egress.resolve] of actum.toml.",
            )
        if is_odd_spelling(host):
            yield _exceeded(
                "sandbox.network.allow",
                entry,
                f"{entry} is an address to some programs and a name to others;"
                " write the address in its plain form, or a name.",
            )


def _internal(wanted: NetworkPolicy, settings: PolicySettings) -> dict[Endpoint, ApprovalNeeded]:
    """Endpoints with an internal address: as written, or by [egress.resolve]."""
    found = {}
    for endpoint in plan_egress(wanted).endpoints:
        mapped = settings.resolve.get(str(endpoint))
        address = literal(endpoint.host) if mapped is None else split_address(mapped)[0]
        if _is_this_machine(endpoint.host) or (address is not None and internal_network(address)):
            # The approval includes the address: another one needs another approval.
            found[endpoint] = _connect(f"{endpoint}{_AT}{mapped}" if mapped else str(endpoint))
    return found


def endpoint_in(need: ApprovalNeeded) -> str:
    """The endpoint of a need that `_internal` found, without its address."""
    return need.target.partition(_AT)[0]


def _named(
    request: NetworkRequest,
    wanted: NetworkPolicy,
    internal: dict[Endpoint, ApprovalNeeded],
    entry: Entry,
    settings: PolicySettings,
) -> dict[str, ApprovalNeeded]:
    """Hosts that only ``*`` in the tool's scope covers: the pin approves none of them by name.

    The project approves the hosts of level registry and of `[network] apis`. An internal address
    has an approval of its own.
    """
    level = level_of(request, entry)
    if level is NetworkLevel.OPEN:
        return {}
    approved = [pattern for pattern in entry.tool.scope.hosts if not _is_any(pattern)]
    if level is NetworkLevel.REGISTRY:
        approved += settings.registries().hosts
    elif level is NetworkLevel.API:
        approved += settings.api_hosts
    return {
        host: _connect(host)
        for host in wanted.allow
        if not _is_any(host)
        and not reaches(approved, host)
        and not _all_internal(host, wanted, internal)
    }


def _all_internal(
    host: str, wanted: NetworkPolicy, internal: dict[Endpoint, ApprovalNeeded]
) -> bool:
    endpoints = plan_egress(replace(wanted, allow=(host,))).endpoints
    return bool(endpoints) and all(endpoint in internal for endpoint in endpoints)


def _is_any(entry: str) -> bool:
    return split_port(entry)[0] == ANY_HOST


def _needed(
    request: NetworkRequest, wanted: NetworkPolicy, internal: dict[Endpoint, ApprovalNeeded]
) -> Iterator[ApprovalNeeded]:
    if request.level is NetworkLevel.OPEN or any(_is_any(entry) for entry in wanted.allow):
        yield _connect(ANY_NAME)
    yield from internal.values()
    if wanted.allow and "tcp" in wanted.outbound:
        yield _connect(RAW_TCP)


def _without_missing(
    request: NetworkRequest,
    wanted: NetworkPolicy,
    internal: dict[Endpoint, ApprovalNeeded],
    granted: frozenset[ApprovalNeeded],
) -> NetworkPolicy:
    """`wanted` without everything that is not approved."""
    allow, outbound = wanted.allow, wanted.outbound
    if _connect(ANY_NAME) not in granted:
        opened = request.level is NetworkLevel.OPEN
        allow = () if opened else tuple(entry for entry in allow if not _is_any(entry))
    if _connect(RAW_TCP) not in granted:
        outbound = tuple(name for name in outbound if name != "tcp")
    approved = {str(endpoint) for endpoint, need in internal.items() if need in granted}
    refused = {str(endpoint) for endpoint in internal} - approved
    allow = tuple(entry for entry in allow if not any(host_covers(entry, text) for text in refused))
    reachable = {str(endpoint) for endpoint in plan_egress(replace(wanted, allow=allow)).endpoints}
    return replace(
        wanted, allow=allow, outbound=outbound, internal=tuple(sorted(approved & reachable))
    )


def _connect(target: str) -> ApprovalNeeded:
    return ApprovalNeeded(gate=NETWORK, target=target, operation="connect")


def reaches(granted: Iterable[str], host: str) -> bool:
    """Whether one of the `granted` patterns covers everything that `host` means."""
    return any(host_covers(pattern, host) for pattern in granted)


def common_hosts(some: Iterable[str], others: Iterable[str]) -> tuple[str, ...]:
    """The hosts that both sides cover: of each overlapping pair, the narrower one."""
    left, right = tuple(some), tuple(others)
    return tuple(
        sorted(
            {
                *(host for host in left if reaches(right, host)),
                *(host for host in right if reaches(left, host)),
            }
        )
    )


def _is_this_machine(name: str) -> bool:
    return name == "localhost" or name.endswith(".localhost")
