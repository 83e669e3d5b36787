"""What a network policy means in names and ports; pure text, nothing is resolved here.

A plain host stands for the ports of the tool's protocol classes (http: 80, https: 443); `host:port`
stands for that port. `*.suffix` and `*` are answered by name when asked. Deny comes first.
"""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass

from actum.contract.call import NetworkPolicy
from actum.contract.levels import ANY_HOST, host_covers, split_port

_CLASS_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True, order=True)
class Endpoint:
    """One name (or listed literal address) and one port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True, kw_only=True)
class EgressPlan:
    endpoints: tuple[Endpoint, ...]  #: known before the start
    patterns: tuple[tuple[str, tuple[int, ...]], ...]  #: ``*.suffix`` or ``*`` and their ports
    deny: tuple[str, ...]
    internal: tuple[str, ...]  #: entries whose internal addresses were approved

    def ports_of(self, name: str) -> tuple[int, ...]:
        """The ports on which a name that was asked for may be reached; empty: not at all."""
        ports = {
            port
            for pattern, permitted in self.patterns
            if host_covers(pattern, name)
            for port in permitted
        }
        return tuple(sorted(port for port in ports if not self.denies(name, port)))

    def denies(self, host: str, port: int) -> bool:
        return any(host_covers(entry, f"{_bracketed(host)}:{port}") for entry in self.deny)

    def may_be_internal(self, endpoint: Endpoint) -> bool:
        asked = f"{_bracketed(endpoint.host)}:{endpoint.port}"
        return any(host_covers(entry, asked) for entry in self.internal)


def plan_egress(network: NetworkPolicy) -> EgressPlan:
    """Expand a policy. One that is off, or allows nothing, gives a plan that reaches nothing."""
    by_class = tuple(
        _CLASS_PORTS[name] for name in sorted(network.outbound) if name in _CLASS_PORTS
    )
    endpoints: set[Endpoint] = set()
    patterns: dict[str, tuple[int, ...]] = {}
    for entry in network.allow if network.enabled else ():
        host, port = split_port(entry)
        ports = (int(port),) if port else by_class
        if host == ANY_HOST or host.startswith("*."):
            patterns[host] = tuple(sorted({*patterns.get(host, ()), *ports}))
        else:
            endpoints.update(Endpoint(host, number) for number in ports)
    plan = EgressPlan(
        endpoints=tuple(sorted(endpoints)),
        patterns=tuple(sorted(patterns.items())),
        deny=network.deny,
        internal=network.internal,
    )
    kept = tuple(item for item in plan.endpoints if not plan.denies(item.host, item.port))
    return EgressPlan(
        endpoints=kept, patterns=plan.patterns, deny=plan.deny, internal=plan.internal
    )


def literal(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address that `host` spells, in its one canonical spelling; ``None`` for a name."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
