"""Raw output of a session that ends with this process: in memory only."""

from __future__ import annotations

import os
import threading

from actum.store.session_streams import SessionStore

#: Total of all streams; beyond it the oldest are dropped, as if their session were over.
_KEPT_BYTES = 64 << 20


class ProcessSessions(SessionStore):
    """Stores the process's own session in memory, and any named one on disk."""

    def __init__(self, home: str | os.PathLike[str], own: str) -> None:
        super().__init__(home)
        self._own = own
        self._streams: dict[str, tuple[bytes, bytes]] = {}
        self._bytes = 0
        self._guard = threading.Lock()

    def put(self, session: str, execution_id: str, stdout: bytes, stderr: bytes) -> None:
        if session != self._own:
            super().put(session, execution_id, stdout, stderr)
            return
        with self._guard:
            self._streams[execution_id] = (stdout, stderr)
            self._bytes += len(stdout) + len(stderr)
            while self._bytes > _KEPT_BYTES:
                oldest = next(iter(self._streams))
                self._bytes -= sum(map(len, self._streams.pop(oldest)))

    def get(self, session: str, execution_id: str) -> tuple[bytes, bytes] | None:
        if session != self._own:
            return super().get(session, execution_id)
        with self._guard:
            return self._streams.get(execution_id)

    def end(self, session: str) -> None:
        if session != self._own:
            super().end(session)
            return
        with self._guard:
            self._streams.clear()
            self._bytes = 0
