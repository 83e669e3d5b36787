"""Makes one system call of a work item's own process fail, by its number within a phase.

A profile function counts where Python code calls a system interface: files, sockets, processes,
SQLite, and every function of `actum.kernel`. At the chosen call it raises instead, before the call
is made. Calls of the import system are not counted.
"""

from __future__ import annotations

import errno
import functools
import json
import os
import sqlite3
import sys
from collections.abc import Callable
from typing import Any

from strike_imports import wrap

_MODULES = {"posix", "_posixsubprocess", "fcntl", "_socket", "select", "sqlite3", "_io", "io"}
_TYPES = {"_socket", "socket", "sqlite3", "select", "_io"}
#: They make no system call, or none that can fail.
_HARMLESS = {
    *("fspath", "fsencode", "fsdecode", "getenv", "fileno", "getvalue", "decode", "text_encoding"),
    *("getpid", "getppid", "getuid", "geteuid", "getgid", "getegid", "umask", "times", "_exit"),
    *("cpu_count", "urandom", "isatty", "tell", "readable", "writable", "seekable", "__enter__"),
    *("get_inheritable", "get_blocking", "register_at_fork", "waitstatus_to_exitcode"),
    *("WIFEXITED", "WEXITSTATUS", "WIFSIGNALED", "WIFSTOPPED"),
}
_IN_MEMORY = {"StringIO", "BytesIO"}


class _Fault:
    def __init__(self, at: int, error: str, report: str) -> None:
        self.seen = 0
        self.at = at
        self.number = getattr(errno, error)
        self.report = report
        self.struck = ""
        self.calls: list[str] = []  #: when only counting: where each call was made
        # A work item's process is a clone and runs no exit functions.
        wrap("actum.doors.work_item_process", "_exit_code", _calling(_nothing, after=self._write))

    def begin(self) -> None:
        if not self.struck:
            sys.setprofile(self)

    def pause(self) -> None:
        sys.setprofile(None)

    def __call__(self, frame: Any, event: str, argument: object) -> None:
        if event == "c_call":
            if frame.f_code.co_filename.startswith("<frozen") or not _touches(argument):
                return
            name = getattr(argument, "__qualname__", "?")
        elif event == "call" and frame.f_code.co_filename.endswith("/actum/kernel.py"):
            name = f"kernel.{frame.f_code.co_name}"
            frame = frame.f_back
        else:
            return
        self.seen += 1
        if self.seen != self.at and self.at:
            return
        call = f"{name} at {os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
        if not self.at:
            self.calls.append(call)
            return
        self.struck = f"{call} fails with {errno.errorcode[self.number]}"
        self._write()  # the process may end without its exit functions
        raise self._error(argument if event == "c_call" else None)

    def _error(self, function: object) -> Exception:
        """As the interface itself would say it."""
        holder = type(getattr(function, "__self__", None))
        if holder.__module__ == "sqlite3" or "sqlite3" in str(getattr(function, "__module__", "")):
            full = self.number == errno.ENOSPC
            return sqlite3.OperationalError(
                "database or disk is full" if full else "disk I/O error"
            )
        return OSError(self.number, os.strerror(self.number))

    def _write(self) -> None:
        sys.setprofile(None)  # what is written here is no call of the product
        with open(self.report, "w") as file:
            json.dump({"calls": self.calls, "struck": self.struck}, file)


def _nothing() -> None: ...


def _touches(function: object) -> bool:
    if getattr(function, "__name__", "") in _HARMLESS:
        return False
    holder = getattr(function, "__self__", None)
    if holder is None:
        return False
    if type(holder).__name__ == "module":
        return holder.__name__ in _MODULES
    return type(holder).__module__ in _TYPES and type(holder).__name__ not in _IN_MEMORY


def arm_fault(phase: str, at: int, error: str, report: str) -> None:
    """`phase` is `setup` or `commit`; `at` 0 only counts."""
    fault = _Fault(at, error, report)
    _PHASES[phase](fault)


def _setup(fault: _Fault) -> None:
    """From the entry into the mount namespace to the first call of a tool."""
    wrap("actum.workspace.namespace", "enter", _calling(fault.begin))
    wrap("actum.work.tool_access", "ToolAccess.call", _calling(fault.pause))


def _commit(fault: _Fault) -> None:
    """From staging to the end of the process, without the tests."""
    wrap("actum.workspace.commit", "stage", _calling(fault.begin))
    wrap("actum.work.execute_item", "_test", _calling(fault.pause, after=fault.begin))


_PHASES = {"setup": _setup, "commit": _commit}


def _calling(
    before: Callable[[], None], after: Callable[[], None] | None = None
) -> Callable[[Callable], Callable]:
    def around(function: Callable) -> Callable:
        @functools.wraps(function)
        def called(*arguments: Any, **named: Any) -> Any:
            before()
            try:
                return function(*arguments, **named)
            finally:
                if after is not None:
                    after()

        return called

    return around
