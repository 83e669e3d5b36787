"""Which addresses a tool reaches only if somebody approved it: all that are not public."""

from __future__ import annotations

import ipaddress

from actum.sandbox import netlink

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# Spelt out: `ipaddress.is_global` passes multicast, 6to4 relays, mapped and site-local addresses.
_INTERNAL = tuple(
    ipaddress.ip_network(text)
    for text in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
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


def refusal(address: Address) -> str:
    """Why `address` is not reached; empty when it is a public address somewhere else."""
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    for network in _INTERNAL:
        if address.version == network.version and address in network:
            return f"internal address {address} ({network})"
    route = netlink.route_type(address)
    if route is None:
        return f"no route to {address}"
    # The host's own public address looks global, and a service on it is internal all the same.
    return "" if route == netlink.UNICAST else f"address {address} of this host"
