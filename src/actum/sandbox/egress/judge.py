"""Which addresses a tool reaches only if somebody approved it: all that are not public.

The ranges are in `contract.egress`. What no list can know, the kernel is asked: whether an address
that looks public is this host's own.
"""

from __future__ import annotations

from actum.contract.egress import Address, internal_network, plain_address
from actum.sandbox import netlink

__all__ = ["Address", "refusal"]


def refusal(address: Address) -> str:
    """Why `address` is not reached; empty when it is a public address somewhere else."""
    address = plain_address(address)
    internal = internal_network(address)
    if internal:
        return f"internal address {address} ({internal})"
    route = netlink.route_type(address)
    if route is None:
        return f"no route to {address}"
    # The host's own public address looks global, and a service on it is internal all the same.
    return "" if route == netlink.UNICAST else f"address {address} of this host"
