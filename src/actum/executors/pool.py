"""The host's side of the pure plane: starts a zygote, keeps children ready, runs one call in each.

A child is used for exactly one call and then killed, whatever it says, so nothing can be left
running and nothing can be left behind. Its answer is read to a bounded length and handed on as
bytes; what it means is the pipeline's affair.
"""

from __future__ import annotations

import array
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from enum import StrEnum

from actum.errors import Fault, SandboxUnavailable
from actum.executors import frames
from actum.value import value

_SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_BOOT = (
    "import sys; sys.path.insert(0, sys.argv[1]); from actum.executors.zygote import main; "
    "main(int(sys.argv[2]), fixed_layout=sys.argv[3] == '1')"
)
_COMMAND = (os.path.realpath(sys.executable), "-s", "-S", "-P", "-c", _BOOT)
#: A child that is told to die and does not is a fault of ours or of the kernel.
_DEATH_S = 10.0
_MOST_DYING = 8
_CONTROL_BYTES = 64
_PART_BYTES = 1 << 18


@value
class Surroundings:
    """What a zygote is started with. Calls use the default; the review gate varies all of it."""

    hash_seed: int = 0
    time_zone: str = "UTC0"
    locale: str = "C.UTF-8"
    fixed_layout: bool = True


class End(StrEnum):
    """How a call came to its end, as seen from outside."""

    REPLIED = "REPLIED"
    TIMED_OUT = "TIMED_OUT"
    FLOODED = "FLOODED"  #: more bytes than any permitted answer has
    FORBIDDEN = "FORBIDDEN"  #: killed by the filter
    KILLED = "KILLED"  #: by the kernel, for memory
    DIED = "DIED"  #: any other end without an answer: exit, segmentation fault, half a frame


@value(kw_only=False)
class Reply:
    end: End
    kind: int = 0  #: of `frames`, when REPLIED
    body: bytes = b""


class Child:
    """One process, for one call."""

    __slots__ = ("_control", "_data", "_pidfd")

    def __init__(self, pidfd: int, control: int, data: int) -> None:
        self._pidfd = pidfd
        self._control = control
        self._data = data

    def call(self, request: bytes, *, timeout_s: float, max_reply_bytes: int) -> Reply:
        """Send the request and read the answer. The child is dead or dying when this returns."""
        deadline = time.monotonic() + timeout_s
        try:
            self._send(request, deadline)
            reply = self._receive(deadline, max_reply_bytes)
        except TimeoutError:
            reply = Reply(End.TIMED_OUT)
        except (BrokenPipeError, ConnectionResetError):
            reply = None
        if reply is None:
            status = self._await_death()
            if status is None:
                raise SandboxUnavailable(
                    "The executors' fork server died during the call; its answer is lost.",
                    remedy="Call again: an executor has no effects, so nothing is done twice.",
                )
            return _ended(status)
        # Also after a good answer: whoever wrote it might go on computing.
        self._kill()
        return reply

    def _send(self, request: bytes, deadline: float) -> None:
        sent = 0
        while sent < len(request):
            try:
                sent += os.write(self._data, memoryview(request)[sent:])
            except BlockingIOError:
                _wait(self._data, select.POLLOUT, deadline)

    def _receive(self, deadline: float, max_reply_bytes: int) -> Reply | None:
        received = bytearray()
        kind, wanted = -1, frames.REPLY.size
        while len(received) < wanted:
            _wait(self._data, select.POLLIN, deadline)
            part = os.read(self._data, _PART_BYTES)
            if not part:
                return None
            received += part
            if kind < 0 and len(received) >= frames.REPLY.size:
                kind, length = frames.REPLY.unpack_from(received)
                if length > max_reply_bytes:
                    return Reply(End.FLOODED)
                wanted += length
        # The first whole frame is the answer; whatever a child says after it is not read.
        return Reply(End.REPLIED, kind, bytes(received[frames.REPLY.size : wanted]))

    def finish(self) -> None:
        """Wait until the process is gone. Whoever takes a child finishes or retires it."""
        if self._pidfd >= 0:
            self._await_death()
        self._close()

    def is_gone(self) -> bool:
        """Whether the process was seen to end; never waits."""
        try:
            os.read(self._control, _CONTROL_BYTES)
        except BlockingIOError:
            return False
        self._close()
        return True

    def discard(self) -> None:
        """Let go of a child, whatever it is doing."""
        self._kill()
        self._close()

    def _kill(self) -> None:
        try:
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
        except ProcessLookupError:
            return  # already gone

    def _await_death(self) -> int | None:
        """The wait status, told by the zygote, who alone may ask; ``None``: it is gone as well."""
        try:
            _wait(self._control, select.POLLIN, time.monotonic() + _DEATH_S)
        except TimeoutError as error:
            raise Fault(
                "An executor's process does not die.",
                remedy="Look for a process stuck in the kernel; restart Actum.",
            ) from error
        word = os.read(self._control, _CONTROL_BYTES)
        # If the zygote is gone, the kernel has killed its whole namespace with it.
        return int(word) if word else None

    def _close(self) -> None:
        for descriptor in (self._pidfd, self._control, self._data):
            if descriptor >= 0:
                os.close(descriptor)
        self._pidfd = self._control = self._data = -1


def _wait(descriptor: int, events: int, deadline: float) -> None:
    poll = select.poll()  # select() knows no descriptor beyond 1023
    poll.register(descriptor, events)
    left_s = deadline - time.monotonic()
    # Also when there is something to read: who sends byte by byte gains no time by it.
    if left_s <= 0 or not poll.poll(left_s * 1000):
        raise TimeoutError


def _ended(status: int) -> Reply:
    number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
    if number == signal.SIGSYS:
        return Reply(End.FORBIDDEN)
    if number == signal.SIGXCPU:
        return Reply(End.TIMED_OUT)
    return Reply(End.KILLED if number == signal.SIGKILL else End.DIED)


class _Gone(SandboxUnavailable):
    """Raised only when the one that replaced it is gone as well."""

    def __init__(self) -> None:
        super().__init__(
            "The executors' fork server is gone; the executor was not started.",
            remedy="Call again; if it stays, `actum doctor` tells what this host lacks.",
        )


class Pool:
    """Children ready to be used, shared by all threads. The zygote starts on first use."""

    def __init__(self, *, ready: int = 4, surroundings: Surroundings | None = None) -> None:
        self._wanted = ready
        self._surroundings = surroundings or Surroundings()
        # Whoever waits for a child holds the first, so that the others need not wait to order or
        # to retire one; whoever starts or ends the zygote holds both.
        self._arrivals = threading.Lock()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._server: socket.socket | None = None
        self._ordered = 0  # children that nobody has taken yet
        self._dying: deque[Child] = deque()
        self._walls: tuple[str, ...] = ()

    @property
    def walls(self) -> tuple[str, ...]:
        """What holds an executor on this host."""
        with self._arrivals, self._lock:
            self._ensure_started()
        return self._walls

    def call(
        self, request: bytes, *, timeout_s: float, max_reply_bytes: int
    ) -> tuple[Child, Reply]:
        """One call in a fresh child. The caller finishes or retires the child."""
        child = self._take()
        try:
            return child, child.call(request, timeout_s=timeout_s, max_reply_bytes=max_reply_bytes)
        except BaseException:
            child.discard()
            raise

    def ask(self, request: bytes, *, timeout_s: float, max_reply_bytes: int) -> Reply:
        """`call` and `finish` in one."""
        child, reply = self.call(request, timeout_s=timeout_s, max_reply_bytes=max_reply_bytes)
        child.finish()
        self.refill()
        return reply

    def retire(self, child: Child) -> None:
        """Let a killed child vanish by itself: nobody waits for it, and it is not forgotten.

        It shares nothing with the next one, so the next need not wait either; but if killed ones
        pile up, something is wrong and the oldest is waited for.
        """
        with self._lock:
            while self._dying and self._dying[0].is_gone():
                self._dying.popleft()
            self._dying.append(child)
            oldest = self._dying.popleft() if len(self._dying) > _MOST_DYING else None
        if oldest is not None:
            oldest.finish()

    def refill(self) -> None:
        """Order what is missing; returns at once. Best called when a call is over, not during."""
        with self._lock:
            try:
                while self._server is not None and self._ordered < self._wanted:
                    self._order(self._server)
            except _Gone:
                return  # whoever calls next starts anew, and is told if that fails

    def _take(self) -> Child:
        with self._arrivals:
            try:
                return self._arrived(self._awaited())
            except _Gone:
                # The zygote died after the child was ordered. Nothing was sent: another serves.
                with self._lock:
                    self._discard()
                return self._arrived(self._awaited())

    def _awaited(self) -> socket.socket:
        """Where the next child will come from; it is ordered, and counted as taken."""
        with self._lock:
            server = self._ensure_started()
            if not self._ordered:
                self._order(server)
            self._ordered -= 1
        return server

    def _arrived(self, server: socket.socket) -> Child:
        rights = array.array("i")
        try:
            word, ancillary, _flags, _address = server.recvmsg(
                _CONTROL_BYTES, socket.CMSG_SPACE(3 * rights.itemsize), socket.MSG_CMSG_CLOEXEC
            )
        except (TimeoutError, ConnectionResetError) as error:
            raise _Gone from error
        for _level, _kind, data in ancillary:
            rights.frombytes(data)
        if word != frames.UP or len(rights) != 3:
            raise _Gone
        return Child(*rights)

    def _order(self, server: socket.socket) -> None:
        try:
            server.send(frames.ORDER)
        except (BrokenPipeError, ConnectionResetError) as error:
            raise _Gone from error
        self._ordered += 1

    def _ensure_started(self) -> socket.socket:
        if self._server is not None and self._process is not None and self._process.poll() is None:
            return self._server
        self._discard()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        around = self._surroundings
        descriptor, layout = str(theirs.fileno()), "1" if around.fixed_layout else "0"
        self._process = subprocess.Popen(
            [*_COMMAND, _SOURCE, descriptor, layout],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=[theirs.fileno()],
            env={
                "PYTHONHASHSEED": str(around.hash_seed),
                "TZ": around.time_zone,
                "LC_ALL": around.locale,
            },
            cwd="/",
            start_new_session=True,
        )
        theirs.close()
        self._server = ours
        said = ours.recv(1024)
        if not said:
            _out, text = self._process.communicate()
            last = text.decode(errors="replace").strip().splitlines()[-1:]
            self._discard()
            raise SandboxUnavailable(
                f"The executors' fork server could not set itself up: {''.join(last)}.",
                remedy="`actum doctor` tells what this host lacks.",
            )
        ours.settimeout(_DEATH_S)
        self._walls = tuple(json.loads(said))
        return ours

    def _discard(self) -> None:
        while self._dying:
            self._dying.popleft().discard()
        self._ordered = 0
        if self._server is not None:
            self._server.close()  # with it go all children that nobody has taken
            self._server = None
        if self._process is not None:
            self._process.wait()
            if self._process.stderr is not None:
                self._process.stderr.close()
            self._process = None

    def close(self) -> None:
        """Hang up; the zygote ends, and the kernel ends everything in its namespace with it."""
        with self._arrivals, self._lock:
            self._discard()
