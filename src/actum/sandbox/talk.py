"""How the processes of the jail speak: packets with descriptors, documents as JSON."""

from __future__ import annotations

import array
import errno
import json
import os
import socket

from actum.sandbox import wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

_ROOM = socket.CMSG_SPACE(wire.MAX_PASSED * 4)


class DescriptorsLost(OSError):
    """A packet came, and not all of its descriptors: this process may hold no more. Those that it
    could have held are closed."""

    def __init__(self, packet: bytes) -> None:
        super().__init__(errno.EMFILE, os.strerror(errno.EMFILE))
        self.packet = packet


def receive(channel: socket.socket) -> tuple[bytes, list[int]]:
    """A packet and the descriptors that came with it."""
    # Close-on-exec: else the tool would inherit them.
    packet, ancillary, flags, _address = channel.recvmsg(
        wire.MAX_PACKET, _ROOM, socket.MSG_CMSG_CLOEXEC
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


def pass_packet(channel: socket.socket, packet: bytes, descriptors: Sequence[int]) -> None:
    if not descriptors:
        channel.send(packet)
        return
    rights = array.array("i", descriptors)
    channel.sendmsg([packet], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])


def pass_document(channel: socket.socket, text: bytes, descriptors: Sequence[int] = ()) -> None:
    """A document of any size."""
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
    """``None`` once the other side has hung up."""
    packet, descriptors = receive(channel)
    return document(packet, descriptors) if packet else None


def document(packet: bytes, descriptors: list[int]) -> tuple[Any, list[int]]:
    """What a packet holds, and the descriptors that are no part of it."""
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
