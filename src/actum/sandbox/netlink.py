"""Two questions and one order to the kernel's routing tables, without a library.

Used by the init (standard library only) and by the host's judge of addresses.
"""

from __future__ import annotations

import errno
import ipaddress
import socket
import struct

_NEWADDR, _GETROUTE, _ERROR = 20, 26, 2
_REQUEST, _ACK, _EXCL, _CREATE = 0x1, 0x4, 0x200, 0x400
_IFA_ADDRESS, _IFA_LOCAL, _RTA_DST = 1, 2, 1
_LOOPBACK_INDEX = 1
#: Route types of rtnetlink: only unicast leads anywhere but to this machine or to nowhere.
UNICAST, LOCAL = 1, 2


def _attribute(kind: int, value: bytes) -> bytes:
    length = 4 + len(value)
    return struct.pack("HH", length, kind) + value + bytes(-length % 4)


def _talk(kind: int, flags: int, body: bytes) -> bytes:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC) as link:
        header = struct.pack("IHHII", 16 + len(body), kind, _REQUEST | flags, 1, 0)
        link.sendto(header + body, (0, 0))
        return link.recv(8_192)


def _family(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> int:
    return socket.AF_INET if address.version == 4 else socket.AF_INET6


def add_loopback_address(text: str) -> None:
    """Put an address such as 198.18.0.1/15 on lo; everything in its network becomes local.

    An address and not a bare route: with the route alone, libc believes that there is no network
    and refuses to look names up.
    """
    interface = ipaddress.ip_interface(text)
    packed = interface.ip.packed
    body = struct.pack(
        "BBBBI", _family(interface.ip), interface.network.prefixlen, 0, 0, _LOOPBACK_INDEX
    )
    body += _attribute(_IFA_LOCAL, packed) + _attribute(_IFA_ADDRESS, packed)
    reply = _talk(_NEWADDR, _ACK | _CREATE | _EXCL, body)
    code = -struct.unpack_from("i", reply, 16)[0]
    if code and code != errno.EEXIST:  # ::1 is there from the start
        raise OSError(code, f"address {text}")


def route_type(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> int | None:
    """How this host would reach an address; ``None`` when it could not."""
    body = struct.pack(
        "BBBBBBBBI", _family(address), address.max_prefixlen, 0, 0, 0, 0, 0, 0, 0
    ) + _attribute(_RTA_DST, address.packed)
    reply = _talk(_GETROUTE, 0, body)
    if struct.unpack_from("H", reply, 4)[0] == _ERROR:
        return None
    return int(reply[16 + 7])
