"""Pid 1 while the tool lives: reaps, answers the system calls that ask, obeys the host, reports."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import select
import signal
import socket
import struct
import time

from actum.sandbox import seccomp, wire
from actum.sandbox.network import listener
from actum.sandbox.root import ARTIFACTS
from actum.sandbox.talk import pass_on, send
from actum.sandbox.tasks import PERIOD_MS, Tasks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from actum.sandbox.groups import Group
    from actum.sandbox.wire import Report

_NOTIFY_RECEIVE, _NOTIFY_SEND = 0xC0502100, 0xC0182101
_NOTIFY_CONTINUE = 1
_FLOOD_PAUSE_S = 0.001
#: Limit -> where it shows; /tmp and /dev/shm have the same size each.
_SCRATCH = (
    ("scratch_bytes", "/tmp"),
    ("scratch_bytes", "/dev/shm"),
    ("artifacts_bytes", ARTIFACTS),
)


class Supervisor:
    """Pid 1 while the tool lives. Made before there is one, so that it has only to be looked at."""

    def __init__(self, control: socket.socket, group: Group) -> None:
        self._control = control
        self._group = group
        self._tasks: Tasks
        self._tool = self._listener = -1
        self.wait_status: int | None = None
        self.violation = ""
        self.denials: list[tuple[str, str, float]] = []
        self.denials_total = 0
        self.used = {"scratch_bytes": 0, "artifacts_bytes": 0}
        self.full: set[str] = set()
        self._woken, waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        self._poll = select.poll()
        for descriptor in (control.fileno(), self._woken):
            self._poll.register(descriptor, select.POLLIN)
        self._artifacts = os.open(ARTIFACTS, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        json.dumps(self._report())  # rehearsed, as in `root`

    def supervise(self, tasks: Tasks, tool: int, listener: int) -> NoReturn:
        """From the moment that the tool's process waits for its start."""
        self._tasks, self._tool, self._listener = tasks, tool, listener
        self._poll.register(listener, select.POLLIN)
        send(self._control, {"kind": "ready"}, self._artifacts)
        os.close(self._artifacts)
        self.reap()  # it may have ended before it was looked at
        while self.wait_status is None:
            self._attend()
            self.reap()
        self._end()

    def _attend(self) -> None:
        ready = self._poll.poll(PERIOD_MS)
        if not ready:
            self.measure()
        # By the clock: a tool can keep us busy, so that a quiet moment never comes.
        if self._tasks.is_due():
            self.settle()
        for descriptor, event in ready:
            if descriptor == self._woken:
                os.read(self._woken, 512)
            elif descriptor == self._listener:
                if event & select.POLLIN:
                    self.answer()
                else:
                    self._poll.unregister(self._listener)
            else:
                _obey(self._control)

    def measure(self) -> None:
        """How much of the scratch space is taken. The kernel keeps no peak, so we look."""
        for limit, path in _SCRATCH:
            found = os.statvfs(path)
            used = (found.f_blocks - found.f_bfree) * found.f_frsize
            self.used[limit] = max(self.used[limit], used)
            if found.f_bfree == 0 or found.f_ffree == 0:
                self.full.add(limit)

    def reap(self) -> None:
        """Collect every dead process; orphans are re-parented to us."""
        while self.wait_status is None:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            if pid == self._tool:
                self.wait_status = status

    def answer(self) -> None:
        """One system call waits for our word."""
        notification = bytearray(80)
        try:
            fcntl.ioctl(self._listener, _NOTIFY_RECEIVE, notification)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.EINTR):  # the caller died meanwhile
                return
            raise
        identity, _thread, _flags, number = struct.unpack_from("QIIi", notification)
        flags = struct.unpack_from("Q", notification, 32)[0]  # first argument
        name = seccomp.NAMES.get(number, str(number))
        reply, permit = errno.EPERM, 0
        if number == seccomp.FORKS["clone"] and flags & seccomp.CLONE_THREAD:
            if self._tasks.may_thread():
                reply, permit = 0, _NOTIFY_CONTINUE
            else:
                reply = errno.EAGAIN
                self._deny("thread", name)
        elif number in seccomp.VIOLATION.values():
            self.violation = f"system call {name}"
            os.kill(-1, signal.SIGKILL)
            return
        else:
            self._deny("fork" if number in seccomp.FORKS.values() else "syscall", name)
        response = struct.pack("QqiI", identity, 0, -reply, permit)
        try:
            fcntl.ioctl(self._listener, _NOTIFY_SEND, response)
        except OSError as error:
            if error.errno != errno.ENOENT:
                raise

    def settle(self) -> None:
        """Children that took the place of ended threads do not stay."""
        for pid in self._tasks.settle():
            self._deny("fork", "child beyond max_children")
            with contextlib.suppress(ProcessLookupError):  # it ended by itself
                os.kill(pid, signal.SIGKILL)

    def _deny(self, kind: str, target: str) -> None:
        self.denials_total += 1
        if len(self.denials) < wire.MAX_DENIALS:
            self.denials.append((kind, target, time.monotonic()))
        else:
            # Our time is not the tool's: answering a flood would be a second processor for it.
            time.sleep(_FLOOD_PAUSE_S)

    def _end(self) -> NoReturn:
        """The tool is gone; whatever it left running goes too, before anything is collected."""
        try:
            while True:
                os.kill(-1, signal.SIGKILL)
                os.waitpid(-1, 0)
        except (ProcessLookupError, ChildProcessError):
            pass  # nobody left
        send(self._control, self._report())
        self._control.recv(1)  # until the host has read it and hangs up
        os._exit(0)

    def _report(self) -> Report:
        self.measure()
        return {
            "kind": "ended",
            "wait_status": self.wait_status or 0,
            "violation": self.violation,
            "denials": self.denials,
            "denials_total": self.denials_total,
            "scratch_bytes": self.used["scratch_bytes"],
            "artifacts_bytes": self.used["artifacts_bytes"],
            "full": sorted(self.full),
            "usage": self._group.usage(),
        }


def _obey(control: socket.socket) -> None:
    """One word of the host."""
    order = control.recv(wire.MAX_PACKET)
    if not order:
        os._exit(0)  # the host hung up: everything inside dies with us
    if order == wire.TERMINATE:
        os.kill(-1, signal.SIGTERM)
        os.kill(-1, signal.SIGCONT)  # a stopped process would never see the first
        return
    wanted = json.loads(order)
    address, ports = wanted["address"], wanted["ports"]
    bound = {}
    for port in ports:
        try:
            bound[port] = listener(address, port)
        except OSError:
            # The tool listens there itself. That is its own affair, and no end of the sandbox.
            continue
    report: Report = {"kind": "listening", "address": address, "ports": list(bound)}
    pass_on(control, report, list(bound.values()))
