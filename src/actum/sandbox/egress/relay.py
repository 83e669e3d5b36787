"""The relay: one event loop in a thread of its own, for every sandbox with egress."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from actum.contract.egress import Address
from actum.sandbox.egress.bounds import Bounds
from actum.sandbox.egress.connections import AskListeners, Lookup, Session
from actum.sandbox.egress.doors import Doors
from actum.sandbox.packets import raise_descriptor_limit
from actum.value import field, value

#: Resolving blocks a thread. One execution uses a few of them at most (`Bounds.lookups`).
_RESOLVING_THREADS = 32


async def look_up(host: str, port: int) -> list[Address]:
    """Resolve with this host's own resolver."""
    found = await asyncio.get_running_loop().getaddrinfo(
        host, port, type=socket.SOCK_STREAM, proto=socket.IPPROTO_TCP
    )
    return [ipaddress.ip_address(str(item[4][0]).partition("%")[0]) for item in found]


@value(frozen=False, kw_only=False)
class Relay:
    """The thread and its loop, started with the first execution that needs them."""

    resolve: Mapping[str, str] = field(default_factory=dict)
    bounds: Bounds = field(default_factory=Bounds)
    lookup: Lookup = look_up
    _loop: asyncio.AbstractEventLoop | None = None
    _thread: threading.Thread | None = None
    _guard: threading.Lock = field(default_factory=threading.Lock)

    def open(self, doors: Doors, ask_listeners: AskListeners) -> Session:
        return Session(
            self._running(),
            doors,
            resolve=self.resolve,
            lookup=self.lookup,
            ask_listeners=ask_listeners,
            bounds=self.bounds,
        )

    def _running(self) -> asyncio.AbstractEventLoop:
        with self._guard:
            if self._loop is None:
                # Two sockets per connection: the usual soft limit of 1,024 is too low.
                raise_descriptor_limit()
                self._loop = asyncio.new_event_loop()
                self._loop.set_default_executor(
                    ThreadPoolExecutor(_RESOLVING_THREADS, thread_name_prefix="actum-names")
                )
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
