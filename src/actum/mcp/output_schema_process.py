"""The process that compares one answer of an MCP server with the server's schema.

Both are untrusted. A schema of 2 KB can refer to itself so that a comparison takes years, and the
library holds the GIL meanwhile, so the host's process never compares. This process has one socket
to the host and cannot open files. The kernel ends it when a comparison has used up its CPU time,
even if the host has exited.

Runs as a file of its own, under `python -I -S`: nothing else of Actum is imported.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import struct
import sys
from collections.abc import Callable
from typing import Any

#: A request: the length of the schema, the length of the structure; then both.
HEADER = struct.Struct("!II")
READY, FITS, DIFFERS, NO_SCHEMA, NO_VALUE = b"r", b"f", b"d", b"s", b"v"

#: CPU time of one comparison, including the compilation of its schema.
CPU_S = 1.0
_MEMORY_BYTES = 512 << 20
_KEPT = 16  #: compiled schemas
_LINE = 0
_BACKTRACKS = 100_000
_PATTERN_BYTES = 1 << 20


def main() -> None:
    sys.path.append(sys.argv[1])  # where the library is
    import jsonschema_rs

    # Patterns run in linear time; one with lookaround or a backreference is bounded in steps.
    patterns = jsonschema_rs.FancyRegexOptions(
        backtrack_limit=_BACKTRACKS, size_limit=_PATTERN_BYTES, dfa_size_limit=_PATTERN_BYTES
    )

    def compiled(schema: bytes) -> Any:
        # Offline: a `$ref` must never make us read a file or open a connection.
        return jsonschema_rs.validator_for(
            json.loads(schema), offline=True, validate_formats=False, pattern_options=patterns
        )

    # The library imports some modules on first use; after `_confine` it could not open them.
    compiled(b'{"multipleOf": 0.5, "pattern": "(?=a)b"}').is_valid(10**40)
    _confine()
    os.write(_LINE, READY)
    known: dict[bytes, Any] = {}
    while header := _read(HEADER.size):
        schema_bytes, value_bytes = HEADER.unpack(header)
        schema, text = _read(schema_bytes), _read(value_bytes)
        signal.setitimer(signal.ITIMER_PROF, CPU_S)  # SIGPROF ends the process
        word = _compared(schema, text, known, compiled)
        signal.setitimer(signal.ITIMER_PROF, 0)
        os.write(_LINE, word)


def _compared(
    schema: bytes, text: bytes, known: dict[bytes, Any], compiled: Callable[[bytes], Any]
) -> bytes:
    if schema not in known:
        if len(known) >= _KEPT:
            known.clear()
        try:
            known[schema] = compiled(schema)
        except (ValueError, RecursionError, MemoryError):
            return NO_SCHEMA
    try:
        return FITS if known[schema].is_valid(json.loads(text)) else DIFFERS
    except (ValueError, RecursionError, MemoryError):
        return NO_VALUE


def _confine() -> None:
    for kind, most in (
        (resource.RLIMIT_AS, _MEMORY_BYTES),
        (resource.RLIMIT_NOFILE, _LINE + 1),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(kind, (most, most))


def _read(count: int) -> bytes:
    """Exactly `count` bytes; none if the host closed the socket."""
    parts = []
    while count:
        part = os.read(_LINE, min(count, 1 << 20))
        if not part:
            return b""
        parts.append(part)
        count -= len(part)
    return b"".join(parts)


if __name__ == "__main__":
    main()
