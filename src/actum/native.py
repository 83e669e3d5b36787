"""The native parts of this installation: the init of every sandbox and the determinism library.

The build hook compiles them (`hatch_build.py`). A process reads each one once and uses those bytes
until it ends, so that the digest in a receipt is the digest of what ran.
"""

from __future__ import annotations

import os
from functools import cache

from actum.errors import Fault

INIT = "sandbox/jail-x86_64"
DETERMINISM = "determinism/steady-x86_64.so"


class NotBuilt(Fault):
    """A native part is missing: this source tree was not built."""

    code = "NOT_BUILT"


@cache
def content(part: str) -> bytes:
    path = os.path.join(os.path.dirname(__file__), part)
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError as error:
        raise NotBuilt(
            f"{path} is missing: this source tree was not built.",
            remedy="Run `make setup` or `pip install -e .` in the checkout.",
        ) from error


@cache
def sha256(part: str) -> str:
    import hashlib  # imported late: the spawner starts first

    return hashlib.sha256(content(part)).hexdigest()
