"""Landlock for the Python processes: make a ruleset that permits nothing yet, and apply it.

A ruleset for each sandbox: its descriptor is a shared object, and rules added by one holder bind
every holder. The init adds the permitted paths (`jail/landlock.c`).
"""

from __future__ import annotations

import ctypes
import struct

from actum import kernel

_SCOPE_ABSTRACT_UNIX_SOCKET, _SCOPE_SIGNAL = 1, 2


def _handled(abi: int) -> int:
    """All file system rights of this Landlock ABI."""
    return (1 << {1: 13, 2: 14, 3: 15, 4: 15}.get(abi, 16)) - 1


def ruleset(abi: int) -> int:
    """A ruleset that permits nothing yet."""
    scoped = _SCOPE_ABSTRACT_UNIX_SOCKET | _SCOPE_SIGNAL if abi >= 6 else 0
    # The structure grew with the ABI; a kernel refuses trailing bytes it does not know.
    size = 24 if abi >= 6 else 16 if abi >= 4 else 8
    attributes = struct.pack("QQQ", _handled(abi), 0, scoped)[:size]
    return kernel.syscall(
        kernel.SYS_LANDLOCK_CREATE_RULESET,
        "landlock_create_ruleset",
        attributes,
        ctypes.c_size_t(len(attributes)),
        0,
    )


def restrict_self(ruleset_descriptor: int) -> None:
    """Restrict the calling thread; no_new_privs must be set before."""
    kernel.syscall(
        kernel.SYS_LANDLOCK_RESTRICT_SELF, "landlock_restrict_self", ruleset_descriptor, 0
    )
