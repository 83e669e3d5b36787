"""How the processes of the jail speak: packets with descriptors, reports as JSON."""

from __future__ import annotations

import array
import json
import os
import socket

from actum.sandbox import wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from actum.sandbox.wire import Report, Request


def receive(channel: socket.socket) -> tuple[bytes, list[int]]:
    """A packet and the descriptors that came with it."""
    rights = array.array("i")
    packet, ancillary, _flags, _address = channel.recvmsg(
        wire.MAX_PACKET,
        socket.CMSG_SPACE(wire.MAX_DESCRIPTORS * rights.itemsize),
        # Without this the tool would inherit them, the status socket included.
        socket.MSG_CMSG_CLOEXEC,
    )
    for _level, _kind, data in ancillary:
        rights.frombytes(data[: len(data) - len(data) % rights.itemsize])
    return packet, list(rights)


def send(control: socket.socket, report: Report, *descriptors: int) -> None:
    ancillary = []
    if descriptors:
        rights = array.array("i", descriptors)
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)]
    try:
        control.sendmsg([json.dumps(report).encode()], ancillary)
    except (BrokenPipeError, ConnectionResetError):
        os._exit(1)  # the host is gone: nobody to report to, and the tree dies with us


def pass_on(control: socket.socket, report: Report, sockets: list[socket.socket]) -> None:
    send(control, report, *(passed.fileno() for passed in sockets))
    for passed in sockets:
        passed.close()


def read_request(descriptor: int) -> Request:
    size = os.fstat(descriptor).st_size
    request: Request = json.loads(os.pread(descriptor, size, 0))
    return request
