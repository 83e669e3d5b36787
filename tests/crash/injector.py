"""Kills the process that it is armed in, at one chosen moment. Nothing in the product knows of it.

Moments are counted where the process touches the world: before and after every call of a system
interface from Python (files, sockets, processes, SQLite), and of every function of `actum.kernel`,
which holds the raw system calls. The count of an unharmed run tells how many moments there are.

Only the standard library's built-in parts are used: it is also loaded into the spawner, which runs
without site packages. The spawner's children are another program, and are struck by `tracer`.
"""

from __future__ import annotations

import mmap
import os
import signal
import struct
import sys

import tracer

_MODULES = {"posix", "_posixsubprocess", "fcntl", "_socket", "select", "sqlite3", "_signal"}
_TYPES = {"_socket", "socket", "sqlite3", "select", "_io"}
#: They only look, and there are thousands of them.
_DULL = {"fspath", "getpid", "fsencode", "fsdecode", "getenv", "fileno", "getvalue", "decode"}

ROLES = ("outside", "maker", "init", "tool")
STRUCK, TALLY_BYTES = 64, 4_096


def _touches(function: object) -> bool:
    if getattr(function, "__name__", "") in _DULL:
        return False
    holder = getattr(function, "__self__", None)
    if holder is None:
        return False
    if type(holder).__name__ == "module":
        return holder.__name__ in _MODULES
    return type(holder).__module__ in _TYPES


class Moments:
    """Counts, and kills at the chosen one."""

    def __init__(self, kill_at: int, only: str, told: int, tally: str) -> None:
        self.seen = 0
        self.kill_at = kill_at
        self.only = only
        self.told = told  # a descriptor on which the moment is named, just before
        self.role = ""
        # Shared with every process forked from here on: struck or not, and counts by role.
        descriptor = os.open(tally, os.O_RDWR) if tally else -1
        self.shared = mmap.mmap(descriptor, TALLY_BYTES)

    def __call__(self, frame: object, event: str, argument: object) -> None:
        if event in ("c_call", "c_return"):
            if not _touches(argument):
                return
            name = getattr(argument, "__qualname__", "?")
        elif event in ("call", "return"):
            code = frame.f_code  # type: ignore[attr-defined]
            if not code.co_filename.endswith("actum/kernel.py"):
                return
            name = f"kernel.{code.co_name}"
        else:
            return
        role = current_role()
        if role != self.role:  # forked: another process, which counts for itself
            self.role, self.seen = role, 0
        self.seen += 1
        if self.kill_at == 0:
            at = 4 * ROLES.index(role)
            most = max(self.seen, struct.unpack_from("I", self.shared, at)[0])
            struct.pack_into("I", self.shared, at, most)
        if self.seen == self.kill_at and role == self.only and self.shared[STRUCK] == 0:
            self.shared[STRUCK] = 1
            if self.told >= 0:
                os.write(self.told, f"{event} {name}".encode())
            os.kill(os.getpid(), signal.SIGKILL)
            os._exit(137)  # the kernel spares a pid 1 that kills itself; the end is as sudden


def current_role() -> str:
    """The init and the tool live in a pid namespace of their own, where their numbers are known."""
    return {1: "init", 2: "tool"}.get(os.getpid(), "outside")


def arm(kill_at: int, only: str = "outside", told: int = -1, tally: str = "") -> Moments | None:
    """Kill at moment `kill_at` of the role `only`; 0 only counts, into the file `tally`."""
    if only != "outside":
        tracer.arm(only, kill_at, tally)
        return None
    moments = Moments(kill_at, only, told, tally)
    sys.setprofile(moments)
    return moments
