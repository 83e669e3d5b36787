"""Landlock: a second wall behind the mounts, by path.

Rules are taken from descriptors of the paths as the tool will see them, one ruleset per sandbox
(a ruleset descriptor is a shared object: rules added by one holder bind every holder). Never a
rule on `/`: it would cover everything below.
"""

from __future__ import annotations

import ctypes
import os
import stat
import struct

from actum import kernel

EXECUTE, WRITE_FILE, READ_FILE, READ_DIR = 1, 2, 4, 8
REMOVE_DIR, REMOVE_FILE = 1 << 4, 1 << 5
MAKE_CHAR, MAKE_DIR, MAKE_REG, MAKE_SOCK, MAKE_FIFO, MAKE_BLOCK, MAKE_SYM = (
    1 << shift for shift in range(6, 13)
)
REFER, TRUNCATE, IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15

_FILE_RIGHTS = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV

READ = EXECUTE | READ_FILE | READ_DIR
WRITE = (
    READ | WRITE_FILE | REMOVE_DIR | REMOVE_FILE | MAKE_DIR | MAKE_REG | MAKE_SOCK | MAKE_FIFO
) | (MAKE_SYM | REFER | TRUNCATE)
DEVICES = READ_FILE | READ_DIR | WRITE_FILE | TRUNCATE | IOCTL_DEV
#: The artifacts directory: files and folders can be made and written, never listed or read back.
DROP = WRITE_FILE | MAKE_DIR | MAKE_REG | TRUNCATE

_SCOPE_ABSTRACT_UNIX_SOCKET, _SCOPE_SIGNAL = 1, 2
_RULE_PATH_BENEATH = 1


def _handled(abi: int) -> int:
    """All file system rights that this kernel's Landlock knows."""
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


def permit(ruleset_descriptor: int, path: str, rights: int, abi: int) -> None:
    """Add one rule: what is at `path` now, and everything below it."""
    parent = os.open(path, os.O_PATH | os.O_CLOEXEC)
    allowed = rights & _handled(abi)
    if not stat.S_ISDIR(os.fstat(parent).st_mode):
        allowed &= _FILE_RIGHTS
    rule = struct.pack("=Qi", allowed, parent)
    kernel.syscall(
        kernel.SYS_LANDLOCK_ADD_RULE,
        "landlock_add_rule",
        ruleset_descriptor,
        _RULE_PATH_BENEATH,
        rule,
        0,
    )
    os.close(parent)


def restrict_self(ruleset_descriptor: int) -> None:
    """Bind the calling thread; needs no_new_privs to be set before."""
    kernel.syscall(
        kernel.SYS_LANDLOCK_RESTRICT_SELF, "landlock_restrict_self", ruleset_descriptor, 0
    )
