"""Modules that an executor may import: pure ones, loaded before the process is confined.

Nothing else can be loaded later, because the child has no file system. Deliberately absent:
`random`, `secrets`, `uuid` and `statistics` (entropy), `time` (clock), `os`, `sys`, `io`, `locale`.
"""

from __future__ import annotations

import importlib
import sys

ALLOWED = (
    "abc",
    "base64",
    "binascii",
    "bisect",
    "collections",
    "collections.abc",
    "copy",
    "dataclasses",
    "datetime",
    "decimal",
    "difflib",
    "enum",
    "fractions",
    "functools",
    "hashlib",
    "heapq",
    "html",
    "itertools",
    "json",
    "math",
    "numbers",
    "operator",
    "re",
    "string",
    "struct",
    "textwrap",
    "types",
    "typing",
    "unicodedata",
    "urllib.parse",
    "zlib",
)


def load() -> None:
    # Without OpenSSL, `hashlib` uses the interpreter's own code. OpenSSL has a function that reads
    # random bytes from the processor, which no filter can prevent.
    sys.modules["_hashlib"] = None  # type: ignore[assignment]
    for name in ALLOWED:
        importlib.import_module(name)
    # datetime.strptime and codecs import these on first use, when files cannot be opened any more.
    for name in ("_strptime", "encodings.utf_8", "encodings.latin_1", "encodings.ascii"):
        importlib.import_module(name)
