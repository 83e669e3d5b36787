"""The host's side of executors: starts a zygote, keeps children ready, runs one call in each.

A child serves exactly one call and is then killed, whatever it answers, so no process and no state
remains. The pool reads its answer up to a limit and returns it as bytes; the pipeline interprets
it.
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
from actum.executors import child_frames
from actum.value import value

_SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_BOOT = (
    "import sys; sys.path.insert(0, sys.argv[1]); from actum.executors.fork_server import main; "
    "main(fixed_layout=sys.argv[2] == '1')"
)
_COMMAND = (os.path.realpath(sys.executable), "-s", "-S", "-P", "-c", _BOOT)
#: A child that survives SIGKILL this long is a fault of Actum or of the kernel.
_DEATH_S = 10
_MOST_DYING = 8
_CONTROL_BYTES = 64
_CLOEXEC = int(socket.MSG_CMSG_CLOEXEC)
_DONT_WAIT = int(socket.MSG_DONTWAIT)
_TWO_DESCRIPTORS = socket.CMSG_SPACE(2 * array.array("i").itemsize)
_PART_BYTES = 1 << 16


@value
class Surroundings:
    """The environment of a zygote. Calls use the default; the review gate varies all of it."""

    hash_seed: int = 0
    time_zone: str = "UTC0"
    locale: str = "C.UTF-8"
    fixed_layout: bool = True


class End(StrEnum):
    """How a call ended, as observed by the host."""

    REPLIED = "REPLIED"
    TIMED_OUT = "TIMED_OUT"
    FLOODED = "FLOODED"  #: more bytes than any permitted answer
    FORBIDDEN = "FORBIDDEN"  #: killed by the filter
    KILLED = "KILLED"  #: by the kernel, for memory
    DIED = "DIED"  #: any other end without an answer: exit, segmentation fault, half a frame


@value(kw_only=False)
class Reply:
    end: End
    kind: int = 0  #: of `child_frames`, when REPLIED
    body: bytes = b""


class Child:
    """One process, for one call."""

    __slots__ = ("_control", "_data", "_prepared", "number", "server")

    def __init__(self, server: socket.socket, number: int, control: int, data: int) -> None:
        self.server = server  #: the zygote that cloned it
        self.number = number
        self._control = control
        self._data = data
        self._prepared = 0

    def prepare(self, code: bytes) -> None:
        """Send the code, so that the child unpacks it. It runs no line before the rest arrives."""
        self._prepared = os.write(self._data, code)  # what does not fit is sent with the rest

    def call(
        self,
        request: child_frames.Request,
        *,
        timeout_s: float,
        max_reply_bytes: int,
        meanwhile: Callable[[], None] | None = None,
    ) -> Reply:
        """Send the request and read the answer. The caller retires or finishes the child, which may
        still be computing."""
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
        kind, wanted = -1, child_frames.REPLY.size
        while len(received) < wanted:
            if not in_time:
                raise TimeoutError  # sending byte by byte does not extend the deadline
            in_time = _wait(self._data, select.POLLIN, deadline)
            part = os.read(self._data, _PART_BYTES)
            if not part:
                return None
            received += part
            if kind < 0 and len(received) >= child_frames.REPLY.size:
                kind, length = child_frames.REPLY.unpack_from(received)
                if length > max_reply_bytes:
                    self.end()
                    return Reply(End.FLOODED)
                wanted += length
        # The first whole frame is the answer; later bytes of the child are not read.
        return Reply(End.REPLIED, kind, bytes(received[child_frames.REPLY.size : wanted]))

    def end(self) -> None:
        """Let the zygote kill the process, because reaping can take long."""
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # it has already ended
            os.write(self._control, child_frames.END)

    def finish(self) -> None:
        """End the process and wait for its end."""
        if self._control >= 0:
            self.end()
            self._await_death()
            self.discard()

    def is_gone(self) -> bool:
        """Whether the process has ended; never blocks."""
        try:
            self._last_word()
        except BlockingIOError:
            return False
        self.discard()
        return True

    def discard(self) -> None:
        """Close the sockets of a child, whatever it is doing: the zygote then kills it."""
        if self._control >= 0:
            os.close(self._control)
            os.close(self._data)
            self._control = self._data = -1

    def _await_death(self) -> int | None:
        """The wait status, reported by the zygote, its parent; ``None``: the zygote has ended
        too."""
        try:
            _wait(self._control, select.POLLIN, time.monotonic() + _DEATH_S)
        except TimeoutError as error:
            raise Fault(
                "An executor's process does not die.",
                remedy="Check for a process stuck in the kernel; restart Actum.",
            ) from error
        word = self._last_word()
        # If the zygote has ended, the kernel has killed its whole pid namespace.
        return int(word) if word else None

    def _last_word(self) -> bytes:
        try:
            return os.read(self._control, _CONTROL_BYTES)
        except ConnectionResetError:
            # It ended before the request to end arrived; its report comes now.
            return os.read(self._control, _CONTROL_BYTES)


def _wait(descriptor: int, events: int, deadline: float) -> bool:
    """Wait until it is usable; whether time is left then. Raises if it never became usable."""
    poll = select.poll()  # select() is limited to descriptors up to 1023
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
    """Reaches callers only when the replacement has ended too."""

    def __init__(self) -> None:
        super().__init__(
            "The executors' fork server has ended; the executor was not started.",
            remedy="Call again; if this repeats, `actum doctor` lists what this host lacks.",
        )


class Pool:
    """Children that are ready for a call. Thread-safe. The zygote starts on first use."""

    def __init__(self, *, ready: int = 4, surroundings: Surroundings | None = None) -> None:
        self._wanted = ready
        self._surroundings = surroundings or Surroundings()
        # A thread that waits for a child holds the first lock, so that others can still order or
        # retire one. A thread that starts or ends the zygote holds both.
        self._arrivals = threading.Lock()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._server: socket.socket | None = None
        self._ordered = 0  # children that were ordered and have not arrived
        self._stock: deque[Child] = deque()
        self._dying: deque[Child] = deque()
        self._walls: tuple[str, ...] = ()

    @property
    def walls(self) -> tuple[str, ...]:
        """The mechanisms that confine an executor on this host."""
        with self._arrivals, self._lock:
            self._ensure_started()
        return self._walls

    def call(
        self,
        request: child_frames.Request,
        *,
        timeout_s: float,
        max_reply_bytes: int,
        prepared: Child | None = None,
    ) -> tuple[Child, Reply]:
        """Run one call in a new child. The caller finishes or retires the child."""
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
        """A child that already has this code, if one is ready; never blocks.

        The caller uses it or discards it.
        """
        self._fetch()
        with self._lock:
            if not self._stock:
                return None
            child = self._stock.popleft()
        try:
            child.prepare(code)
        except (BrokenPipeError, ConnectionResetError):
            child.discard()  # its zygote has ended; the next call notices
            return None
        return child

    def ask(
        self, request: child_frames.Request, *, timeout_s: float, max_reply_bytes: int
    ) -> Reply:
        """`call` and `finish` in one."""
        child, reply = self.call(request, timeout_s=timeout_s, max_reply_bytes=max_reply_bytes)
        child.finish()
        self.refill()
        return reply

    def retire(self, child: Child) -> None:
        """Kill and replace a child without waiting for its end; the pool still tracks it.

        It shares nothing with the next child, so no caller waits for it; but if killed children
        accumulate, something is wrong and the pool waits for the oldest.
        """
        with self._lock:
            if child.server is not self._server:
                child.discard()  # its zygote has ended, and another one uses the same pids
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
        """Order missing children; returns at once. Best called after a call, not during one."""
        with self._lock:
            while self._server is not None and self._coming < self._wanted:
                if not self._order(self._server):
                    return  # the next call starts it again, and reports a failure

    def _tidy(self) -> None:
        """Work that need not delay a caller: the child of the call has just received its
        request."""
        with self._lock:
            while self._dying and self._dying[0].is_gone():
                self._dying.popleft()
        self._fetch()

    def _fetch(self) -> None:
        """Take one child into stock, if one has arrived; never blocks."""
        if self._stock or not self._arrivals.acquire(blocking=False):
            return  # another thread waits for one
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
                # The zygote died after the order. Nothing was sent, so another child serves.
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

    def _order(self, server: socket.socket, instead_of: int = child_frames.NO_CHILD) -> bool:
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
            # Its socket to us is its standard input: any other descriptor number would be an
            # argument, and addresses of objects in a child would depend on that number.
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
                remedy="`actum doctor` lists what this host lacks.",
            )
        # Not `settimeout`, with which a non-blocking check would block.
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
            self._server.close()  # this also ends all children that have not arrived
            self._server = None
        if self._process is not None:
            self._process.wait()
            if self._process.stderr is not None:
                self._process.stderr.close()
            self._process = None

    def close(self) -> None:
        """Close the socket; the zygote ends, and the kernel kills its whole pid namespace."""
        with self._arrivals, self._lock:
            self._discard()
