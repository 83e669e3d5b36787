"""A pool of servers that stay open between calls, because their tool declares `stateful: true`.

Each serves one call at a time, and only calls under the policy it was opened with. A thread that
runs only while the pool is not empty writes the closing record of a server soon after its end, by
idle time or by itself. Its changes are one transaction, which is settled then.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

from actum.errors import ActumError

if TYPE_CHECKING:
    from actum.mcp.client import Talk
    from actum.mcp.output_schema import OutputSchemas
    from actum.mcp.pins import ServerPins

#: Calls with equal keys may share a server.
Key = tuple[Hashable, ...]

_LOOK_S = 1.0


class KeptServer:
    """One slot of the pool; empty until the first call has opened a server."""

    def __init__(self) -> None:
        self.turn = threading.Lock()  #: held during a call
        self.talk: Talk | None = None
        self.used = 0.0  #: time of the last call

    @contextmanager
    def for_one_call(self) -> Iterator[KeptServer]:
        try:
            yield self
        finally:
            self.discard()

    def discard(self, *, broken_off: bool = False) -> None:
        talk, self.talk = self.talk, None
        if talk is not None:
            talk.server.close(broken_off=broken_off)


class ServerPool:
    """The open servers of one runtime, by key."""

    def __init__(self, pins: ServerPins, *, websocket: bool = False) -> None:
        self.pins = pins
        self.websocket = websocket
        self._schemas: OutputSchemas | None = None
        self._kept: dict[Key, KeptServer] = {}
        self._guard = threading.Lock()
        self._woken = threading.Event()
        self._sealer: threading.Thread | None = None
        self._closed = False

    @property
    def schemas(self) -> OutputSchemas:
        from actum.mcp.output_schema import OutputSchemas

        with self._guard:
            if self._schemas is None:
                self._schemas = OutputSchemas()
            return self._schemas

    def turn(self, key: Key, deadline: float) -> AbstractContextManager[KeptServer | None]:
        """The slot for `key`, locked inside the block; ``None``: not free before the deadline."""
        return _Turn(self, key, deadline)

    def take(self, key: Key, deadline: float) -> KeptServer | None:
        while True:
            place = self._place(key)
            if not place.turn.acquire(timeout=max(0.0, deadline - time.monotonic())):
                return None
            with self._guard:
                if self._kept.get(key) is place:
                    return place
            place.turn.release()  # it was discarded while we waited for it

    def _place(self, key: Key) -> KeptServer:
        with self._guard:
            if self._sealer is None and not self._closed:
                self._sealer = threading.Thread(target=self._seal, name="actum-kept", daemon=True)
                self._sealer.start()
            place = self._kept.get(key)
            if place is None:
                place = self._kept[key] = KeptServer()
            return place

    def make_room(self) -> bool:
        """End the server that has been idle longest; false if none is idle."""
        with self._guard:
            places = sorted(self._kept.values(), key=lambda place: place.used)
        for place in places:
            if place.turn.acquire(blocking=False):
                try:
                    if place.talk is not None:
                        place.discard()
                        return True
                finally:
                    place.turn.release()
        return False

    def _seal(self) -> None:
        while not self._woken.wait(_LOOK_S):
            self._discard_ended(everything=False)

    def _discard_ended(self, *, everything: bool) -> None:
        with self._guard:
            places = list(self._kept.items())
        for key, place in places:
            # The caller of a server in use handles its end.
            if place.turn.acquire(blocking=everything):
                try:
                    if place.talk is not None and (everything or place.talk.server.channel.ended):
                        place.discard()
                    if place.talk is None:
                        with self._guard:
                            del self._kept[key]
                except (ActumError, OSError):  # OSError: its changes could not be committed
                    continue  # recorded as far as possible; the next request reports it
                finally:
                    place.turn.release()

    def close(self) -> None:
        with self._guard:
            self._closed = True
        self._woken.set()
        if self._sealer is not None:
            self._sealer.join()
        self._discard_ended(everything=True)
        if self._schemas is not None:
            self._schemas.close()


class _Turn:
    def __init__(self, servers: ServerPool, key: Key, deadline: float) -> None:
        self._servers = servers
        self._key = key
        self._deadline = deadline

    def __enter__(self) -> KeptServer | None:
        self._place = self._servers.take(self._key, self._deadline)
        return self._place

    def __exit__(self, *_error: object) -> None:
        if self._place is not None:
            self._place.used = time.monotonic()
            self._place.turn.release()
