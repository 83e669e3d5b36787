"""The network of one sandbox, from inside: a loopback of its own, and the few ways out.

The ways out are listening sockets, bound here and passed to the host, which accepts on them.
Nothing else routes.
"""

from __future__ import annotations

import fcntl
import socket
import struct

from actum.sandbox import netlink, wire
from actum.sandbox.talk import pass_on

TYPE_CHECKING = False
if TYPE_CHECKING:
    from actum.sandbox.wire import Request

_BACKLOG = 1_024
_IPV6_FREEBIND = 78


def raise_loopback() -> None:
    """A private loopback, so that a tool's own servers work; nothing else routes."""
    get_flags, set_flags, up = 0x8913, 0x8914, 0x1
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        name = b"lo".ljust(16, b"\0")
        reply = fcntl.ioctl(probe, get_flags, name + bytes(24))
        flags = struct.unpack_from("H", reply, 16)[0]
        fcntl.ioctl(probe, set_flags, name + struct.pack("H", flags | up) + bytes(22))


def open_doors(control: socket.socket, request: Request) -> None:
    """The sandbox's few ways out: sockets bound here, accepted on by the host."""
    for address in request["addresses"]:
        netlink.add_loopback_address(address)
    bound = [listener(address, port) for address, port in request["listen"]]
    for first in range(0, len(bound), wire.MAX_PASSED):
        pass_on(control, {"kind": "listening"}, bound[first : first + wire.MAX_PASSED])
    if request["resolver"]:
        names = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        names.bind((request["resolver"], 53))
        pass_on(control, {"kind": "resolver"}, [names, listener(request["resolver"], 53)])


def listener(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:  # its address is still being checked for duplicates
        bound.setsockopt(socket.IPPROTO_IPV6, _IPV6_FREEBIND, 1)
    bound.bind((address, port))
    bound.listen(_BACKLOG)
    return bound
