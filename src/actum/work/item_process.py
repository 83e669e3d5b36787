"""Starts a work item's own process; when it ends, all its mounts end with it.

The work runs in a mount namespace of this process and its children, and only a process without
threads can enter one. If it dies early, the caller determines whether its commit was decided.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import IO, Any

from actum.contract.model import Json
from actum.errors import SandboxUnavailable

_BOOT = (
    "import sys; sys.path[:0] = sys.argv[2:]; "
    "from actum.doors.work_item_process import main; main()"
)


#: Called with the progress of a run. The run continues when this returns.
Hear = Callable[[Mapping[str, Any]], None]


class Died(Exception):
    """The process ended without an answer."""

    def __init__(self, how: str, *, killed: bool) -> None:
        super().__init__(how)
        self.killed = killed  #: by a signal, not by an error of its own


class Stop:
    """Ends the processes of all work items that share it, and prevents new ones."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[subprocess.Popen[bytes]] = set()
        self._stopped = False

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            for process in self._running:
                process.kill()

    @contextlib.contextmanager
    def ends(self, process: subprocess.Popen[bytes]) -> Iterator[None]:
        with self._lock:
            self._running.add(process)
            if self._stopped:
                process.kill()
        try:
            yield
        finally:
            with self._lock:
                self._running.discard(process)


def ask(
    order: Mapping[str, Json], hear: Hear | None = None, stop: Stop | None = None
) -> dict[str, Any]:
    """Send one order to a new process; raises `Died` if the process ended without an answer.

    JSON lines: the order; then any number of progress messages, each acknowledged by one line; then
    the answer.
    """
    source = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(__file__))))
    with tempfile.TemporaryFile() as complaints:  # a pipe would fill while nothing reads it
        process = subprocess.Popen(
            # -P: the working directory is the project, and no module may be imported from there.
            # It gets our pid: if we die before it sets PDEATHSIG, its parent is another process.
            [sys.executable, "-P", "-c", _BOOT, str(os.getpid()), source],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=complaints,
            start_new_session=True,  # the caller handles Ctrl-C
        )
        try:
            with (stop or Stop()).ends(process), process:
                answer = _talk(process, order, hear)
        except BaseException:
            process.kill()
            process.wait()
            raise
        if process.returncode != 0 or answer is None:
            complaints.seek(0)
            said = complaints.read().decode(errors="replace").strip()[-2000:]
            raise Died(f"exit {process.returncode}: {said}", killed=process.returncode < 0)
    if "fault" in answer:
        raise SandboxUnavailable(answer["fault"], remedy=answer["remedy"])
    return answer


def _talk(
    process: subprocess.Popen[bytes], order: Mapping[str, Json], hear: Hear | None
) -> dict[str, Any] | None:
    assert process.stdin is not None and process.stdout is not None  # noqa: S101 -- both are pipes
    try:
        _say(process.stdin, order)
        for line in process.stdout:
            said: dict[str, Any] = json.loads(line)
            if "at" not in said:
                return said
            if hear is not None:
                hear(said)
            _say(process.stdin, {})
    except BrokenPipeError:
        pass  # it died; its exit status says how
    return None


def _say(pipe: IO[bytes], document: Mapping[str, Json]) -> None:
    # Unbuffered: a buffer would try to write unsent bytes again when it is closed.
    rest = memoryview(json.dumps(document).encode() + b"\n")
    while rest:
        rest = rest[os.write(pipe.fileno(), rest) :]
