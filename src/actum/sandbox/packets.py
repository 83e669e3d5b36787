"""Messages between the processes of the jail: packets with descriptors, documents as JSON."""

from __future__ import annotations

import array
import errno
import json
import os
import resource
import socket

from actum.sandbox import wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

#: More than the tools of one user can have in flight at once.
_OPEN_FILES = 65_536
_ANCILLARY_BYTES = socket.CMSG_SPACE(wire.MAX_PASSED * 4)


class DescriptorsLost(OSError):
    """A packet came without some of its descriptors: this process is at its limit. Those that did
    arrive are closed."""

    def __init__(self, packet: bytes) -> None:
        super().__init__(errno.EMFILE, os.strerror(errno.EMFILE))
        self.packet = packet


def receive(channel: socket.socket) -> tuple[bytes, list[int]]:
    """Receive a packet and its descriptors."""
    # Close-on-exec: else the tool would inherit them.
    packet, ancillary, flags, _address = channel.recvmsg(
        wire.MAX_PACKET, _ANCILLARY_BYTES, socket.MSG_CMSG_CLOEXEC
    )
    if not ancillary and not flags & socket.MSG_CTRUNC:
        return packet, []
    rights = array.array("i")
    for _level, _kind, data in ancillary:
        rights.frombytes(data[: len(data) - len(data) % rights.itemsize])
    if flags & socket.MSG_CTRUNC:
        for descriptor in rights:
            os.close(descriptor)
        raise DescriptorsLost(packet)
    return packet, list(rights)


def raise_descriptor_limit() -> None:
    """Raise the soft limit of this process and its children. The kernel applies it also to the
    descriptors that all processes of one uid have in flight. Tools have a limit of 1,024
    (OPEN_FILES of jail/tool.c): with a higher one, a tool with our uid cannot keep us from passing
    descriptors. A hard limit of 1,024 or less leaves that possible."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(hard, _OPEN_FILES) if hard != resource.RLIM_INFINITY else _OPEN_FILES
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def pass_packet(channel: socket.socket, packet: bytes, descriptors: Sequence[int]) -> None:
    if not descriptors:
        channel.send(packet)
        return
    rights = array.array("i", descriptors)
    channel.sendmsg([packet], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])


def pass_document(channel: socket.socket, text: bytes, descriptors: Sequence[int] = ()) -> None:
    """Send a document of any size."""
    if len(text) <= wire.MAX_INLINE:
        pass_packet(channel, wire.INLINE + text, descriptors)
        return
    file = os.memfd_create("document", os.MFD_CLOEXEC)
    try:
        with os.fdopen(os.dup(file), "wb") as writing:
            writing.write(text)
        pass_packet(channel, wire.IN_FILE, [file, *descriptors])
    finally:
        os.close(file)


def receive_document(channel: socket.socket) -> tuple[Any, list[int]] | None:
    """``None`` once the other side has closed the socket."""
    packet, descriptors = receive(channel)
    return document(packet, descriptors) if packet else None


def document(packet: bytes, descriptors: list[int]) -> tuple[Any, list[int]]:
    """The document in a packet, and the descriptors that are no part of it."""
    text, others = packed(packet, descriptors)
    return json.loads(text), others


def packed(packet: bytes, descriptors: list[int]) -> tuple[bytes, list[int]]:
    """The text that a packet holds or names, and the descriptors that are no part of it."""
    if packet[:1] == wire.INLINE:
        return packet[1:], descriptors
    file = descriptors.pop(0)
    text = os.pread(file, os.fstat(file).st_size, 0)
    os.close(file)
    return text, descriptors
