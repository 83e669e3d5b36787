"""A sandbox that stays running: lines to its stdin, lines from its stdout.

The run itself takes the ordinary path on a thread of its own, which enforces the deadlines, drains
stderr and reports the ending. The caller of `receive` reads stdout: without a reader the pipe fills
up, and the tool blocks. Nothing here interprets a line.
"""

from __future__ import annotations

import os
import select
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from actum.capture.model import Capture, Connection, Enforced, Stream
from actum.capture.streams import keeper
from actum.contract.limits import STDOUT_BYTES
from actum.errors import Refused
from actum.runners.supervise import Stop
from actum.value import replace

if TYPE_CHECKING:
    from actum.capture.redaction import Redaction
    from actum.contract.call import Plan
    from actum.runners.attempt_steps import Order
    from actum.runners.cleanup import Cleanup
    from actum.runners.concurrency import ConcurrencyLimit
    from actum.runners.egress_setup import Egress

OrderT = TypeVar("OrderT", bound="Order")

#: How long a tool may take to exit by itself once its stdin has ended.
_LEAVE_S = 0.5
_READ_BYTES = 65_536


class Duplex:
    """The pipes of one channel, shared by the run's thread and the caller."""

    def __init__(
        self, *, idle_s: float, message_bytes: int, redaction: Redaction | None = None
    ) -> None:
        self.idle_s = idle_s
        self.message_bytes = message_bytes
        self.why = Stop.CLOSED  #: the reason for the stop
        self.over = ""
        self.started = threading.Event()
        self.stdin, self._to = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._to, False)
        self._from = -1
        self._poll = select.poll()  #: for `receive`
        self._stop = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.redaction = redaction
        self._keeper = keeper(STDOUT_BYTES, redaction)
        self._unread = bytearray()
        self._searched = 0  #: how much of `_unread` holds no end of a line
        self._longest = 0
        self._measure: Callable[[str], tuple[Enforced, ...]] | None = None
        self._egress: Egress | None = None
        self._ended = False
        self._stopped = False
        self._spoken = time.monotonic()
        self._speaking = False
        self._lock = threading.Lock()  #: guards the descriptors and the unread bytes
        self._turn = threading.Lock()  #: held by the caller that sends or receives

    # -- the run's thread -------------------------------------------------------------------

    def begin(self, stdout: int) -> int:
        """The sandbox was launched. Returns a descriptor that is readable on `stop`."""
        os.close(self.stdin)
        self.stdin = -1
        self._from = os.dup(stdout)
        os.set_blocking(self._from, False)
        self._poll.register(self._from, select.POLLIN)
        self._spoken = time.monotonic()
        return self._stop

    def idle_at(self) -> float:
        """When the tool is idle. While a caller waits for an answer, that moves on."""
        return (time.monotonic() if self._speaking else self._spoken) + self.idle_s

    def finish(self) -> Stream:
        """No process is left that could write: read the rest of the pipe."""
        with self._lock:
            while self._take():
                pass
        return self._keeper.finish()

    def goes_outside(self, egress: Egress) -> None:
        """Set the egress of the tool, for the refusals during a call."""
        self._egress = egress

    def measure_by(self, measure: Callable[[str], tuple[Enforced, ...]] | None) -> None:
        """Set the function that measures a running tool; ``None`` once it has ended."""
        with self._lock:
            self._measure = measure

    def measured(self, note: str) -> tuple[Enforced, ...]:
        with self._lock:
            if self._measure is None:
                return ()
            try:
                return self._measure(note) + self.rows(None, note)
            except OSError:  # it has just ended, and its init has removed the groups
                return ()

    def refused(self) -> tuple[Connection, ...]:
        session = None if self._egress is None else self._egress.session
        return () if session is None else session.refused()

    def rows(self, stop: Stop | None, note: str = "") -> tuple[Enforced, ...]:
        """The manifest rows of limits that only a kept tool has."""
        return (
            Enforced(
                limit="idle_ms",
                requested=str(int(self.idle_s * 1000)),
                mechanism="host deadline, begun anew with every message" + note,
                enforced=True,
                tripped=stop is Stop.IDLE,
            ),
            Enforced(
                limit="message_bytes",
                requested=str(self.message_bytes),
                mechanism="bounded line, then SIGTERM and SIGKILL of the pid namespace" + note,
                enforced=True,
                peak=self._longest,
                tripped=stop is Stop.MESSAGE,
            ),
        )

    # -- the caller -------------------------------------------------------------------------

    def fileno(self) -> int:
        return self._from

    def send(self, message: bytes, deadline: float) -> bool:
        line = message + b"\n"
        with self._turn:
            self._speaking = True  # while a caller waits for the tool, it is not idle
            try:
                if self.over:
                    return False
                written = self._write(line)
                return written == len(line) or self._send_rest(memoryview(line)[written:], deadline)
            finally:
                self._spoken = time.monotonic()
                self._speaking = False

    def _send_rest(self, left: memoryview, deadline: float) -> bool:
        poll = select.poll()
        poll.register(self._to, select.POLLOUT)
        poll.register(self._from, select.POLLIN)
        while left and not self.over:
            written = self._write(left)
            if written:
                left = left[written:]
                continue
            wait_s = deadline - time.monotonic()
            if wait_s <= 0:
                return False
            # A tool that blocks on its own output reads no input meanwhile.
            for descriptor, _event in poll.poll(wait_s * 1000):
                if descriptor == self._from and not self._read_some():
                    poll.unregister(self._from)
        return not left

    def _write(self, data: bytes | memoryview) -> int:
        # Under the lock: another thread may close stdin, and the number may be reused.
        with self._lock:
            try:
                return os.write(self._to, data) if self._to >= 0 else 0
            except BlockingIOError:
                return 0
            except BrokenPipeError:
                self._is_over("it has closed its stdin")
                return 0

    def receive(self, deadline: float, stop: int = -1) -> bytes | None:
        with self._turn:
            self._speaking = True
            if stop >= 0:
                self._poll.register(stop, select.POLLIN)
            try:
                return self._received(deadline, stop)
            finally:
                if stop >= 0:
                    self._poll.unregister(stop)
                self._spoken = time.monotonic()
                self._speaking = False

    def _received(self, deadline: float, stop: int) -> bytes | None:
        while True:
            line = self._line()
            if line is not None or self.over:
                return line
            if self._ended or self._from < 0:
                self._is_over("it has ended")
                return None
            wait_s = deadline - time.monotonic()
            if wait_s <= 0:
                return None
            ready = self._poll.poll(wait_s * 1000)
            if stop >= 0 and ready and all(descriptor == stop for descriptor, _ in ready):
                return None

    def _line(self) -> bytes | None:
        """The next line, if it is complete."""
        with self._lock:
            while (end := self._unread.find(b"\n", self._searched)) < 0:
                self._searched = len(self._unread)
                if self._searched > self.message_bytes:
                    self._refuse_message()
                    return None
                if not self._take():
                    return None
            self._searched = 0
            line = bytes(self._unread[:end])
            del self._unread[: end + 1]
            self._longest = max(self._longest, end)
            if end > self.message_bytes:
                self._refuse_message()
                return None
            return line

    def _refuse_message(self) -> None:
        self._longest = max(self._longest, len(self._unread))
        self._unread.clear()
        self._searched = 0
        self.stop(Stop.MESSAGE)
        self._is_over(f"it sent a message of more than {self.message_bytes} bytes")

    def _read_some(self) -> bool:
        """False: no bytes are available."""
        with self._lock:
            # Unread bytes are bounded too: beyond that, the tool blocks.
            return len(self._unread) <= 2 * self.message_bytes and self._take()

    def _take(self) -> bool:
        if self._from < 0 or self._ended:
            self._ended = True
            return False
        try:
            chunk = os.read(self._from, _READ_BYTES)
        except BlockingIOError:
            return False
        if not chunk:
            self._ended = True
            self._unread += self._keeper.rest()
            return False
        self._unread += self._keeper.feed(chunk)
        return True

    def _is_over(self, why: str) -> None:
        self.over = self.over or why

    # -- the end ----------------------------------------------------------------------------

    def close_stdin(self) -> None:
        """Close stdin: a tool that serves its stdin exits."""
        self._is_over("the channel is closed")
        with self._lock:
            if self._to >= 0:
                os.close(self._to)
                self._to = -1

    def stop(self, why: Stop) -> None:
        if not self._stopped:  # the first reason counts
            self._stopped = True
            self.why = why
            os.eventfd_write(self._stop, 1)

    def release(self) -> None:
        """Close all descriptors. The run is over, and every caller has seen the end."""
        self.close_stdin()
        with self._turn, self._lock:
            for descriptor in (self.stdin, self._from, self._stop):
                if descriptor >= 0:
                    os.close(descriptor)
            self.stdin = self._from = self._stop = -1


class LocalChannel:
    """A run with a channel, of a runner whose sandboxes have our init."""

    def __init__(self, duplex: Duplex, life_s: float, run: Callable[[], Capture]) -> None:
        self._duplex = duplex
        self._run = run
        self._capture: Capture | None = None
        self._error: BaseException | None = None
        self._ended = False  #: the run is over; its thread has nothing left to do
        self._closing = threading.Lock()
        self._thread = threading.Thread(target=self._carry_out, name="actum-channel", daemon=True)
        self._until = time.monotonic() + life_s
        self._thread.start()
        duplex.started.wait()
        if self._error is not None:
            self._thread.join()
            duplex.release()
            raise self._error

    def _carry_out(self) -> None:
        try:
            self._capture = self._run()
        except BaseException as error:  # noqa: BLE001 -- raised again by `close`
            self._error = error
        finally:
            self._ended = True
            self._duplex.started.set()

    @property
    def over(self) -> str:
        return self._duplex.over or ("it has ended" if self._ended else "")

    @property
    def ended(self) -> bool:
        return self._ended

    @property
    def until(self) -> float:
        return self._until

    def redacted(self, content: bytes) -> bytes:
        redaction = self._duplex.redaction
        return content if redaction is None else redaction.whole(content)

    def enforcement(self, note: str = "") -> tuple[Enforced, ...]:
        if self._capture is None:
            return self._duplex.measured(note)
        rows = self._capture.enforcement
        return tuple(replace(row, mechanism=row.mechanism + note) for row in rows)

    def refused(self) -> tuple[Connection, ...]:
        if self._capture is None:
            return self._duplex.refused()
        return tuple(one for one in self._capture.connections if one.refused)

    @property
    def redaction(self) -> Redaction | None:
        return self._duplex.redaction

    def fileno(self) -> int:
        return self._duplex.fileno()

    def send(self, message: bytes, deadline: float | None = None) -> bool:
        return self._duplex.send(message, self._until if deadline is None else deadline)

    def receive(self, deadline: float, stop: int = -1) -> bytes | None:
        return self._duplex.receive(deadline, stop)

    def close(self) -> Capture:
        with self._closing:
            if self._thread.is_alive():
                self._duplex.close_stdin()
                self._thread.join(_LEAVE_S)
                if self._thread.is_alive():
                    self._duplex.stop(Stop.CLOSED)
                    self._thread.join()
            self._duplex.release()
        if self._error is not None:
            raise self._error
        assert self._capture is not None  # noqa: S101 -- one of the two is set
        return self._capture


def open_channel(
    plan: Plan,
    kept: ConcurrencyLimit,
    order_of: Callable[[Plan], OrderT],
    carry_out: Callable[[OrderT, Duplex], tuple[Capture, Cleanup]],
    *,
    idle_s: float,
    message_bytes: int,
) -> LocalChannel:
    """Start a plan that takes one of the places of `kept` until it has ended."""
    if plan.stdin:
        raise Refused(
            "CHANNEL_STDIN",
            "inputs.stdin: a tool with a channel gets its input line by line.",
            remedy="Leave stdin out, and send its content over the channel.",
        )
    order = order_of(plan)
    if not kept.try_take():
        raise Refused(
            "SESSIONS_FULL",
            f"{kept.count} tools are kept running already; nothing ran.",
            remedy="Close one of them, or raise limits.max_sessions in actum.toml.",
        )
    duplex = Duplex(idle_s=idle_s, message_bytes=message_bytes, redaction=order.redaction)

    def run() -> Capture:
        try:
            capture, cleanup = carry_out(order, duplex)
            cleanup.end()
            return capture
        finally:
            kept.give_back()

    return LocalChannel(duplex, plan.policy.limits.timeout_ms / 1000, run)
