"""One sandbox below everything that judges: a request as the init gets it, and what it reports."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from actum.sandbox.handle import Sandbox
from actum.sandbox.host_probe import examine
from actum.sandbox.spawner_client import _GUESS, Spawner

if TYPE_CHECKING:
    from actum.sandbox.wire import Grant, Report, Request


def asked(script: str, **changes: Any) -> Request:
    """A shell that runs `script`, with nothing granted."""
    shell = os.stat("/usr/bin/dash")
    request: Request = {
        "argv": ["sh", "-c", script],
        "environment": {"PATH": "/usr/bin"},
        "executable": "/usr/bin/dash",
        "executable_device": shell.st_dev,
        "executable_inode": shell.st_ino,
        "working_directory": "/tmp",
        "grants": [],
        "protect": [],
        "deny": [],
        "memory_bytes": _GUESS["memory_bytes"],
        "cpu_cores": 1,
        "scratch_bytes": _GUESS["scratch_bytes"],
        "artifacts_bytes": 1 << 20,
        "max_children": 8,
        "etc": {},
        "addresses": [],
        "listen": [],
        "provided": {},
        "resolver": "",
        "steady": False,
        "secrets": [],
    }
    return {**request, **changes}  # type: ignore[typeddict-item]


def granted(path: Path, *, write: bool = False) -> Grant:
    found = path.stat()
    return {
        "path": str(path),
        "write": write,
        "device": found.st_dev,
        "inode": found.st_ino,
        "layers": "",
        "source": "",
    }


def pid_of(pidfd: int) -> int:
    for line in Path(f"/proc/self/fdinfo/{pidfd}").read_text().splitlines():
        if line.startswith("Pid:"):
            return int(line.split()[1])
    raise AssertionError("no pidfd")


@contextmanager
def spawner() -> Iterator[Spawner]:
    found = examine()
    assert found.cgroups is not None
    started = Spawner()
    started.equip(found.cgroups)
    try:
        yield started
    finally:
        started.close()


def carried_out(started: Spawner, request: Request) -> tuple[Report, str]:
    """The last report on a request, and what its tool wrote."""
    owner = (os.getuid(), os.getgid())
    sandbox, cgroup = started.launch(request, owner, b"")
    try:
        sandbox.go()
        return finished(sandbox)
    finally:
        sandbox.discard()
        cgroup.remove()


def finished(sandbox: Sandbox) -> tuple[Report, str]:
    """Of one that was told to go: its last report, and what its tool wrote."""
    last = _last_report(sandbox)
    return last, _all_of(sandbox.stdout)


def _last_report(sandbox: Sandbox) -> Report:
    while (received := sandbox.receive()) is not None:
        report, descriptors = received
        for descriptor in descriptors:
            os.close(descriptor)
        if report["kind"] in ("ended", "failed"):
            return report
    raise AssertionError("the init died without a report")


def _all_of(stream: int) -> str:
    """Nobody writes any more."""
    os.set_blocking(stream, True)
    content = b""
    while block := os.read(stream, 65_536):
        content += block
    return content.decode()
