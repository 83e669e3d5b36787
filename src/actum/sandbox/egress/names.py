"""The name service of one sandbox. It answers for allowed names; no query is ever forwarded.

A tool whose only class is dns gets the real addresses, which the host looks up and judges.

For a name under an allowed wildcard it opens a door before it answers, so that the tool can connect
at once. A name that is not allowed gets NXDOMAIN, and is recorded.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
import struct
from collections.abc import Awaitable, Callable
from typing import Any

from actum.contract.egress import Address
from actum.sandbox.egress import dns
from actum.sandbox.egress.bounds import Bounds
from actum.sandbox.egress.doors import Doors
from actum.sandbox.egress.events import Records

#: Opens listeners at an address; ``False`` if that failed.
OpenDoor = Callable[[str, tuple[int, ...]], Awaitable[bool]]
#: The real addresses of a name, or the reason to refuse it.
LookUp = Callable[[str], Awaitable[tuple[list[Address], str]]]


class Names:
    def __init__(
        self,
        doors: Doors,
        records: Records,
        bounds: Bounds,
        open_door: OpenDoor,
        look_up: LookUp,
    ) -> None:
        self._look_up = look_up
        self._doors = doors
        self._records = records
        self._bounds = bounds
        self._open_door = open_door
        self._questions = 0
        self._streams = 0

    async def answer(self, packet: bytes) -> bytes | None:
        self._questions += 1
        question = dns.parse(packet)
        if question is None or self._questions > self._bounds.questions:
            return None
        name, plan = question.name, self._doors.plan
        if name and plan.resolves(name):
            return await self._looked_up(question)
        ports = plan.ports_of(name) if name else ()
        if not ports and not any(item.host == name for item in plan.endpoints):
            self._records.name(name, "name not allowed", again=question.wants_ipv4)
            return dns.answer(question, exists=False)
        if not question.wants_ipv4:
            return dns.answer(question, exists=True)
        address = self._doors.address_of(name)
        if address is None:
            self._records.name(name, "too many names")
            return dns.answer(question, exists=False)
        if self._doors.is_opening(address) and not await self._open_door(address, ports):
            self._records.name(name, "its ports are taken inside the sandbox")
            return dns.answer(question, exists=False)
        return dns.answer(question, [ipaddress.ip_address(address)], exists=True)

    async def _looked_up(self, question: dns.Question) -> bytes:
        """The real addresses of a name."""
        if not question.wants_address:
            return dns.answer(question, exists=True)
        addresses, why = await self._look_up(question.name)
        self._records.name(question.name, why, str(addresses[0]) if addresses else "")
        return dns.answer(question, () if why else addresses, exists=not why)

    async def datagrams(
        self, datagram: socket.socket, start: Callable[[Any], None], loop: asyncio.AbstractEventLoop
    ) -> None:
        while self._questions <= self._bounds.questions:
            packet, peer = await loop.sock_recvfrom(datagram, 4_096)
            start(self._reply(datagram, packet, peer, loop))
            await asyncio.sleep(0)  # a flood must not block the loop for other sessions

    async def _reply(
        self, datagram: socket.socket, packet: bytes, peer: Any, loop: asyncio.AbstractEventLoop
    ) -> None:
        with contextlib.suppress(OSError, TimeoutError):
            reply = await self.answer(packet)
            if reply is not None:
                await loop.sock_sendto(datagram, reply, peer)

    async def stream(self, stream: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
        """One connection to the name service; an idle or slow one is closed."""
        if self._streams >= self._bounds.name_streams:
            return
        self._streams += 1
        try:
            with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
                while True:
                    async with asyncio.timeout(self._bounds.idle_names_s):
                        (length,) = struct.unpack("!H", await _exactly(stream, 2, loop))
                        packet = await _exactly(stream, length, loop)
                        reply = await self.answer(packet)
                        if reply is None:
                            return
                        await loop.sock_sendall(stream, struct.pack("!H", len(reply)) + reply)
        finally:
            self._streams -= 1


async def _exactly(stream: socket.socket, count: int, loop: asyncio.AbstractEventLoop) -> bytes:
    data = b""
    while len(data) < count:
        chunk = await loop.sock_recv(stream, count - len(data))
        if not chunk:
            raise asyncio.IncompleteReadError(data, count)
        data += chunk
    return data
