"""The files that the host executes when it runs Actum: its package, its interpreter, its libraries.

A virtual environment is often a folder of the project that Actum works in. Files that a tool writes
there would run on the host with the next command, outside every sandbox.
"""

from __future__ import annotations

import os
import sys
from functools import cache

#: Names in a virtual environment. Not its folder: a project can be one.
_OF_AN_ENVIRONMENT = ("bin", "lib", "lib64", "pyvenv.cfg")
_LIBRARIES = ("site-packages", "dist-packages")


@cache
def own_code() -> tuple[str, ...]:
    """Absolute paths of this process, each with all contents."""
    found = {os.path.dirname(os.path.abspath(__file__)), os.path.dirname(os.__file__)}
    found.update(path for path in sys.path if os.path.basename(path) in _LIBRARIES)
    if sys.executable:
        found.add(sys.executable)
    if sys.prefix != sys.base_prefix:
        found.update(os.path.join(sys.prefix, name) for name in _OF_AN_ENVIRONMENT)
    return tuple(sorted(map(os.path.abspath, found)))
