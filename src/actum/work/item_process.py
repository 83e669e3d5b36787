"""Starts work items' own processes; when one ends, all its mounts end with it.

The work runs in a mount namespace of such a process and its children, and only a process without
threads can enter one. Processes are clones of a *parent of items*: a single-threaded process that
has imported everything, opened nothing, and does nothing but clone. A clone is a child of this
process, not of its template, so nothing stands between an item and the one who waits for it. If it
dies early, the caller determines whether its commit was decided.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import IO, Any

from actum.contract.model import Json
from actum.errors import SandboxUnavailable
from actum.sandbox.spawner_clone import SpawnerSource

_BOOT = (
    "import sys; sys.path[:0] = sys.argv[3:]; "
    "from actum.doors.work_item_process import main; main()"
)


#: Called with the progress of a run. The run continues when this returns. A mapping is the answer.
Hear = Callable[[Mapping[str, Any]], Any]


class Died(Exception):
    """The process ended without an answer."""

    def __init__(self, how: str, *, killed: bool) -> None:
        super().__init__(how)
        self.killed = killed  #: by a signal, not by an error of its own


class ItemProcess:
    """One clone, which is a child of this process."""

    def __init__(self, pid: int, said: int, told: int) -> None:
        self.pid = pid
        self._said, self._told = said, told  #: our ends of its stdout and stdin
        self._pidfd = os.pidfd_open(pid)  # a child that was not waited for keeps its number

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def lines(self) -> Iterator[bytes]:
        with os.fdopen(self._said, "rb", closefd=False) as said:
            yield from said

    def say(self, document: Mapping[str, Json]) -> None:
        # Unbuffered: a buffer would try to write unsent bytes again when it is closed.
        rest = memoryview(json.dumps(document).encode() + b"\n")
        while rest:
            rest = rest[os.write(self._told, rest) :]

    def end(self) -> int:
        """Let it end, wait for it; its exit code, or the negative number of a signal."""
        os.close(self._told)
        os.close(self._said)
        try:
            found = os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED)
        finally:
            os.close(self._pidfd)
        if found is None:
            raise ChildProcessError(f"{self.pid} is no child of this process")
        status: int = found.si_status
        return status if found.si_code == os.CLD_EXITED else -status


class Stop:
    """Ends the processes of all work items that share it, and prevents new ones."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: set[ItemProcess] = set()
        self._called: set[Callable[[], None]] = set()
        self._stopped = False

    @property
    def stopped(self) -> bool:
        return self._stopped

    def stop(self) -> None:
        with self._lock:
            self._stopped = True
            for process in self._running:
                process.kill()
            called = [*self._called]
        for end in called:
            end()

    @contextlib.contextmanager
    def calls(self, end: Callable[[], None]) -> Iterator[None]:
        """Call `end` on a stop; at once, if there was one."""
        with self._lock:
            self._called.add(end)
            stopped = self._stopped
        try:
            if stopped:
                end()
            yield
        finally:
            with self._lock:
                self._called.discard(end)

    @contextlib.contextmanager
    def ends(self, process: ItemProcess) -> Iterator[None]:
        with self._lock:
            self._running.add(process)
            if self._stopped:
                process.kill()
        try:
            yield
        finally:
            with self._lock:
                self._running.discard(process)


class ItemParent:
    """The process that items are cloned from: started on first use, shared by all threads.

    It is started anew if it has died, or if the environment of this process has changed since.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._starts = threading.Condition()
        self._wanted = self._closed = False
        self._starter: threading.Thread | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._errors: IO[bytes] | None = None
        self._spawners: SpawnerSource | None = None
        self._line: socket.socket | None = None
        self._started_as: tuple[str, dict[bytes, bytes]] | None = None

    def clone(self, errors: int) -> ItemProcess:
        """A new process, which writes complaints to the open file `errors`."""
        with contextlib.ExitStack() as theirs:
            inputs, told = os.pipe2(os.O_CLOEXEC)
            theirs.callback(os.close, inputs)
            said, outputs = os.pipe2(os.O_CLOEXEC)
            theirs.callback(os.close, outputs)
            try:
                with self._lock:
                    pid = self._cloned([inputs, outputs, errors])
                return ItemProcess(pid, said, told)
            except BaseException:
                os.close(told)
                os.close(said)
                raise

    def warm_up(self) -> None:
        """Start it now, without waiting until it is ready."""
        with self._lock:
            self._require_started()

    def close(self) -> None:
        with self._lock:
            self._discard()
        with self._starts:
            self._closed = True
            self._starts.notify_all()

    def _cloned(self, descriptors: list[int]) -> int:
        for attempt in (1, 2):
            line = self._require_started()
            try:
                socket.send_fds(line, [b"clone"], [*descriptors, self._source()])
                answer = line.recv(64)
            except OSError:
                answer = b""
            if answer:
                return int(answer)
            why = self._discard()
            if attempt == 2:
                raise SandboxUnavailable(
                    f"The process that starts work items ended: {why}",
                    remedy="`actum doctor` lists what this host lacks; then run it again.",
                )
        raise AssertionError("unreachable")

    def _source(self) -> int:
        """The socket of the process that the spawners of items are cloned from."""
        if self._spawners is None:
            raise AssertionError("it is started before the first clone")
        return self._spawners.line.fileno()

    def _require_started(self) -> socket.socket:
        wanted = (_BOOT, dict(os.environb))
        if self._line is not None and self._started_as != wanted:
            self._discard()
        if self._line is None:
            self._started_as = wanted
            with self._starts:
                if self._starter is None:
                    # A thread that lives as long as this object: PDEATHSIG ties all items to the
                    # thread that has started the process from which they are cloned.
                    self._starter = threading.Thread(
                        target=self._start_when_wanted, name="actum-item-parent", daemon=True
                    )
                    self._starter.start()
                self._wanted = True
                self._starts.notify_all()
                self._starts.wait_for(lambda: not self._wanted)
        if self._line is None:
            raise SandboxUnavailable(
                "The process that starts work items could not be started.",
                remedy="Check the limits on processes and memory; then run it again.",
            )
        return self._line

    def _start_when_wanted(self) -> None:
        while True:
            with self._starts:
                self._starts.wait_for(lambda: self._wanted or self._closed)
                if self._closed:
                    return
                try:
                    with contextlib.suppress(OSError):
                        self._start()
                finally:
                    self._wanted = False
                    self._starts.notify_all()

    def _start(self) -> None:
        # A file: it is read when the process has ended, and a full pipe would stop all clones.
        errors = tempfile.TemporaryFile()  # noqa: SIM115 -- `_discard` closes it
        try:
            spawners = SpawnerSource()
            try:
                self._process, self._line = _started(errors)
            except BaseException:
                spawners.close()
                raise
        except BaseException:
            errors.close()
            raise
        self._errors, self._spawners = errors, spawners

    def _discard(self) -> str:
        """End it; returns how it ended. Items that run go on."""
        line, process, spawners = self._line, self._process, self._spawners
        self._line = self._process = self._spawners = None
        if spawners is not None:
            spawners.close()
        if line is not None:
            line.close()  # it reads end-of-file
        if process is None or self._errors is None:
            return "it did not start"
        process.wait()
        with self._errors as errors:
            errors.seek(0)
            said = errors.read().decode(errors="replace").strip()[-2000:]
        return f"exit {process.returncode}: {said}"


def _started(errors: IO[bytes]) -> tuple[subprocess.Popen[bytes], socket.socket]:
    source = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(__file__))))
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        try:
            process = subprocess.Popen(
                # -P: the working directory is the project, and no module may be imported from
                # there. It gets our pid: if we die before it sets PDEATHSIG, it has another parent.
                [
                    *(sys.executable, "-P", "-c", _BOOT),
                    *(str(os.getpid()), str(theirs.fileno()), source),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=errors,
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # the caller handles Ctrl-C
            )
        except BaseException:
            ours.close()
            raise
    return process, ours


def ask(
    order: Mapping[str, Json],
    hear: Hear | None = None,
    stop: Stop | None = None,
    parent: ItemParent | None = None,
) -> dict[str, Any]:
    """Send one order to a new process; raises `Died` if the process ended without an answer.

    JSON lines: the order; then any number of progress messages, each acknowledged by one line; then
    the answer.
    """
    with contextlib.ExitStack() as own:
        if parent is None:
            parent = ItemParent()
            own.callback(parent.close)
        complaints = own.enter_context(tempfile.TemporaryFile())  # a pipe would fill up unread
        process = parent.clone(complaints.fileno())
        try:
            with (stop or Stop()).ends(process):
                answer = _talk(process, order, hear)
        except BaseException:
            process.kill()
            process.end()
            raise
        code = process.end()
        if code != 0 or answer is None:
            complaints.seek(0)
            said = complaints.read().decode(errors="replace").strip()[-2000:]
            raise Died(f"exit {code}: {said}", killed=code < 0)
    if "fault" in answer:
        raise SandboxUnavailable(answer["fault"], remedy=answer["remedy"])
    return answer


def _talk(
    process: ItemProcess, order: Mapping[str, Json], hear: Hear | None
) -> dict[str, Any] | None:
    try:
        process.say(order)
        for line in process.lines():
            said: dict[str, Any] = json.loads(line)
            if "at" not in said:
                return said
            answer = None if hear is None else hear(said)
            process.say(answer if isinstance(answer, Mapping) else {})
    except BrokenPipeError:
        pass  # it died; its exit status says how
    return None
