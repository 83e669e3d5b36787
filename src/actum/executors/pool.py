"""The host's side of the pure plane: starts a zygote, keeps children ready, runs one call in each.

A child is used for exactly one call and then killed, whatever it says, so nothing can be left
running and nothing can be left behind. Its answer is read to a bounded length and handed on as
bytes; what it means is the pipeline's affair.
"""

from __future__ import annotations

import array
import contextlib
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from enum import StrEnum

from actum.errors import Fault, SandboxUnavailable
from actum.executors import frames
from actum.value import value

_SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_BOOT = (
    "import sys; sys.path.insert(0, sys.argv[1]); from actum.executors.zygote import main; "
    "main(fixed_layout=sys.argv[2] == '1')"
)
_COMMAND = (os.path.realpath(sys.executable), "-s", "-S", "-P", "-c", _BOOT)
#: A child that is told to die and does not is a fault of ours or of the kernel.
_DEATH_S = 10
_MOST_DYING = 8
_CONTROL_BYTES = 64
_CLOEXEC = int(socket.MSG_CMSG_CLOEXEC)
_DONT_WAIT = int(socket.MSG_DONTWAIT)
_TWO_DESCRIPTORS = socket.CMSG_SPACE(2 * array.array("i").itemsize)
_PART_BYTES = 1 << 16


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

    __slots__ = ("_control", "_data", "_prepared", "number", "server")

    def __init__(self, server: socket.socket, number: int, control: int, data: int) -> None:
        self.server = server  #: where it came from, and may be named
        self.number = number
        self._control = control
        self._data = data
        self._prepared = 0

    def prepare(self, code: bytes) -> None:
        """Let it unpack the code. Not a line of it is run before the rest has come."""
        self._prepared = os.write(self._data, code)  # what does not fit is sent with the rest

    def call(
        self,
        request: frames.Request,
        *,
        timeout_s: float,
        max_reply_bytes: int,
        meanwhile: Callable[[], None] | None = None,
    ) -> Reply:
        """Send the request and read the answer. Whoever calls this retires or finishes the child:
        one that has answered may go on computing."""
        deadline = time.monotonic() + timeout_s
        try:
            self._send(b"".join(request)[self._prepared :], deadline)
            if meanwhile is not None:
                meanwhile()
            reply = self._receive(deadline, max_reply_bytes)
        except TimeoutError:
            self.end()
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
        return reply

    def _send(self, request: bytes, deadline: float) -> None:
        sent = 0
        while sent < len(request):
            try:
                sent += os.write(self._data, memoryview(request)[sent:])
            except BlockingIOError:
                _wait(self._data, select.POLLOUT, deadline)

    def _receive(self, deadline: float, max_reply_bytes: int) -> Reply | None:
        received, in_time = bytearray(), True
        kind, wanted = -1, frames.REPLY.size
        while len(received) < wanted:
            if not in_time:
                raise TimeoutError  # who sends byte by byte gains no time by it
            in_time = _wait(self._data, select.POLLIN, deadline)
            part = os.read(self._data, _PART_BYTES)
            if not part:
                return None
            received += part
            if kind < 0 and len(received) >= frames.REPLY.size:
                kind, length = frames.REPLY.unpack_from(received)
                if length > max_reply_bytes:
                    self.end()
                    return Reply(End.FLOODED)
                wanted += length
        # The first whole frame is the answer; whatever a child says after it is not read.
        return Reply(End.REPLIED, kind, bytes(received[frames.REPLY.size : wanted]))

    def end(self) -> None:
        """Have the process killed by the zygote: to be rid of a process can take its time."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it is gone already
            os.write(self._control, frames.END)

    def finish(self) -> None:
        """End the process and wait until it is gone."""
        if self._control >= 0:
            self.end()
            self._await_death()
            self.discard()

    def is_gone(self) -> bool:
        """Whether the process was seen to end; never waits."""
        try:
            self._last_word()
        except BlockingIOError:
            return False
        self.discard()
        return True

    def discard(self) -> None:
        """Let go of a child, whatever it is doing: when its line is cut, it dies."""
        if self._control >= 0:
            os.close(self._control)
            os.close(self._data)
            self._control = self._data = -1

    def _await_death(self) -> int | None:
        """The wait status, told by the zygote, who alone may ask; ``None``: it is gone as well."""
        try:
            _wait(self._control, select.POLLIN, time.monotonic() + _DEATH_S)
        except TimeoutError as error:
            raise Fault(
                "An executor's process does not die.",
                remedy="Look for a process stuck in the kernel; restart Actum.",
            ) from error
        word = self._last_word()
        # If the zygote is gone, the kernel has killed its whole namespace with it.
        return int(word) if word else None

    def _last_word(self) -> bytes:
        try:
            return os.read(self._control, _CONTROL_BYTES)
        except ConnectionResetError:
            # It ended before it could hear that it should; what was said of it comes now.
            return os.read(self._control, _CONTROL_BYTES)


def _wait(descriptor: int, events: int, deadline: float) -> bool:
    """Whether there is time left when it can be used; raises if there is none and it cannot."""
    poll = select.poll()  # select() knows no descriptor beyond 1023
    poll.register(descriptor, events)
    left_s = max(deadline - time.monotonic(), 0.0)
    if not poll.poll(left_s * 1000):
        raise TimeoutError
    return left_s > 0


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
        self._ordered = 0  # children that have not arrived yet
        self._stock: deque[Child] = deque()
        self._dying: deque[Child] = deque()
        self._walls: tuple[str, ...] = ()

    @property
    def walls(self) -> tuple[str, ...]:
        """What holds an executor on this host."""
        with self._arrivals, self._lock:
            self._ensure_started()
        return self._walls

    def call(
        self,
        request: frames.Request,
        *,
        timeout_s: float,
        max_reply_bytes: int,
        prepared: Child | None = None,
    ) -> tuple[Child, Reply]:
        """One call in a fresh child. The caller finishes or retires the child."""
        child = prepared or self._take()
        try:
            return child, child.call(
                request,
                timeout_s=timeout_s,
                max_reply_bytes=max_reply_bytes,
                meanwhile=self._tidy,
            )
        except BaseException:
            child.discard()
            raise

    def prepare(self, code: bytes) -> Child | None:
        """A child that knows this code already, if one is there; never waits.

        Whoever asks calls it or discards it.
        """
        self._fetch()
        with self._lock:
            if not self._stock:
                return None
            child = self._stock.popleft()
        try:
            child.prepare(code)
        except (BrokenPipeError, ConnectionResetError):
            child.discard()  # its zygote is gone; whoever takes the next one finds out
            return None
        return child

    def ask(self, request: frames.Request, *, timeout_s: float, max_reply_bytes: int) -> Reply:
        """`call` and `finish` in one."""
        child, reply = self.call(request, timeout_s=timeout_s, max_reply_bytes=max_reply_bytes)
        child.finish()
        self.refill()
        return reply

    def retire(self, child: Child) -> None:
        """Have a child killed and replaced, and let it vanish by itself: it is not forgotten.

        It shares nothing with the next one, so nobody waits for it; but if killed ones pile up,
        something is wrong and the oldest is waited for.
        """
        with self._lock:
            if child.server is not self._server:
                child.discard()  # its zygote is gone, and another has its numbers
                return
            if self._coming < self._wanted:
                self._order(child.server, child.number)
            else:
                child.end()
            self._dying.append(child)
            oldest = self._dying.popleft() if len(self._dying) > _MOST_DYING else None
        if oldest is not None:
            oldest.finish()

    def refill(self) -> None:
        """Order what is missing; returns at once. Best called when a call is over, not during."""
        with self._lock:
            while self._server is not None and self._coming < self._wanted:
                if not self._order(self._server):
                    return  # whoever calls next starts anew, and is told if that fails

    def _tidy(self) -> None:
        """What need not be done while anybody waits: the child of the call has just been asked."""
        with self._lock:
            while self._dying and self._dying[0].is_gone():
                self._dying.popleft()
        self._fetch()

    def _fetch(self) -> None:
        """Have one child in stock, if one has arrived; never waits."""
        if self._stock or not self._arrivals.acquire(blocking=False):
            return  # or others wait for one
        try:
            with self._lock, contextlib.suppress(BlockingIOError, _Gone):
                if self._server is not None and self._ordered:
                    self._stock.append(self._arrived(self._server, _DONT_WAIT))
                    self._ordered -= 1
        finally:
            self._arrivals.release()

    @property
    def _coming(self) -> int:
        return self._ordered + len(self._stock)

    def _take(self) -> Child:
        with self._arrivals:
            try:
                return self._next()
            except (_Gone, BlockingIOError):
                # The zygote died after the child was ordered. Nothing was sent: another serves.
                with self._lock:
                    self._discard()
                return self._next()

    def _next(self) -> Child:
        with self._lock:
            server = self._ensure_started()
            if self._stock:
                return self._stock.popleft()
            if not self._ordered and not self._order(server):
                raise _Gone
            self._ordered -= 1
        return self._arrived(server)

    def _arrived(self, server: socket.socket, flags: int = 0) -> Child:
        rights = array.array("i")
        try:
            word, ancillary, _flags, _address = server.recvmsg(
                _CONTROL_BYTES, _TWO_DESCRIPTORS, _CLOEXEC | flags
            )
        except ConnectionResetError as error:
            raise _Gone from error
        for _level, _kind, data in ancillary:
            rights.frombytes(data)
        if not word or len(rights) != 2:
            raise _Gone
        return Child(server, int(word), *rights)

    def _order(self, server: socket.socket, instead_of: int = frames.NO_CHILD) -> bool:
        try:
            server.send(b"%d" % instead_of)
        except (BrokenPipeError, ConnectionResetError):
            return False
        self._ordered += 1
        return True

    def _ensure_started(self) -> socket.socket:
        if self._server is not None and self._is_running():
            return self._server
        self._discard()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        around = self._surroundings
        self._process = subprocess.Popen(
            [*_COMMAND, _SOURCE, "1" if around.fixed_layout else "0"],
            # Its line to us is its standard input: a descriptor with a number of its own would be
            # an argument, and where objects are placed in a child would depend on that number.
            stdin=theirs.fileno(),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
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
        # Not `settimeout`, with which a look that must not wait would wait.
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", _DEATH_S, 0))
        self._walls = tuple(json.loads(said))
        return ours

    def _is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def _discard(self) -> None:
        for children in (self._stock, self._dying):
            while children:
                children.popleft().discard()
        self._ordered = 0
        if self._server is not None:
            self._server.close()  # with it go all children that have not arrived
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
