"""The stdin of the command itself: whether it can hold a program, and its content.

Only what a caller meant for Actum is read: the rest of a pipe belongs to its other readers, such as
the loop of a shell that starts several commands.
"""

from __future__ import annotations

import os
import select
import stat
import sys

_STDIN = 0
_CHUNK = 65_536


def is_piped() -> bool:
    """Whether stdin is a pipe, a socket or a file: no terminal, not /dev/null, not closed."""
    if _is_closed():
        return False
    mode = os.fstat(_STDIN).st_mode
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or stat.S_ISREG(mode)


def read(most: int) -> bytes:
    """The first `most` bytes of stdin. A signal handler that raises ends the wait."""
    content = bytearray()
    while len(content) < most and not _is_closed():
        try:
            chunk = os.read(_STDIN, min(_CHUNK, most - len(content)))
        except BlockingIOError:  # another process has made the shared description non-blocking
            select.select([_STDIN], [], [])
            continue
        except OSError:
            break  # a directory, or a terminal that is gone
        if not chunk:
            break
        content += chunk
    return bytes(content)


def _is_closed() -> bool:
    """Whether the command was started without stdin. Its number is then that of another file of
    Actum, such as the spawner's socket."""
    return sys.stdin is None
