"""Servers that stay open between calls, because their tool says `stateful: true`.

Each is used by one call at a time and only under the very policy it was opened with. One that has
ended, idle or by itself, is sealed soon after by a thread that exists only while any are kept. What
it has changed is one transaction, settled then.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Hashable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

from actum.errors import ActumError
from actum.value import replace

if TYPE_CHECKING:
    from actum.contract.call import EffectivePolicy
    from actum.engine.mcp.output_schema import OutputSchemas
    from actum.engine.mcp.pins import ServerPins
    from actum.engine.mcp.talk import Talk

#: Words and sets of words, all of which decide who may share a server.
Key = tuple[Hashable, ...]

_LOOK_S = 1.0
_POLICIES = 16  #: whose digests are remembered


class KeptServer:
    """One place for a server; empty until the first call has opened one."""

    def __init__(self) -> None:
        self.turn = threading.Lock()  #: who speaks
        self.talk: Talk | None = None
        self.used = 0.0  #: when someone last spoke with it

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


class KeptServers:
    """All of a runtime's, by what they may be used for."""

    def __init__(self, pins: ServerPins, *, websocket: bool = False) -> None:
        self.pins = pins
        self.websocket = websocket
        self._schemas: OutputSchemas | None = None
        self._kept: dict[Key, KeptServer] = {}
        self._timeless: tuple[tuple[EffectivePolicy, str], ...] = ()
        self._guard = threading.Lock()
        self._woken = threading.Event()
        self._sealer: threading.Thread | None = None
        self._closed = False

    @property
    def schemas(self) -> OutputSchemas:
        from actum.engine.mcp.output_schema import OutputSchemas

        with self._guard:
            if self._schemas is None:
                self._schemas = OutputSchemas()
            return self._schemas

    def timeless(self, policy: EffectivePolicy) -> str:
        """Digest of a policy but for its time. The latest are known by identity: none changes."""
        for known, digest in self._timeless:
            if known is policy:
                return digest
        digest = replace(policy, limits=replace(policy.limits, timeout_ms=0)).sha256
        self._timeless = ((policy, digest), *self._timeless[: _POLICIES - 1])
        return digest

    def turn(self, key: Key, deadline: float) -> AbstractContextManager[KeptServer | None]:
        """The place for `key`, ours inside the block; ``None``: not in time."""
        return _Turn(self, key, deadline)

    def take(self, key: Key, deadline: float) -> KeptServer | None:
        while True:
            place = self._place(key)
            if not place.turn.acquire(timeout=max(0.0, deadline - time.monotonic())):
                return None
            with self._guard:
                if self._kept.get(key) is place:
                    return place
            place.turn.release()  # it was given up while we waited for it

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
        """End the one that has waited longest; false if none waits."""
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
            # One that is in use is its caller's to look after.
            if place.turn.acquire(blocking=everything):
                try:
                    if place.talk is not None and (everything or place.talk.server.channel.ended):
                        place.discard()
                    if place.talk is None:
                        with self._guard:
                            del self._kept[key]
                except (ActumError, OSError):  # the second: its changes could not be committed
                    continue  # it is on record as far as it could be; whoever asks next is told
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
    def __init__(self, servers: KeptServers, key: Key, deadline: float) -> None:
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
