"""What a tool says, at any volume: the first bytes kept, all of them counted and digested.

Memory stays flat whatever the tool writes, and a full limit never blocks it: the excess is read
and dropped. Nothing here decides when to stop reading; that is the runner's deadline.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable

from actum.capture.model import Stream

_READ_BYTES = 65_536

# A tool that writes faster than we read would otherwise hold the reader past its deadline.
_READS_PER_DRAIN = 16


class StreamKeeper:
    """Keeps the first `limit` bytes of one stream and the digest of the whole."""

    def __init__(self, limit: int) -> None:
        if limit < 0:
            raise ValueError(f"limit: {limit} bytes cannot be kept; give 0 or more")
        self._limit = limit
        self._kept = bytearray()
        self._total = 0
        self._digest = hashlib.sha256()
        self._read_buffer = memoryview(bytearray(_READ_BYTES))

    def feed(self, data: bytes | memoryview) -> None:
        room = self._limit - len(self._kept)
        if room > 0:
            self._kept += data[:room]
        self._total += len(data)
        self._digest.update(data)

    def read_from(self, fd: int) -> memoryview:
        """One read into the keeper's own buffer; the view is good until the next read."""
        count = os.readv(fd, [self._read_buffer])
        return self._read_buffer[:count]

    def finish(self) -> Stream:
        return Stream(
            kept=bytes(self._kept),
            total_bytes=self._total,
            sha256=self._digest.hexdigest(),
        )


def drain(fd: int, keeper: StreamKeeper, on_chunk: Callable[[bytes], None] | None = None) -> bool:
    """Feed what a non-blocking `fd` has now, at most 1 MiB of it; False once it has ended."""
    for _ in range(_READS_PER_DRAIN):
        try:
            chunk = keeper.read_from(fd)
        except BlockingIOError:
            return True
        if not chunk:
            return False
        keeper.feed(chunk)
        if on_chunk is not None:
            on_chunk(bytes(chunk))
    return True
