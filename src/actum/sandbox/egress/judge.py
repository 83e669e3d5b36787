"""The addresses that a tool reaches only with an approval: all that are not public.

The ranges are in `contract.egress`. Whether a public address is this host's own is a query to the
kernel, because no list contains it.
"""

from __future__ import annotations

from actum.contract.egress import Address, internal_network, plain_address
from actum.sandbox import netlink

__all__ = ["Address", "refusal"]


def refusal(address: Address) -> str:
    """The reason to refuse `address`; empty for a public address of another machine."""
    address = plain_address(address)
    internal = internal_network(address)
    if internal:
        return f"internal address {address} ({internal})"
    route = netlink.route_type(address)
    if route is None:
        return f"no route to {address}"
    # The host's own public address looks global, but its services are internal.
    return "" if route == netlink.UNICAST else f"address {address} of this host"
