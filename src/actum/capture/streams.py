"""What a tool says, at any volume: the first bytes kept, all of them counted and digested.

Memory stays flat whatever the tool writes, and a full limit never blocks it: the excess is read
and dropped. Nothing here decides when to stop reading; that is the runner's deadline.
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

#: Of one that wrote nothing.
SILENCE = Stream(kept=b"", total_bytes=0, sha256=hashlib.sha256().hexdigest())


class StreamKeeper:
    """Keeps the first `limit` bytes of one stream and the digest of the whole.

    With a `redaction`, all of it is about the stream as it is after that: what is kept, shown live,
    counted and digested.
    """

    def __init__(self, limit: int, redaction: StreamRedaction | None = None) -> None:
        if limit < 0:
            raise ValueError(f"limit: {limit} bytes cannot be kept; give 0 or more")
        self._limit = limit
        self._kept = bytearray()
        self._total = 0
        self._digest: hashlib._Hash | None = None  #: from the first byte on
        self._redaction = redaction
        self._read_buffer: memoryview | None = None

    def feed(self, data: bytes | memoryview) -> bytes | memoryview:
        """Take `data` in; returns what may be shown of it by now."""
        if self._redaction is not None:
            data = self._redaction.feed(data)
        self._keep(data)
        return data

    def rest(self) -> bytes:
        """What redaction held back, once the stream has ended."""
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
        """One read, of much into the keeper's own buffer; the view is good until the next read."""
        if self._total < _READ_BYTES:  # most tools say little: no buffer is cleared for them
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
    """The stream of which `content` is all there will be."""
    return Stream(
        kept=content[:limit],
        total_bytes=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
    )


def keeper(limit: int, redaction: Redaction | None) -> StreamKeeper:
    return StreamKeeper(limit, None if redaction is None else redaction.stream())


def drain(fd: int, keeper: StreamKeeper, on_chunk: Callable[[bytes], None] | None = None) -> bool:
    """Feed what a non-blocking `fd` has now, at most 1 MiB of it; False once it has ended."""
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
