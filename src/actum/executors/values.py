"""The values of a session: in memory, by their digest, until the runtime closes.

An `ActionResult` never holds a value; the caller reads the value here by the result. Values are
never written to disk, and only the newest are kept.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

from actum.contract.model import Json
from actum.errors import Refused
from actum.executors.model import ActionResult
from actum.executors.shape import canonical_loads
from actum.value import value

KEPT_VALUES = 256
KEPT_BYTES = 32 << 20


@value
class Note:
    """Where an executor failed, for its author. Never its message, which may hold the payload."""

    kind: str
    line: int

    def __str__(self) -> str:
        return f"{self.kind} at line {self.line}" if self.line else self.kind


class SessionValues:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: OrderedDict[str, bytes] = OrderedDict()
        self._bytes = 0
        self._notes: OrderedDict[str, Note] = OrderedDict()

    def keep(self, digest: str, encoded: bytes) -> None:
        with self._lock:
            self._bytes += len(encoded) - len(self._values.pop(digest, b""))
            self._values[digest] = encoded
            while len(self._values) > KEPT_VALUES or self._bytes > KEPT_BYTES:
                if len(self._values) == 1:
                    break  # the newest stays, whatever its size
                _digest, oldest = self._values.popitem(last=False)
                self._bytes -= len(oldest)

    def value(self, result: ActionResult) -> Json:
        """The output of a result; ``None`` if the executor returned none."""
        if result.output_digest is None:
            return None
        with self._lock:
            encoded = self._values.get(result.output_digest)
        if encoded is None:
            raise Refused(
                "VALUE_GONE",
                f"output_digest: this session no longer has the value {result.output_digest}.",
                remedy="Call the action again; the same input gives the same output.",
            )
        return canonical_loads(encoded)

    def keep_note(self, trace_id: str, note: Note) -> None:
        with self._lock:
            self._notes[trace_id] = note
            while len(self._notes) > KEPT_VALUES:
                self._notes.popitem(last=False)

    def note(self, result: ActionResult) -> Note | None:
        with self._lock:
            return self._notes.get(result.trace_id)
