"""The executor's system call filter: a short allow-list; every other call kills the process.

Computing needs only memory and one descriptor. A forbidden call kills the process instead of
returning an error, because code can catch and ignore an error: the run must fail, and the host can
distinguish this end (SIGSYS) from every other. Two calls return errors. Reading and writing other
descriptors returns EBADF: there are none. Reading the monotonic clock returns EPERM, because the
interpreter itself reads it whenever it takes a lock, and ignores the error; the zygote removes the
functions of `time` that would return it to an executor.
"""

from __future__ import annotations

import ctypes
import errno
import struct

from actum import kernel
from actum.sandbox.seccomp import (
    ALLOW,
    JEQ,
    JSET,
    KILL_PROCESS,
    RETURN,
    Instruction,
    argument,
    assemble,
    errno_of,
    give,
    one_of,
)

#: The only descriptor a child has.
DESCRIPTOR = 0

_FREE = {
    "munmap": 11,
    "brk": 12,
    "rt_sigprocmask": 14,
    "rt_sigreturn": 15,
    "mremap": 25,
    "madvise": 28,
    "exit": 60,
    "sigaltstack": 131,
    "futex": 202,
    "exit_group": 231,
}
_READ, _WRITE, _MMAP, _MPROTECT, _CLOCK_GETTIME = 0, 1, 9, 10, 228
_CLOCK_MONOTONIC = 1
_PROT_EXEC, _MAP_ANONYMOUS, _NO_FILE = 4, 0x20, 0xFFFFFFFF


def _anonymous_memory() -> list[Instruction]:
    dead = (RETURN, 0, 0, KILL_PROCESS)
    return [
        argument(2),
        (JSET, 0, 1, _PROT_EXEC),
        dead,
        argument(3),
        (JSET, 1, 0, _MAP_ANONYMOUS),
        dead,
        argument(4),
        (JEQ, 1, 0, _NO_FILE),
        dead,
        (RETURN, 0, 0, ALLOW),
    ]


def _never_executable() -> list[Instruction]:
    return [
        argument(2),
        (JSET, 0, 1, _PROT_EXEC),
        (RETURN, 0, 0, KILL_PROCESS),
        (RETURN, 0, 0, ALLOW),
    ]


def compile_filter() -> bytes:
    rules = {number: give(ALLOW) for number in _FREE.values()}
    own_descriptor_only = one_of(0, (DESCRIPTOR,), ALLOW, errno_of(errno.EBADF))
    rules[_READ] = rules[_WRITE] = own_descriptor_only
    rules[_MMAP] = _anonymous_memory()
    # glibc grows its heaps with it; without PROT_EXEC it is harmless.
    rules[_MPROTECT] = _never_executable()
    rules[_CLOCK_GETTIME] = one_of(0, (_CLOCK_MONOTONIC,), errno_of(errno.EPERM), KILL_PROCESS)
    return assemble(rules, otherwise=KILL_PROCESS)


class Filter:
    """A compiled program, prepared in memory so that a child makes a single system call."""

    def __init__(self, program: bytes) -> None:
        self._buffer = ctypes.create_string_buffer(program, len(program))
        self._fprog = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(self._buffer))

    def install(self) -> None:
        """Install it on the calling thread, irrevocably; needs no_new_privs."""
        mode_filter, no_flags = 1, 0
        kernel.syscall(kernel.SYS_SECCOMP, "seccomp", mode_filter, no_flags, self._fprog)
