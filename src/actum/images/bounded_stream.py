"""Reads one archive once, from the front: decompressed, digested and counted while it is read."""

from __future__ import annotations

import hashlib
import time
import zlib
from typing import IO

from actum.errors import Refused
from actum.images.image_bounds import Bounds, invalid, too_large

_CHUNK = 1 << 18
_GZIP = b"\x1f\x8b"
_OTHERS = {
    b"\x28\xb5\x2f\xfd": ("zstd", "zstd -d"),
    b"\xfd7zXZ\x00": ("xz", "xz -d"),
    b"BZh": ("bzip2", "bzip2 -d"),
    b"\x04\x22\x4d\x18": ("lz4", "lz4 -d"),
}


def is_gzip(head: bytes) -> bool:
    return head.startswith(_GZIP)


def require_readable(head: bytes) -> None:
    """Refuse a compression that no reader is installed for."""
    for magic, (name, command) in _OTHERS.items():
        if head.startswith(magic):
            raise Refused(
                "IMAGE_COMPRESSION",
                f"The image was not added: it is compressed with {name}, and Actum reads plain"
                " and gzip archives.",
                remedy=f"Decompress it (`{command}`), or export the image with gzip layers.",
            )


class Budget:
    """What all archives of one image may use together."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self._end = time.monotonic() + bounds.seconds
        self._bytes = 0

    def spend(self, size: int) -> None:
        self._bytes += size
        if self._bytes > self.bounds.content_bytes:
            raise too_large(f"it has more than {self.bounds.content_bytes >> 20} MiB of content")
        if time.monotonic() > self._end:
            raise too_large(f"it took more than {self.bounds.seconds:.0f} s to read")


class BoundedStream:
    """Bytes of a raw file of `size` bytes, decompressed if they are gzip."""

    def __init__(self, raw: IO[bytes], size: int, budget: Budget) -> None:
        self._raw, self._left, self._budget = raw, size, budget
        self._digest, self._content_digest = hashlib.sha256(), hashlib.sha256()
        self._taken = self._given = 0
        self._buffer, self._at = b"", 0
        head = self._take()
        require_readable(head)
        self._gzip = zlib.decompressobj(wbits=31) if is_gzip(head) else None
        self._pending = head

    def read(self, size: int) -> bytes:
        """Up to `size` bytes; empty only at the end."""
        if self._at == len(self._buffer):
            self._buffer, self._at = self._next(), 0
        end = min(self._at + size, len(self._buffer))
        part = self._buffer[self._at : end]
        self._at = end
        return part

    def exactly(self, size: int) -> bytes:
        part = self.read(size)
        if len(part) == size:
            return part
        parts, missing = [part], size - len(part)
        while missing:
            part = self.read(missing)
            if not part:
                raise invalid("an archive in it ends in the middle of an entry")
            parts.append(part)
            missing -= len(part)
        return b"".join(parts)

    def skip(self, size: int) -> None:
        while size:
            part = self.read(min(size, _CHUNK))
            if not part:
                raise invalid("an archive in it ends in the middle of an entry")
            size -= len(part)

    def finish(self) -> tuple[str, str]:
        """Read to the end; the digests of the raw bytes and of the content."""
        while self.read(_CHUNK):
            pass
        return f"sha256:{self._digest.hexdigest()}", f"sha256:{self._content_digest.hexdigest()}"

    def _take(self) -> bytes:
        chunk = self._raw.read(min(_CHUNK, self._left))
        if not chunk and self._left:
            raise invalid("a file in it is shorter than it says")
        self._budget.spend(0)  # many empty members take time and give no content
        self._left -= len(chunk)
        self._taken += len(chunk)
        self._digest.update(chunk)
        return chunk

    def _next(self) -> bytes:
        chunk = self._decompressed() if self._gzip is not None else self._plain()
        self._content_digest.update(chunk)
        self._given += len(chunk)
        self._budget.spend(len(chunk))
        bounds = self._budget.bounds
        if self._given > bounds.at_ease_bytes and self._given > bounds.ratio * self._taken:
            raise too_large(f"it unpacks to more than {bounds.ratio} times its compressed size")
        return chunk

    def _plain(self) -> bytes:
        chunk, self._pending = self._pending, b""
        return chunk or self._take()

    def _decompressed(self) -> bytes:
        gzip = self._gzip
        while gzip is not None:
            try:
                chunk = gzip.decompress(self._pending, _CHUNK)
            except zlib.error as error:
                raise invalid(f"a gzip archive in it is damaged ({error})") from error
            self._pending = gzip.unconsumed_tail
            if gzip.eof:
                # gzip archives can be several members, one after the other; zeros may pad them.
                rest = gzip.unused_data.lstrip(b"\0") or self._take_rest()
                gzip = self._gzip = zlib.decompressobj(wbits=31) if rest else None
                self._pending = rest
                if gzip is None:
                    self._gzip, self._pending = None, b""
            elif not chunk and not self._pending:
                self._pending = self._take()
                if not self._pending:
                    raise invalid("a gzip archive in it ends too early")
            if chunk:
                return chunk
        return b""

    def _take_rest(self) -> bytes:
        rest = b""
        while self._left and not rest:
            rest = self._take().lstrip(b"\0")
        return rest
