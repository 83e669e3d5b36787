"""A work item's own process: started by its asker, and gone with everything that it mounted.

The work runs in a mount namespace that only this process and its children have, and entering one
takes a process without threads. If it dies on the way, the asker finds out what it had decided.
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

_BOOT = "import sys; sys.path[:0] = sys.argv[2:]; from actum.doors.chamber import main; main()"


#: Called with what a run has come to. The run goes on when this returns.
Hear = Callable[[Mapping[str, Any]], None]


class Died(Exception):
    """It ended without an answer."""

    def __init__(self, how: str, *, killed: bool) -> None:
        super().__init__(how)
        self.killed = killed  #: by a signal, and so by no mistake of its own


class Stop:
    """Ends the processes of all work items that are asked for with it, and lets none start."""

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
    """Have one order carried out; raises `Died` if its process did not live to answer.

    One line each way: the order; then, as often as there is something to say, a word and a nod;
    then the answer.
    """
    source = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(__file__))))
    with tempfile.TemporaryFile() as complaints:  # a pipe would fill while nothing reads it
        process = subprocess.Popen(
            # -P: the working directory is the project, and no module may be imported from there.
            # It is given our number: if we die before it can ask, its parent is another process.
            [sys.executable, "-P", "-c", _BOOT, str(os.getpid()), source],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=complaints,
            start_new_session=True,  # Ctrl-C is the asker's to handle
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
    # Past the buffer: what it could not write it would try to write again when it is closed.
    rest = memoryview(json.dumps(document).encode() + b"\n")
    while rest:
        rest = rest[os.write(pipe.fileno(), rest) :]
