"""How a program inside a machine tells the tests outside what it saw: one JSON line per check."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable

#: A login of nobody's, so that nothing but what we hand over belongs to it.
USER = 1_234


def tell(role: str, check: str, ok: bool, seen: object = "") -> None:
    print(
        json.dumps({"role": role, "check": check, "ok": bool(ok), "seen": repr(seen)}), flush=True
    )


def as_user(
    program: str,
    role: str,
    before: Callable[[int], None] | None = None,
    when_asked: Callable[[], None] | None = None,
) -> None:
    """Run `program ROLE` as an ordinary user; `before` is called with its pid while it waits, and
    `when_asked` once it has called `ask`."""
    child = subprocess.Popen(
        [sys.executable, program, role],
        stdin=subprocess.PIPE,
        user=USER,
        group=USER,
        extra_groups=[],
        env={**os.environ, "LOGNAME": "another"},
    )
    if before is not None:
        before(child.pid)
    assert child.stdin is not None
    child.stdin.close()
    if when_asked is not None and _appears(_ASKED):
        when_asked()
        os.close(os.open(_DONE, os.O_CREAT | os.O_WRONLY))
    child.wait()


def await_word() -> None:
    sys.stdin.read()


_ASKED, _DONE = "/tmp/asked", "/tmp/done"


def ask() -> bool:
    """Let root do its `when_asked` now; whether it has."""
    os.close(os.open(_ASKED, os.O_CREAT | os.O_WRONLY))
    return _appears(_DONE)


def _appears(path: str) -> bool:
    until = time.monotonic() + 90
    while not os.path.exists(path) and time.monotonic() < until:
        time.sleep(0.05)
    return os.path.exists(path)


def groups_below(folder: str) -> list[str]:
    return sorted(path for path, _folders, _files in os.walk(folder) if path != folder)


def runs(pid: str) -> bool:
    """Whether it does; dead and not yet buried does not count."""
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def running(program: str) -> list[str]:
    """Every process that runs this program, seen from outside of all sandboxes."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline") as file:
                words = file.read().split("\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if program in words and runs(pid):
            found.append(pid)
    return found
