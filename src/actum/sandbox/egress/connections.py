"""The egress of one execution: accept inside, resolve, judge, connect outside, check the protocol,
copy.

Limited in connections and bytes. The runner opens and closes it; it runs in the relay's loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

from actum.capture.model import NOT_CONNECTED, NOT_RESOLVED, Connection
from actum.contract.egress import Address, Endpoint, literal, plain_address, split_address
from actum.sandbox.egress.bounds import Bounds
from actum.sandbox.egress.doors import Doors
from actum.sandbox.egress.events import Records
from actum.sandbox.egress.judge import refusal
from actum.sandbox.egress.names import Names
from actum.sandbox.egress.protocols import OPENING_BYTES, UNKNOWN, protocol_of

#: Requests more listening sockets from the sandbox's init; they arrive at `Session.arrived`.
AskListeners = Callable[[str, tuple[int, ...]], None]
#: The real resolution of a name, on the host.
Lookup = Callable[[str, int], Awaitable[list[Address]]]

_SMALL, _LARGE = 16_384, 262_144
_ROUNDS = 8
#: The class that permits every protocol.
_ANY = "tcp"


class Session:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        doors: Doors,
        *,
        resolve: Mapping[str, str],
        lookup: Lookup,
        ask_listeners: AskListeners,
        bounds: Bounds,
    ) -> None:
        self.doors = doors
        self.tripped = False
        self.connections = 0
        self.relayed_bytes = 0
        self._loop = loop
        self._plan = doors.plan
        self._resolve = resolve
        self._lookup = lookup
        self._lookups = asyncio.Semaphore(bounds.lookups)
        self._ask_listeners = ask_listeners
        self._bounds = bounds
        self._at_once = 0
        self._large = 0
        self._records = Records(bounds)
        self._names = Names(doors, self._records, bounds, self._open_door, self._look_up)
        self._tasks: set[asyncio.Task[None]] = set()
        self._sockets: set[socket.socket] = set()
        self._waiting: dict[str, asyncio.Future[bool]] = {}
        self._closed = False

    # Called from the runner's thread.

    def listen(self, endpoints: tuple[Endpoint, ...], descriptors: list[int]) -> None:
        """Serve these listeners, which the init has bound."""
        self._loop.call_soon_threadsafe(self._serve, endpoints, descriptors)

    def answer_names(self, datagram: int, stream: int) -> None:
        self._loop.call_soon_threadsafe(self._serve_names, datagram, stream)

    def arrived(self, address: str, ports: list[int], descriptors: list[int]) -> None:
        """Receive requested listeners from the init; fewer if some ports were taken."""
        self._loop.call_soon_threadsafe(self._serve_new, address, ports, descriptors)

    def refused(self) -> tuple[Connection, ...]:
        """The refusals so far, in the order of their time."""
        return tuple(one for one in self._records.all() if one.refused)

    def close(self) -> tuple[Connection, ...]:
        """Close everything; returns the record."""
        asyncio.run_coroutine_threadsafe(self._cut(), self._loop).result()
        return self._records.all()

    # In the relay's loop from here on.

    async def _cut(self) -> None:
        self._closed = True
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # Only now: a descriptor closed earlier could be reused while it is still in the loop.
        for left in self._sockets:
            left.close()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _adopt(self, descriptors: list[int]) -> list[socket.socket]:
        """Take ownership of descriptors; closes them if the session is closed."""
        adopted = [socket.socket(fileno=descriptor) for descriptor in descriptors]
        for each in adopted:
            each.setblocking(False)
            if self._closed:
                each.close()
        if self._closed:
            return []
        self._sockets.update(adopted)
        return adopted

    def _serve(self, endpoints: tuple[Endpoint, ...], descriptors: list[int]) -> None:
        for endpoint, listener in zip(endpoints, self._adopt(descriptors), strict=False):
            self._start(self._accept(listener, self._admit(endpoint)))

    def _serve_new(self, address: str, ports: list[int], descriptors: list[int]) -> None:
        name = self.doors.name_at(address) or ""
        self._serve(tuple(Endpoint(name, port) for port in ports), descriptors)
        waiting = self._waiting.pop(address, None)
        self.doors.opened(address)
        if waiting is not None and not waiting.done():
            waiting.set_result(bool(ports))

    def _serve_names(self, datagram: int, stream: int) -> None:
        adopted = self._adopt([datagram, stream])
        if adopted:
            self._start(self._names.datagrams(adopted[0], self._start, self._loop))
            self._start(self._accept(adopted[1], self._admit_to_names))

    async def _open_door(self, address: str, ports: tuple[int, ...]) -> bool:
        waiting = self._waiting.get(address)
        if waiting is None:
            waiting = self._waiting[address] = self._loop.create_future()
            self._ask_listeners(address, ports)
        return await asyncio.wait_for(asyncio.shield(waiting), self._bounds.listen_s)

    async def _accept(
        self, listener: socket.socket, admit: Callable[[socket.socket], None]
    ) -> None:
        # Not `loop.sock_accept`: cancelled at the wrong time, it leaks a connection.
        while True:
            try:
                inside, _peer = listener.accept()
            except BlockingIOError:
                await self._readable(listener)
                continue
            except OSError:
                # No descriptors left, or the peer is gone already: the service goes on.
                await asyncio.sleep(0.05)
                continue
            inside.setblocking(False)
            admit(inside)
            await asyncio.sleep(0)  # accept may never block: yield to other tasks

    async def _readable(self, listener: socket.socket) -> None:
        ready = asyncio.Event()
        self._loop.add_reader(listener, ready.set)
        try:
            await ready.wait()
        finally:
            self._loop.remove_reader(listener)

    def _admit_to_names(self, inside: socket.socket) -> None:
        self._sockets.add(inside)  # here: a task that is cancelled before its start never runs
        self._start(self._name_stream(inside))

    async def _name_stream(self, inside: socket.socket) -> None:
        try:
            await self._names.stream(inside, self._loop)
        finally:
            self._sockets.discard(inside)
            inside.close()

    def _admit(self, endpoint: Endpoint) -> Callable[[socket.socket], None]:
        def admit(inside: socket.socket) -> None:
            self.connections += 1
            if self.connections > self._bounds.connections:
                self.tripped = True
                self._records.too_many()
                _reset(inside)
                return
            if self._at_once >= self._bounds.at_once:
                self.tripped = True
                self._records.connection(endpoint, refused="over the number of connections at once")
                _reset(inside)
                return
            self._at_once += 1
            self._sockets.add(inside)
            self._start(self._connection(inside, endpoint))

        return admit

    async def _connection(self, inside: socket.socket, endpoint: Endpoint) -> None:
        outside: socket.socket | None = None
        moved = [0, 0]  # out of the sandbox, into it
        try:
            addresses, why = await self._judged(endpoint)
            if why:
                address = str(addresses[0][0]) if addresses else ""
            else:
                outside, address, why = await self._connect(addresses)
            opening: bytes | None = b""
            if outside is not None and _ANY not in self._plan.protocols:
                opening, why = await self._opening(inside)
            if outside is None or why:
                self._records.connection(endpoint, address, refused=why)
                _reset(inside)
                return
            try:
                if opening is not None:
                    await self._relay(inside, outside, moved, opening)
            finally:  # record a connection that the end of the tool interrupts, too
                self._records.connection(endpoint, address, sent=moved[0], received=moved[1])
        finally:
            self._at_once -= 1
            for end in (inside, outside):
                if end is not None:
                    self._sockets.discard(end)
                    end.close()

    async def _opening(self, inside: socket.socket) -> tuple[bytes | None, str]:
        """The first bytes of the client and the reason to refuse them; ``None`` if there are none.

        Nothing that the server says is passed on before: in many other protocols the server
        speaks first.
        """
        opening, found = b"", None
        try:
            async with asyncio.timeout(self._bounds.opening_s):
                while found is None:
                    chunk = await self._loop.sock_recv(inside, OPENING_BYTES - len(opening))
                    opening += chunk
                    if not opening:
                        return None, ""
                    found = protocol_of(opening) if chunk else UNKNOWN
        except TimeoutError:
            found = UNKNOWN
        except OSError:
            return None, ""
        permitted = self._plan.protocols
        if found in permitted:
            return opening, ""
        return None, f"protocol {found} refused (permitted: {', '.join(permitted)})"

    async def _look_up(self, name: str) -> tuple[list[Address], str]:
        """The real addresses of a name that a tool may look up but not reach."""
        try:
            async with self._lookups:
                found = await self._lookup(name, 0)
        except (OSError, UnicodeError) as error:
            return [], _unresolved(error)
        addresses = [*dict.fromkeys(map(plain_address, found))]
        for address in addresses:
            if self._plan.denies_address(address, 0):
                return addresses, f"address {address} denied"
            if why := refusal(address):
                return addresses, why
        return addresses, ""

    async def _judged(self, endpoint: Endpoint) -> tuple[list[tuple[Address, int]], str]:
        """The addresses of an endpoint, or the reason to refuse it. Resolved once, on the host."""
        try:
            addresses = await self._addresses(endpoint)
        except (OSError, UnicodeError) as error:
            return [], _unresolved(error)
        if not addresses:
            return [], f"{NOT_RESOLVED}no address"
        for address, port in addresses:
            if self._plan.denies_address(address, port):
                return addresses, f"address {address} denied"
        if self._plan.may_be_internal(endpoint):
            return addresses, ""
        # One internal address refuses the name: an attacker mixes them in.
        reasons = (refusal(address) for address, _port in addresses)
        return addresses, next((reason for reason in reasons if reason), "")

    async def _addresses(self, endpoint: Endpoint) -> list[tuple[Address, int]]:
        resolved = self._resolve.get(str(endpoint))
        if resolved is not None:
            address, port = split_address(resolved)
            return [(plain_address(address), port)]
        spelt = literal(endpoint.host)
        if spelt is not None:
            return [(plain_address(spelt), endpoint.port)]
        async with self._lookups:
            found = await self._lookup(endpoint.host, endpoint.port)
        return [(address, endpoint.port) for address in dict.fromkeys(map(plain_address, found))]

    async def _connect(
        self, addresses: list[tuple[Address, int]]
    ) -> tuple[socket.socket | None, str, str]:
        """Connect to one of the judged addresses, never to the name again."""
        why = ""
        for address, port in addresses:
            family = socket.AF_INET if address.version == 4 else socket.AF_INET6
            outside = socket.socket(family, socket.SOCK_STREAM)
            outside.setblocking(False)
            self._sockets.add(outside)
            try:
                await asyncio.wait_for(
                    self._loop.sock_connect(outside, (str(address), port)), self._bounds.connect_s
                )
            except (OSError, TimeoutError) as error:
                why = f"{NOT_CONNECTED}{getattr(error, 'strerror', None) or 'timed out'}"
                self._sockets.discard(outside)
                outside.close()
            else:
                return outside, str(address), ""
        return None, str(addresses[0][0]), why

    async def _relay(
        self, inside: socket.socket, outside: socket.socket, moved: list[int], opening: bytes
    ) -> None:
        for end in (inside, outside):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.gather(
            self._copy(inside, outside, moved, 0, opening), self._copy(outside, inside, moved, 1)
        )

    async def _copy(
        self,
        source: socket.socket,
        target: socket.socket,
        moved: list[int],
        direction: int,
        opening: bytes = b"",
    ) -> None:
        """Copy one direction until end-of-file, after `opening`, which was read before; a few busy
        connections get larger buffers."""
        buffer, rounds = memoryview(bytearray(_SMALL)), 0
        try:
            if opening:
                self._count(len(opening))
                await self._loop.sock_sendall(target, opening)
                moved[direction] += len(opening)
            while count := await self._loop.sock_recv_into(source, buffer):
                self._count(count)
                await self._loop.sock_sendall(target, buffer[:count])
                moved[direction] += count
                if count == len(buffer) == _SMALL and self._large < self._bounds.large_buffers:
                    self._large += 1
                    buffer = memoryview(bytearray(_LARGE))
                rounds += 1
                if rounds % _ROUNDS == 0:
                    await asyncio.sleep(0)  # a fast pair of ends would block the loop
            target.shutdown(socket.SHUT_WR)
        except OSError:
            # An error on one side closes both.
            for end in (source, target):
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
        finally:
            self._large -= len(buffer) == _LARGE

    def _count(self, count: int) -> None:
        self.relayed_bytes += count
        if self.relayed_bytes > self._bounds.bytes:
            self.tripped = True
            raise ConnectionAbortedError


def _unresolved(error: Exception) -> str:
    return f"{NOT_RESOLVED}{getattr(error, 'strerror', None) or error}"


def _reset(inside: socket.socket) -> None:
    """Close so that the tool sees an error at once, not an empty reply."""
    inside.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    inside.close()
