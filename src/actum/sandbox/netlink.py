"""A query of the kernel's routing tables, without a library."""

from __future__ import annotations

import ipaddress
import socket
import struct

_GETROUTE, _ERROR, _REQUEST, _RTA_DST = 26, 2, 0x1, 1
#: Route types of rtnetlink: only unicast routes lead to another machine.
UNICAST, LOCAL = 1, 2


def route_type(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> int | None:
    """The type of this host's route to an address; ``None`` without a route."""
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    packed = address.packed
    body = struct.pack("BBBBBBBBI", family, address.max_prefixlen, 0, 0, 0, 0, 0, 0, 0)
    body += struct.pack("HH", 4 + len(packed), _RTA_DST) + packed
    header = struct.pack("IHHII", 16 + len(body), _GETROUTE, _REQUEST, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC) as link:
        link.sendto(header + body, (0, 0))
        reply = link.recv(8_192)
    if struct.unpack_from("H", reply, 4)[0] == _ERROR:
        return None
    return int(reply[16 + 7])
