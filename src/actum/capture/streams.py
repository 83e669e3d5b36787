"""A tool's output at any volume: stores the first bytes, counts and digests all of them.

Memory use is constant whatever the tool writes, and a full limit never blocks it: the excess is
read and dropped. The runner's deadline decides when to stop reading, not this module.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from typing import TYPE_CHECKING

from actum.capture.model import Stream

if TYPE_CHECKING:
    from actum.capture.redaction import Redaction, StreamRedaction

_READ_BYTES = 65_536

# A tool that writes faster than we read would otherwise hold the reader past its deadline.
_READS_PER_DRAIN = 16

#: The stream of a tool that wrote nothing.
SILENCE = Stream(kept=b"", total_bytes=0, sha256=hashlib.sha256().hexdigest())


class StreamKeeper:
    """Stores the first `limit` bytes of one stream and the digest of the whole.

    With a `redaction`, it stores, shows, counts and digests the redacted stream.
    """

    def __init__(self, limit: int, redaction: StreamRedaction | None = None) -> None:
        if limit < 0:
            raise ValueError(f"limit: {limit} bytes is not a limit; give 0 or more")
        self._limit = limit
        self._kept = bytearray()
        self._total = 0
        self._digest: hashlib._Hash | None = None  #: made at the first byte
        self._redaction = redaction
        self._read_buffer: memoryview | None = None

    def feed(self, data: bytes | memoryview) -> bytes | memoryview:
        """Take in `data`. Returns what may be shown now."""
        if self._redaction is not None:
            data = self._redaction.feed(data)
        self._keep(data)
        return data

    def rest(self) -> bytes:
        """The bytes that redaction held back, at the end of the stream."""
        if self._redaction is None:
            return b""
        data, self._redaction = self._redaction.rest(), None
        self._keep(data)
        return data

    def _keep(self, data: bytes | memoryview) -> None:
        if not data:
            return
        room = self._limit - len(self._kept)
        if room > 0:
            self._kept += data[:room]
        self._total += len(data)
        if self._digest is None:
            self._digest = hashlib.sha256()
        self._digest.update(data)

    def read_from(self, fd: int) -> memoryview:
        """One read, into the keeper's buffer if large; the view is valid until the next read."""
        if self._total < _READ_BYTES:  # most tools write little and need no buffer
            return memoryview(os.read(fd, _READ_BYTES))
        if self._read_buffer is None:
            self._read_buffer = memoryview(bytearray(_READ_BYTES))
        count = os.readv(fd, [self._read_buffer])
        return self._read_buffer[:count]

    def finish(self) -> Stream:
        if self._redaction is not None:
            self.rest()
        if self._digest is None:
            return SILENCE
        return Stream(
            kept=bytes(self._kept),
            total_bytes=self._total,
            sha256=self._digest.hexdigest(),
        )


def whole(content: bytes, limit: int) -> Stream:
    """A complete stream with this `content`."""
    return Stream(
        kept=content[:limit],
        total_bytes=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
    )


def keeper(limit: int, redaction: Redaction | None) -> StreamKeeper:
    return StreamKeeper(limit, None if redaction is None else redaction.stream())


def drain(fd: int, keeper: StreamKeeper, on_chunk: Callable[[bytes], None] | None = None) -> bool:
    """Feed the available bytes of a non-blocking `fd`, at most 1 MiB; False at its end."""
    for _ in range(_READS_PER_DRAIN):
        try:
            chunk = keeper.read_from(fd)
        except BlockingIOError:
            return True
        if not chunk:
            return False
        shown = keeper.feed(chunk)
        if on_chunk is not None and shown:
            on_chunk(bytes(shown))
    return True
