"""Doors: the address inside a sandbox for each permitted name."""

from __future__ import annotations

import ipaddress

from actum.contract.egress import EgressPlan, Endpoint, literal

#: Reserved for network benchmarks (RFC 2544): not routed, so it collides with no real address.
NETWORK = ipaddress.IPv4Network("198.18.0.0/15")
OWN_ADDRESS = "198.18.0.1/15"
#: In a container, whose init may add no address: all of 127.0.0.0/8 is on every loopback.
CONTAINER_NETWORK = ipaddress.IPv4Network("127.64.0.0/15")
RESOLVER = "127.0.0.53"
#: The first address of a name, counted from that of the network.
_FIRST = 256
_MAX_NAMES = 4_096


class Doors:
    """Assigns addresses, one per name, for one sandbox."""

    def __init__(
        self,
        plan: EgressPlan,
        *,
        names: int = _MAX_NAMES,
        network: ipaddress.IPv4Network = NETWORK,
    ) -> None:
        self.plan = plan
        self._network = network
        #: Limit on names under an allowed wildcard, which a tool can invent.
        self._names_left = names
        self._opening: set[str] = set()
        self._by_name: dict[str, str] = {}
        self._by_address: dict[str, str] = {}
        for host in dict.fromkeys(endpoint.host for endpoint in plan.endpoints):
            self._assign(host)

    def address_of(self, name: str) -> str | None:
        """The address for a permitted name; ``None`` over the limit."""
        known = self._by_name.get(name)
        if known is not None:
            return known
        if self._names_left <= 0:
            return None
        self._names_left -= 1
        address = self._assign(name)
        self._opening.add(address)
        return address

    def is_opening(self, address: str) -> bool:
        """Whether the name has an address but no listeners yet."""
        return address in self._opening

    def opened(self, address: str) -> None:
        self._opening.discard(address)

    def _assign(self, name: str) -> str:
        spelt = literal(name)
        address = str(spelt or self._network[_FIRST + len(self._by_name)])
        self._by_name[name] = address
        self._by_address[address] = name
        return address

    def knows(self, name: str) -> bool:
        return name in self._by_name

    def name_at(self, address: str) -> str | None:
        return self._by_address.get(address)

    @property
    def literals(self) -> tuple[str, ...]:
        """Allowed IP addresses, which are assigned to the sandbox's loopback."""
        return tuple(
            f"{address}/{address.max_prefixlen}"
            for name in self._by_name
            if (address := literal(name)) is not None
        )

    @property
    def listeners(self) -> tuple[tuple[str, int, Endpoint], ...]:
        return tuple(
            (self._by_name[endpoint.host], endpoint.port, endpoint)
            for endpoint in self.plan.endpoints
        )

    @property
    def hosts_file(self) -> str:
        lines = ["127.0.0.1 localhost", "::1 localhost"]
        lines += [
            f"{address} {name}" for name, address in self._by_name.items() if not literal(name)
        ]
        return "\n".join(lines) + "\n"
