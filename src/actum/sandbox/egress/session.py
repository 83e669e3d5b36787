"""The egress of one execution: accepts inside, resolves, judges and connects outside, copies.

Bounded in connections and bytes. Made and closed by the runner, worked by the relay's loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any

from actum.capture.model import Connection
from actum.contract.egress import Address, Endpoint, literal, plain_address, split_address
from actum.sandbox.egress.bounds import Bounds
from actum.sandbox.egress.doors import Doors
from actum.sandbox.egress.judge import refusal
from actum.sandbox.egress.names import Names
from actum.sandbox.egress.records import Records

#: Asks the sandbox's init for more listening sockets; they come back through `Session.arrived`.
AskListeners = Callable[[str, tuple[int, ...]], None]
#: The real resolution of a name, on the host.
Lookup = Callable[[str, int], Awaitable[list[Address]]]

_SMALL, _LARGE = 16_384, 262_144
_ROUNDS = 8


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
        self._names = Names(doors, self._records, bounds, self._open_door)
        self._tasks: set[asyncio.Task[None]] = set()
        self._sockets: set[socket.socket] = set()
        self._waiting: dict[str, asyncio.Future[bool]] = {}
        self._closed = False

    # Called from the runner's thread.

    def listen(self, endpoints: tuple[Endpoint, ...], descriptors: list[int]) -> None:
        """The init has bound these; from now on they are served."""
        self._loop.call_soon_threadsafe(self._serve, endpoints, descriptors)

    def answer_names(self, datagram: int, stream: int) -> None:
        self._loop.call_soon_threadsafe(self._serve_names, datagram, stream)

    def arrived(self, address: str, ports: list[int], descriptors: list[int]) -> None:
        """The init has bound the listeners that were asked for; fewer if some were taken."""
        self._loop.call_soon_threadsafe(self._serve_new, address, ports, descriptors)

    def close(self) -> tuple[Connection, ...]:
        """Cut everything and tell what happened."""
        asyncio.run_coroutine_threadsafe(self._cut(), self._loop).result()
        return self._records.all()

    # In the relay's loop from here on.

    async def _cut(self) -> None:
        self._closed = True
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # Only now: a descriptor closed earlier could be another session's before the loop let go.
        for left in self._sockets:
            left.close()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _adopt(self, descriptors: list[int]) -> list[socket.socket]:
        """Ours from here on; nothing at all once the session is closed."""
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
        # Not `loop.sock_accept`: cancelled at the wrong moment, it loses a connection unclosed.
        while True:
            try:
                inside, _peer = listener.accept()
            except BlockingIOError:
                await self._readable(listener)
                continue
            except OSError:
                # No descriptors left, or the peer was gone already: neither ends the service.
                await asyncio.sleep(0.05)
                continue
            inside.setblocking(False)
            admit(inside)
            await asyncio.sleep(0)  # accept can go on for ever without ever waiting

    async def _readable(self, listener: socket.socket) -> None:
        ready = asyncio.Event()
        self._loop.add_reader(listener, ready.set)
        try:
            await ready.wait()
        finally:
            self._loop.remove_reader(listener)

    def _admit_to_names(self, inside: socket.socket) -> None:
        self._sockets.add(inside)  # here: a task that is cancelled before its start runs nothing
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
            if outside is None:
                self._records.connection(endpoint, address, refused=why)
                _reset(inside)
                return
            try:
                await self._relay(inside, outside, moved)
            finally:  # a connection that the end of the tool cuts off was made all the same
                self._records.connection(endpoint, address, sent=moved[0], received=moved[1])
        finally:
            self._at_once -= 1
            for end in (inside, outside):
                if end is not None:
                    self._sockets.discard(end)
                    end.close()

    async def _judged(self, endpoint: Endpoint) -> tuple[list[tuple[Address, int]], str]:
        """Where an endpoint is, and why it is not reached. Resolved once, here, never inside."""
        try:
            addresses = await self._addresses(endpoint)
        except (OSError, UnicodeError) as error:
            return [], f"name not resolved: {getattr(error, 'strerror', None) or error}"
        if not addresses:
            return [], "name not resolved: no address"
        for address, port in addresses:
            if self._plan.denies_address(address, port):
                return addresses, f"address {address} denied"
        if self._plan.may_be_internal(endpoint):
            return addresses, ""
        # Any internal answer spoils the name: an attacker mixes them in.
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
        """A connection to one of the addresses that were judged: never to the name again."""
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
                why = f"not connected: {getattr(error, 'strerror', None) or 'timed out'}"
                self._sockets.discard(outside)
                outside.close()
            else:
                return outside, str(address), ""
        return None, str(addresses[0][0]), why

    async def _relay(self, inside: socket.socket, outside: socket.socket, moved: list[int]) -> None:
        for end in (inside, outside):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.gather(
            self._copy(inside, outside, moved, 0), self._copy(outside, inside, moved, 1)
        )

    async def _copy(
        self, source: socket.socket, target: socket.socket, moved: list[int], direction: int
    ) -> None:
        """One direction, until its end is passed on; a few of those that need it get more room."""
        buffer, rounds = memoryview(bytearray(_SMALL)), 0
        try:
            while count := await self._loop.sock_recv_into(source, buffer):
                self.relayed_bytes += count
                if self.relayed_bytes > self._bounds.bytes:
                    self.tripped = True
                    raise ConnectionAbortedError
                await self._loop.sock_sendall(target, buffer[:count])
                moved[direction] += count
                if count == len(buffer) == _SMALL and self._large < self._bounds.large_buffers:
                    self._large += 1
                    buffer = memoryview(bytearray(_LARGE))
                rounds += 1
                if rounds % _ROUNDS == 0:
                    await asyncio.sleep(0)  # a fast pair of ends would never let go of the loop
            target.shutdown(socket.SHUT_WR)
        except OSError:
            # Broken on one side is broken on both.
            for end in (source, target):
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
        finally:
            self._large -= len(buffer) == _LARGE


def _reset(inside: socket.socket) -> None:
    """Close so that the tool sees an error at once, not an empty reply."""
    inside.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    inside.close()
