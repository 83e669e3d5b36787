"""The relay: one event loop in a thread of its own, for every sandbox that may go outside.

Bounded per execution in connections and bytes. Every connection and every refused name becomes a
`Connection` record, said by the layer that decided.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import resource
import socket
import struct
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

from actum.capture.model import Connection
from actum.contract.egress import Endpoint, literal
from actum.sandbox.egress import dns
from actum.sandbox.egress.doors import Doors
from actum.sandbox.egress.judge import Address, refusal

MAX_CONNECTIONS = 10_000
MAX_AT_ONCE = 2_000
MAX_BYTES = 8 << 30
MAX_RECORDS = 1_000
_CONNECT_S = 10.0
_LISTEN_S = 5.0
_SMALL, _LARGE = 16_384, 262_144
_OPEN_FILES = 65_536


#: Asks the sandbox's init for more listening sockets; they come back through `Session.arrived`.
AskListeners = Callable[[str, tuple[int, ...]], None]


@dataclass(slots=True)
class _Counts:
    connections: int = 0
    at_once: int = 0
    bytes: int = 0
    records: int = 0


class Session:
    """The egress of one execution. Made and closed by the runner, worked by the relay's loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        doors: Doors,
        resolve: Mapping[str, str],
        ask_listeners: AskListeners,
    ) -> None:
        self.doors = doors
        self.tripped = False
        self._loop = loop
        self._plan = doors.plan
        self._resolve = resolve
        self._ask_listeners = ask_listeners
        self._began = time.monotonic()
        self._counts = _Counts()
        self._records: list[Connection] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._sockets: set[socket.socket] = set()
        self._waiting: dict[str, asyncio.Future[None]] = {}
        self._closed = False

    # Called from the runner's thread.

    def listen(self, endpoints: tuple[Endpoint, ...], descriptors: list[int]) -> None:
        """The init has bound these; from now on they are served."""
        self._loop.call_soon_threadsafe(self._serve, endpoints, descriptors)

    def answer_names(self, datagram: int, stream: int) -> None:
        self._loop.call_soon_threadsafe(self._serve_names, datagram, stream)

    def arrived(self, address: str, ports: list[int], descriptors: list[int]) -> None:
        """The init has bound the listeners that were asked for."""
        self._loop.call_soon_threadsafe(self._serve_new, address, ports, descriptors)

    def close(self) -> tuple[Connection, ...]:
        """Cut everything and tell what happened."""
        asyncio.run_coroutine_threadsafe(self._cut(), self._loop).result()
        return tuple(self._records)

    @property
    def connections(self) -> int:
        return self._counts.connections

    @property
    def relayed_bytes(self) -> int:
        return self._counts.bytes

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

    def _adopt(self, descriptor: int) -> socket.socket:
        adopted = socket.socket(fileno=descriptor)
        adopted.setblocking(False)
        self._sockets.add(adopted)
        if self._closed:
            adopted.close()
        return adopted

    def _serve(self, endpoints: tuple[Endpoint, ...], descriptors: list[int]) -> None:
        for endpoint, descriptor in zip(endpoints, descriptors, strict=True):
            self._start(self._accept(self._adopt(descriptor), endpoint))

    def _serve_new(self, address: str, ports: list[int], descriptors: list[int]) -> None:
        name = self.doors.name_at(address) or ""
        self._serve(tuple(Endpoint(name, port) for port in ports), descriptors)
        waiting = self._waiting.pop(address, None)
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    def _serve_names(self, datagram: int, stream: int) -> None:
        self._start(self._answer_datagrams(self._adopt(datagram)))
        self._start(self._answer_streams(self._adopt(stream)))

    def _record(self, endpoint: Endpoint, address: str = "", **facts: Any) -> None:
        self._counts.records += 1
        if len(self._records) < MAX_RECORDS:
            elapsed = int((time.monotonic() - self._began) * 1000)
            self._records.append(
                Connection(
                    host=endpoint.host,
                    port=endpoint.port,
                    address=address,
                    time_ms=elapsed,
                    **facts,
                )
            )

    async def _accept(self, listener: socket.socket, endpoint: Endpoint) -> None:
        while True:
            inside, _peer = await self._loop.sock_accept(listener)
            self._counts.connections += 1
            if self._counts.connections > MAX_CONNECTIONS or self._counts.at_once >= MAX_AT_ONCE:
                self.tripped = True
                self._record(endpoint, refused="over the number of connections")
                _reset(inside)
                continue
            self._start(self._connection(inside, endpoint))

    async def _connection(self, inside: socket.socket, endpoint: Endpoint) -> None:
        self._counts.at_once += 1
        self._sockets.add(inside)
        outside: socket.socket | None = None
        moved = [0, 0]  # out of the sandbox, into it
        try:
            try:
                addresses = await self._addresses(endpoint)
            except OSError as error:
                self._record(endpoint, refused=f"name not resolved: {error.strerror or error}")
                _reset(inside)
                return
            if not self._plan.may_be_internal(endpoint):
                # Any internal answer spoils the name: an attacker mixes them in.
                reasons = [reason for address, _port in addresses if (reason := refusal(address))]
                if reasons:
                    self._record(endpoint, str(addresses[0][0]), refused=reasons[0])
                    _reset(inside)
                    return
            outside, address, why = await self._connect(addresses)
            if outside is None:
                self._record(endpoint, address, refused=why)
                _reset(inside)
                return
            try:
                await self._relay(inside, outside, moved)
            finally:  # a connection that the end of the tool cuts off was made all the same
                self._record(endpoint, address, sent=moved[0], received=moved[1])
        finally:
            self._counts.at_once -= 1
            for end in (inside, outside):
                if end is not None:
                    self._sockets.discard(end)
                    end.close()

    async def _addresses(self, endpoint: Endpoint) -> list[tuple[Address, int]]:
        """Resolved here, once per connection, never by the sandbox."""
        mapped = self._resolve.get(str(endpoint))
        if mapped is not None:
            host, _, port = mapped.rpartition(":")
            return [(ipaddress.ip_address(host.strip("[]")), int(port))]
        spelt = literal(endpoint.host)
        if spelt is not None:
            return [(spelt, endpoint.port)]
        found = await self._loop.getaddrinfo(
            endpoint.host, endpoint.port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP
        )
        texts = dict.fromkeys(str(item[4][0]).partition("%")[0] for item in found)
        return [(ipaddress.ip_address(text), endpoint.port) for text in texts]

    async def _connect(
        self, addresses: list[tuple[Address, int]]
    ) -> tuple[socket.socket | None, str, str]:
        why = "no address"
        for address, port in addresses:
            family = socket.AF_INET if address.version == 4 else socket.AF_INET6
            outside = socket.socket(family, socket.SOCK_STREAM)
            outside.setblocking(False)
            self._sockets.add(outside)
            try:
                await asyncio.wait_for(
                    self._loop.sock_connect(outside, (str(address), port)), _CONNECT_S
                )
            except (OSError, TimeoutError) as error:
                why = f"not connected: {getattr(error, 'strerror', None) or 'timed out'}"
                self._sockets.discard(outside)
                outside.close()
            else:
                return outside, str(address), ""
        return None, str(addresses[0][0]) if addresses else "", why

    async def _relay(self, inside: socket.socket, outside: socket.socket, moved: list[int]) -> None:
        for end in (inside, outside):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await asyncio.gather(
            self._copy(inside, outside, moved, 0), self._copy(outside, inside, moved, 1)
        )

    async def _copy(
        self, source: socket.socket, target: socket.socket, moved: list[int], direction: int
    ) -> None:
        """One direction, until its end is passed on; small buffers until they prove too small."""
        buffer = memoryview(bytearray(_SMALL))
        try:
            while count := await self._loop.sock_recv_into(source, buffer):
                moved[direction] += count
                self._counts.bytes += count
                if self._counts.bytes > MAX_BYTES:
                    self.tripped = True
                    raise ConnectionAbortedError
                await self._loop.sock_sendall(target, buffer[:count])
                if count == len(buffer) == _SMALL:
                    buffer = memoryview(bytearray(_LARGE))
            target.shutdown(socket.SHUT_WR)
        except OSError:
            # Broken on one side is broken on both.
            for end in (source, target):
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)

    async def _lookup(self, packet: bytes) -> bytes | None:
        question = dns.parse(packet)
        if question is None:
            return None
        ports = self._plan.ports_of(question.name) if question.name else ()
        known = any(item.host == question.name for item in self._plan.endpoints)
        if not ports and not known:
            self._record(Endpoint(question.name, 0), refused="name not allowed")
            return dns.answer(question, None, exists=False)
        if not question.wants_ipv4:
            return dns.answer(question, None, exists=True)
        fresh = ports and not self.doors.knows(question.name)
        address = self.doors.address_of(question.name)
        if address is None:
            self._record(Endpoint(question.name, 0), refused="too many names")
            return dns.answer(question, None, exists=False)
        if fresh:
            await self._open_door(address, ports)
        elif address in self._waiting:
            await asyncio.wait_for(asyncio.shield(self._waiting[address]), _LISTEN_S)
        spelt = ipaddress.ip_address(address)
        return dns.answer(
            question, spelt if isinstance(spelt, ipaddress.IPv4Address) else None, exists=True
        )

    async def _open_door(self, address: str, ports: tuple[int, ...]) -> None:
        waiting: asyncio.Future[None] = self._loop.create_future()
        self._waiting[address] = waiting
        self._ask_listeners(address, ports)
        await asyncio.wait_for(asyncio.shield(waiting), _LISTEN_S)

    async def _answer_datagrams(self, datagram: socket.socket) -> None:
        while True:
            packet, peer = await self._loop.sock_recvfrom(datagram, 4_096)
            self._start(self._answer_datagram(datagram, packet, peer))

    async def _answer_datagram(self, datagram: socket.socket, packet: bytes, peer: Any) -> None:
        with contextlib.suppress(OSError, TimeoutError):
            reply = await self._lookup(packet)
            if reply is not None:
                await self._loop.sock_sendto(datagram, reply, peer)

    async def _answer_streams(self, listener: socket.socket) -> None:
        while True:
            stream, _peer = await self._loop.sock_accept(listener)
            self._start(self._answer_stream(stream))

    async def _answer_stream(self, stream: socket.socket) -> None:
        self._sockets.add(stream)
        with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError), stream:
            while True:
                (length,) = struct.unpack("!H", await self._exactly(stream, 2))
                reply = await self._lookup(await self._exactly(stream, length))
                if reply is None:
                    break
                await self._loop.sock_sendall(stream, struct.pack("!H", len(reply)) + reply)
        self._sockets.discard(stream)

    async def _exactly(self, stream: socket.socket, count: int) -> bytes:
        data = b""
        while len(data) < count:
            chunk = await self._loop.sock_recv(stream, count - len(data))
            if not chunk:
                raise asyncio.IncompleteReadError(data, count)
            data += chunk
        return data


def _reset(inside: socket.socket) -> None:
    """Close so that the tool sees an error at once, not an empty reply."""
    inside.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    inside.close()


@dataclass(slots=True)
class Relay:
    """The thread and its loop, started with the first execution that needs them."""

    resolve: Mapping[str, str] = field(default_factory=dict)
    _loop: asyncio.AbstractEventLoop | None = None
    _thread: threading.Thread | None = None
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def open(self, doors: Doors, ask_listeners: AskListeners) -> Session:
        return Session(self._running(), doors, self.resolve, ask_listeners)

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._guard:
            if self._loop is None:
                # Two sockets per connection: the usual soft limit of 1,024 would be ours alone.
                _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
                wanted = min(hard, _OPEN_FILES) if hard != resource.RLIM_INFINITY else _OPEN_FILES
                resource.setrlimit(resource.RLIMIT_NOFILE, (max(_soft, wanted), hard))
                self._loop = asyncio.new_event_loop()
                self._thread = threading.Thread(
                    target=self._loop.run_forever, name="actum-egress", daemon=True
                )
                self._thread.start()
            return self._loop

    def close(self) -> None:
        with self._guard:
            if self._loop is not None and self._thread is not None:
                self._loop.call_soon_threadsafe(self._loop.stop)
                self._thread.join()
                self._loop.close()
                self._loop = self._thread = None
