"""The order of a snippet with large files: code and parameters as JSON, then the files' content.

The first line has the length of the JSON and the length of all content. Code and parameters count
as stdin for IV-05, the content as input files. The content of files that are too large is left out,
so that they are refused without having been copied.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

#: The program inside every sandbox that reads orders.
PROGRAM = "/etc/actum/snippet.py"
FRAME = b"actum-order "

_FIRST_LINE = re.compile(rb"actum-order ([0-9]{1,18}) ([0-9]{1,18})\n")


def framed(order: bytes, contents: Iterable[bytes | bytearray | memoryview], size: int) -> bytes:
    return b"".join((b"%b%d %d\n" % (FRAME, len(order), size), order, *contents))


def sizes(stdin: bytes) -> tuple[int, int]:
    """(bytes of code and parameters, bytes of files) of an order."""
    found = _FIRST_LINE.match(stdin)
    if found is None:
        return len(stdin), 0
    order, declared = int(found[1]), int(found[2])
    return order, max(declared, len(stdin) - found.end() - order)
