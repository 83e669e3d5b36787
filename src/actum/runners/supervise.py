"""Supervise one sandbox from its start to its last byte: streams, deadline, memory proof, cancel.

The supervisor is made before the start. The kernel may put a process that we wake on our processor,
where it runs only when we sleep: so there is no work between the start and the first wait.
"""

from __future__ import annotations

import contextlib
import select
import threading
import time
from collections.abc import Callable
from enum import Enum, auto
from typing import TYPE_CHECKING

from actum.capture.model import Denial, Stream
from actum.capture.streams import SILENCE, drain, keeper
from actum.contract.limits import STDERR_BYTES, STDOUT_BYTES, TERM_GRACE_S
from actum.errors import Refused, SandboxUnavailable
from actum.runners.base import Cancel, OnOutput
from actum.sandbox.cgroup import Cgroup
from actum.sandbox.handle import Sandbox
from actum.value import value

if TYPE_CHECKING:
    from actum.capture.redaction import Redaction
    from actum.runners.channel import Duplex
    from actum.sandbox.wire import Report

#: How long a killed namespace may take to end before it is a fault.
_DEATH_S = 10.0
_OOM_POLL_S = 0.005
#: The output of a tool that ends sooner is read once, at its end. The kernel assumes that a writer
#: to a pipe is about to sleep, so it wakes the reader on the writer's processor. There the reader
#: would wait until the kernel has freed a tool that prints and exits. Output over the pipe's size
#: waits this long.
_UNREAD_S = 0.002
_FIRST_WAIT_MS = 1
_REFUSALS = {
    "PATH_CHANGED": "Run again once nothing moves the paths of the sandbox.",
    "DENY_NOT_COVERED": "What cannot be covered would be open. Deny the path that the link of the"
    " image or the folder leads to, or take the path out of `deny`.",
    "IDMAP_UNSUPPORTED": "That file system has no idmapped mounts, so new files would get the"
    " wrong owner. Work on ext4, xfs or btrfs (tmpfs from Linux 6.3), run actum as the owner, or"
    " let the folder be copied: `[workspace] engine` = auto or copy in actum.toml.",
    "OVERLAY_UNSUPPORTED": "Let the folder be copied: `[workspace] engine` = auto or copy in"
    " actum.toml. Or work on ext4, xfs, btrfs or tmpfs, or let tools write directly:"
    ' `[workspace] changes = "direct"`.',
    "CGROUP_NOT_JOINABLE": "This process must live inside the cgroup subtree it uses:"
    " `sudo actum host delegate --user USER --pid $$`, in this shell.",
}


#: Called with the init's report and the sockets that came with it.
OnDoors = Callable[["Report", list[int]], None]


class Stop(Enum):
    DEADLINE = auto()
    CANCEL = auto()
    MEMORY = auto()
    CLOSED = auto()  #: the channel was closed
    IDLE = auto()  #: there was no message for longer than the limit
    MESSAGE = auto()  #: it sent a message longer than the limit


@value
class Supervised:
    wait_status: int
    stop: Stop | None
    stdout: Stream
    stderr: Stream
    violation: str
    seal_lost: str  #: a sealed input, or a folder of one, that was replaced on the host
    denials: tuple[Denial, ...]
    denials_total: int
    scratch_bytes: int | None  #: ``None``: the init was killed
    artifacts_bytes: int | None
    full: tuple[str, ...]  #: limits of scratch space that were reached
    usage: list[str] | None  #: counters of the control groups; ``None``: the init was killed
    leaving: bool = False  #: nothing runs any more, but the kernel has not freed all of it
    #: Numbers of covers that were lost; ``None``: the init was killed.
    lost_covers: tuple[int, ...] | None = ()


#: Of a tool that still runs: without the fields that only its end sets.
SO_FAR = Supervised(
    wait_status=0,
    stop=None,
    stdout=SILENCE,
    stderr=SILENCE,
    violation="",
    seal_lost="",
    denials=(),
    denials_total=0,
    scratch_bytes=None,
    artifacts_bytes=None,
    full=(),
    usage=None,
)


class Supervisor:
    def __init__(
        self,
        sandbox: Sandbox,
        cgroup: Cgroup,
        *,
        on_output: OnOutput | None,
        on_ready: Callable[[], None],
        on_doors: OnDoors,
        cancel: Cancel | None = None,
        duplex: Duplex | None = None,
        redaction: Redaction | None = None,
    ) -> None:
        self.on_doors = on_doors
        self.cancel = cancel
        self.duplex = duplex
        self.sandbox = sandbox
        self.cgroup = cgroup
        self.on_output = on_output
        self.on_ready = on_ready
        self.began = 0.0
        self.keepers = {sandbox.stderr: ("stderr", keeper(STDERR_BYTES, redaction))}
        if duplex is None:  # else the channel reads it
            self.keepers[sandbox.stdout] = ("stdout", keeper(STDOUT_BYTES, redaction))
        self.poll = select.poll()
        self.streams = select.poll()  #: not select(), which is limited to descriptors up to 1023
        self.open = set(self.keepers)
        for descriptor in self.open:
            self.streams.register(descriptor, select.POLLIN)
        self.poll.register(sandbox.control, select.POLLIN)
        self.poll.register(cgroup.oom_event, cgroup.oom_poll)
        self.is_ready = False  #: whether the init has reported that the limits are applied
        self.listens = False  #: whether the streams are polled; a tool may write before that report
        self.stop: Stop | None = None
        self.kill_at: float | None = None
        self.killed_at: float | None = None
        self.oom_suspected = False
        self.ended: Report | None = None
        self.gone = False

    def listen(self) -> None:
        self.listens = True
        for descriptor in self.open:
            self.poll.register(descriptor, select.POLLIN)

    def take(self, descriptor: int) -> None:
        """Read the available bytes of a stream."""
        name, kept = self.keepers[descriptor]
        on_output = self.on_output
        relay = None if on_output is None else lambda chunk: on_output(name, chunk)
        if not drain(descriptor, kept, relay):
            self.streams.unregister(descriptor)
            if self.listens:
                self.poll.unregister(descriptor)
            self.open.discard(descriptor)

    def hear(self) -> None:
        """Receive one report of the init."""
        try:
            received = self.sandbox.receive()
        except ConnectionResetError:
            received = None
        if received is None:
            self.gone = True
            return
        report, descriptors = received
        if report["kind"] == "ready":
            self.is_ready = True
            self.on_ready()
        elif report["kind"] in ("listening", "resolver"):
            self.on_doors(report, descriptors)
        elif report["kind"] == "ended":
            self.ended = report
        elif report["kind"] == "failed":
            _raise_failure(report)

    def begin_stop(self, stop: Stop, now: float) -> None:
        if self.stop is None:
            self.stop = stop
            self.sandbox.terminate()
            self.kill_at = now + TERM_GRACE_S

    def hear_of_memory(self) -> None:
        # It also fires when the init has reported the end with all counters, and removes the
        # group: then there is nothing left to read here or below.
        with contextlib.suppress(OSError):
            self.oom_suspected = self.cgroup.oom_heard()

    def check_memory(self) -> None:
        """The event fires when the group runs out of memory; the counter proves an OOM kill."""
        try:
            kills = self.cgroup.oom_kills()
        except OSError:
            self.oom_suspected = False
            return
        if kills:
            self.oom_suspected = False
            self.stop = self.stop or Stop.MEMORY
            self.kill(time.monotonic())

    def kill(self, now: float) -> None:
        self.kill_at = None
        self.killed_at = self.killed_at or now
        self.sandbox.kill()

    def give_up(self) -> None:
        raise _stuck()

    def wait_s(self, deadline: float, now: float) -> float:
        until = self.kill_at if self.kill_at is not None else deadline
        if self.killed_at is not None:
            until = self.killed_at + _DEATH_S
        if self.oom_suspected:
            until = min(until, now + _OOM_POLL_S)
        if self.is_ready and not self.listens:
            until = min(until, self.began + _UNREAD_S)
        return max(0.0, until - now)

    def supervise(self, start: Callable[[], float], on_started: Callable[[], None]) -> Supervised:
        """Start, and stay until the process tree is gone. `start` returns the deadline;
        `on_started` is called as soon as there is time for it. Returns soon after the deadline plus
        grace, whatever the tool does."""
        sandbox, duplex, watch = self.sandbox, self.duplex, None
        control, oom = sandbox.control.fileno(), self.cgroup.oom_event
        cancelled = asked = -1
        if self.cancel is not None:
            cancelled = self.cancel.fileno()
            self.poll.register(cancelled, select.POLLIN)
        if duplex is not None:
            asked = duplex.begin(sandbox.stdout)
            self.poll.register(asked, select.POLLIN)
        try:
            deadline = start()
            self.began = time.monotonic()
            heard = self.poll.poll(_FIRST_WAIT_MS)
            on_started()
            if self.on_output is not None:
                # A listener that does not return holds this thread, but never the tool's deadline.
                late_s = deadline + TERM_GRACE_S - time.monotonic()
                timer = threading.Timer(max(0.0, late_s), sandbox.kill)
                timer.daemon = True
                timer.start()
                watch = timer
            while sandbox.early:  # reports of a sandbox that was started ahead
                self.hear()
            while True:
                for descriptor, _event in heard:
                    if descriptor in self.open:
                        self.take(descriptor)
                    elif descriptor == control:
                        self.hear()
                    elif descriptor == oom:
                        self.hear_of_memory()
                    elif descriptor == cancelled:
                        self.poll.unregister(cancelled)
                        self.begin_stop(Stop.CANCEL, time.monotonic())
                    elif duplex is not None and descriptor == asked:
                        self.poll.unregister(asked)
                        self.begin_stop(duplex.why, time.monotonic())
                now = time.monotonic()
                if self.is_ready and not self.listens and now >= self.began + _UNREAD_S:
                    self.listen()
                if self.oom_suspected:
                    self.check_memory()
                if now >= deadline:
                    self.begin_stop(Stop.DEADLINE, now)
                elif duplex is not None and now >= duplex.idle_at():
                    self.begin_stop(Stop.IDLE, now)
                if self.kill_at is not None and now >= self.kill_at:
                    self.kill(now)
                if self.killed_at is not None and now >= self.killed_at + _DEATH_S:
                    self.give_up()
                if self.ended is not None or self.gone:
                    break
                until = deadline if duplex is None else min(deadline, duplex.idle_at())
                heard = self.poll.poll(self.wait_s(until, now) * 1000)
        except BaseException:
            sandbox.kill()
            raise
        finally:
            if watch is not None:
                watch.cancel()
                watch.join()  # it uses the sandbox's descriptor
        return _conclude(self)


def _conclude(supervisor: Supervisor) -> Supervised:
    sandbox = supervisor.sandbox
    if supervisor.ended is None and supervisor.stop is None:
        sandbox.kill()
        raise SandboxUnavailable(
            "The sandbox's init died while the tool ran, so the tool's ending is not known.",
            remedy="Check the host's log for the kernel's out-of-memory killer, and run again.",
        )
    ended: Report = supervisor.ended or {}
    leaving = ended.get("leaving", False)
    if supervisor.ended is None:
        # It did not report that the tree is gone. Close the socket: the end of the init is the end
        # of the tree.
        sandbox.control.shutdown(2)
        if not _ended(sandbox.pidfd):
            raise _stuck()
    # Every writer is dead, so both streams end; the time limit is only a precaution. Streams of
    # exiting writers end later, but no process can write any more: all bytes are in the pipe.
    until = time.monotonic() + _DEATH_S
    while supervisor.open and time.monotonic() < until:
        readable = supervisor.streams.poll(0 if leaving else 1_000)
        for descriptor, _event in readable:
            supervisor.take(descriptor)
        if leaving and not readable:
            break
    if supervisor.on_output is not None:
        for name, kept in supervisor.keepers.values():
            if rest := kept.rest():
                supervisor.on_output(name, rest)
    streams = {name: kept.finish() for name, kept in supervisor.keepers.values()}
    if supervisor.duplex is not None:
        streams["stdout"] = supervisor.duplex.finish()
    return Supervised(
        wait_status=ended.get("wait_status", 9),
        stop=supervisor.stop,
        stdout=streams["stdout"],
        stderr=streams["stderr"],
        violation=ended.get("violation", ""),
        seal_lost=ended.get("seal_lost", ""),
        denials=_denials(ended, supervisor.began) if ended.get("denials") else (),
        denials_total=ended.get("denials_total", 0),
        scratch_bytes=ended.get("scratch_bytes"),
        artifacts_bytes=ended.get("artifacts_bytes"),
        full=tuple(ended.get("full", ())),
        usage=ended.get("usage"),
        leaving=leaving,
        lost_covers=tuple(ended["lost_covers"]) if "lost_covers" in ended else None,
    )


def _denials(ended: Report, began: float) -> tuple[Denial, ...]:
    # A sandbox that was started ahead is supervised only from now on.
    return tuple(
        Denial(kind=kind, target=target, time_ms=max(0, int((moment - began) * 1000)), count=count)
        for kind, target, moment, count in ended["denials"]
    )


def _ended(pidfd: int) -> bool:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(_DEATH_S * 1000))


def _stuck() -> SandboxUnavailable:
    return SandboxUnavailable(
        "A killed sandbox did not end.", remedy="Look for a process stuck in the kernel."
    )


def _raise_failure(report: Report) -> None:
    """The init could not build the sandbox: nothing was started."""
    reason, message = report.get("reason", ""), report.get("message", "")
    if reason in _REFUSALS:
        raise Refused(reason, f"{message}.", remedy=_REFUSALS[reason])
    raise SandboxUnavailable(
        f"The sandbox could not be built: {message}.", remedy="See `actum doctor`."
    )
