"""A network policy as names and ports. Pure text: this module resolves no name.

A plain host means the ports of the tool's protocol classes (http: 80, https: 443); `host:port`
means that port, if the tool has a class that connects at all. The relay closes a connection of
another protocol than those of the classes; class tcp permits every protocol. Class dns alone
permits to look the names up. `*.suffix` and `*` are matched by name on lookup. Deny wins. The
internal address ranges are listed here as well, for checks of written addresses and of resolved
ones.
"""

from __future__ import annotations

import ipaddress

from actum.contract.call import NetworkPolicy
from actum.contract.levels import ANY_HOST, host_covers, split_port
from actum.value import replace, value

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_CLASS_PORTS = {"http": 80, "https": 443}
_CONNECTING = frozenset({"http", "https", "tcp"})

# Explicit: `ipaddress.is_global` passes multicast, 6to4 relays, mapped and site-local addresses.
INTERNAL_NETWORKS = tuple(
    ipaddress.ip_network(text)
    for text in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "168.63.129.16/32",  # in a public range, but in one large cloud it is the host itself
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
        "::/96",
        "::1/128",
        "::ffff:0:0:0/96",
        "64:ff9b::/96",
        "64:ff9b:1::/48",
        "100::/64",
        "2001::/23",
        "2001:db8::/32",
        "2002::/16",
        "3fff::/20",
        "5f00::/16",
        "fc00::/7",
        "fe80::/10",
        "fec0::/10",
        "ff00::/8",
    )
)
_GLOBAL_UNICAST = ipaddress.ip_network("2000::/3")
#: IPv6 networks whose addresses embed an IPv4 address, and how many bits follow it.
_CARRIERS = tuple(
    (ipaddress.IPv6Network(text), after)
    for text, after in (
        ("::/96", 0),
        ("::ffff:0:0/96", 0),
        ("::ffff:0:0:0/96", 0),
        ("64:ff9b::/96", 0),
        ("64:ff9b:1::/48", 0),
        ("2002::/16", 80),
    )
)


@value(kw_only=False, order=True)
class Endpoint:
    """One name (or listed literal address) and one port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@value
class EgressPlan:
    endpoints: tuple[Endpoint, ...]  #: known before the start
    patterns: tuple[tuple[str, tuple[int, ...]], ...]  #: ``*.suffix`` or ``*`` and their ports
    deny: tuple[str, ...]
    internal: tuple[str, ...]  #: entries whose internal addresses were approved
    protocols: tuple[str, ...] = ()  #: classes that connect; with ``tcp``, any protocol
    lookups: tuple[str, ...] = ()  #: names and patterns that may be looked up, but not reached

    @property
    def is_empty(self) -> bool:
        return not (self.endpoints or self.patterns or self.lookups)

    def resolves(self, name: str) -> bool:
        """Whether the real addresses of `name` may be looked up."""
        return any(host_covers(entry, name) for entry in self.lookups) and not any(
            host_covers(entry, name) for entry in self.deny
        )

    def ports_of(self, name: str) -> tuple[int, ...]:
        """The ports on which a looked-up name may be reached; empty for none."""
        ports = {
            port
            for pattern, permitted in self.patterns
            if host_covers(pattern, name)
            for port in permitted
        }
        return tuple(sorted(port for port in ports if not self.denies(name, port)))

    def denies(self, host: str, port: int) -> bool:
        return any(host_covers(entry, f"{_bracketed(host)}:{port}") for entry in self.deny)

    def denies_address(self, address: Address, port: int) -> bool:
        """Compares by value, not spelling; an address that embeds a denied IPv4 one is denied."""
        meant = _forms(address)
        for entry in self.deny:
            host, denied_port = split_port(entry)
            if denied_port in ("", str(port)):
                written = literal(host)
                if host == ANY_HOST or (written is not None and meant & _forms(written)):
                    return True
        return False

    def may_be_internal(self, endpoint: Endpoint) -> bool:
        asked = f"{_bracketed(endpoint.host)}:{endpoint.port}"
        return any(host_covers(entry, asked) for entry in self.internal)


def plan_egress(network: NetworkPolicy) -> EgressPlan:
    """Expand a policy. One that is off, or allows nothing, gives a plan that reaches nothing."""
    by_class = class_ports(network.outbound)
    endpoints: set[Endpoint] = set()
    patterns: dict[str, tuple[int, ...]] = {}
    connects = network.enabled and not _CONNECTING.isdisjoint(network.outbound)
    looks_up = network.enabled and not connects and "dns" in network.outbound
    for entry in network.allow if connects else ():
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
        protocols=tuple(sorted(_CONNECTING.intersection(network.outbound))),
        lookups=tuple(sorted({split_port(entry)[0] for entry in network.allow if looks_up})),
    )
    kept = tuple(item for item in plan.endpoints if not plan.denies(item.host, item.port))
    return replace(plan, endpoints=kept)


def class_ports(outbound: tuple[str, ...]) -> tuple[int, ...]:
    """The ports of a tool's protocol classes."""
    return tuple(_CLASS_PORTS[name] for name in sorted(outbound) if name in _CLASS_PORTS)


def internal_network(address: Address) -> str:
    """The internal range of `address`; empty when the address is public."""
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return internal_network(address.ipv4_mapped)
        if address not in _GLOBAL_UNICAST:
            inner = (net for net in INTERNAL_NETWORKS if net.version == 6 and address in net)
            return str(next(inner, "outside 2000::/3"))
    for network in INTERNAL_NETWORKS:
        if address.version == network.version and address in network:
            return str(network)
    return ""


def plain_address(address: Address) -> Address:
    """Convert an IPv4-mapped IPv6 address (`::ffff:10.0.0.1`) to IPv4."""
    mapped = None if isinstance(address, ipaddress.IPv4Address) else address.ipv4_mapped
    return address if mapped is None else mapped


def _forms(address: Address) -> set[Address]:
    """`address`, and the IPv4 address that it embeds."""
    forms: set[Address] = {address}
    if isinstance(address, ipaddress.IPv6Address):
        for network, after in _CARRIERS:
            if address in network:
                forms.add(ipaddress.IPv4Address(int(address) >> after & 0xFFFFFFFF))
    return forms


def is_odd_spelling(host: str) -> bool:
    """Whether programs would take `host` for an address although it is not spelled canonically.

    `127.1`, `0x7f.1`, `2130706433` and full-width digits all mean 127.0.0.1 to a resolver.
    """
    if literal(host) is not None:
        return False
    last = host.rstrip(".").rpartition(".")[2].lower()
    return last.isdigit() or last.startswith("0x") or not host.isascii()


def split_address(text: str) -> tuple[Address, int]:
    """`address:port` as written in [egress.resolve]; raises ValueError."""
    host, port = split_port(text)
    number = int(port)
    if not port.isdecimal() or not 0 < number < 65_536:
        raise ValueError(text)
    return ipaddress.ip_address(host), number


def literal(host: str) -> Address | None:
    """The address that `host` spells canonically; ``None`` for a name."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host
