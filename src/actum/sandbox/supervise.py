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
    """The loop of pid 1 while the tool lives."""

    def __init__(self, tasks: Tasks, tool: int, listener: int) -> None:
        self.tasks = tasks
        self.tool = tool
        self.listener = listener
        self.started = time.monotonic()
        self.wait_status: int | None = None
        self.violation = ""
        self.denials: list[tuple[str, str, int]] = []
        self.denials_total = 0
        self.used = {"scratch_bytes": 0, "artifacts_bytes": 0}
        self.full: set[str] = set()

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
            if pid == self.tool:
                self.wait_status = status

    def answer(self) -> None:
        """One system call waits for our word."""
        notification = bytearray(80)
        try:
            fcntl.ioctl(self.listener, _NOTIFY_RECEIVE, notification)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.EINTR):  # the caller died meanwhile
                return
            raise
        identity, _thread, _flags, number = struct.unpack_from("QIIi", notification)
        flags = struct.unpack_from("Q", notification, 32)[0]  # first argument
        name = seccomp.NAMES.get(number, str(number))
        reply, permit = errno.EPERM, 0
        if number == seccomp.FORKS["clone"] and flags & seccomp.CLONE_THREAD:
            if self.tasks.may_thread():
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
            fcntl.ioctl(self.listener, _NOTIFY_SEND, response)
        except OSError as error:
            if error.errno != errno.ENOENT:
                raise

    def settle(self) -> None:
        """Children that took the place of ended threads do not stay."""
        for pid in self.tasks.settle():
            self._deny("fork", "child beyond max_children")
            with contextlib.suppress(ProcessLookupError):  # it ended by itself
                os.kill(pid, signal.SIGKILL)

    def _deny(self, kind: str, target: str) -> None:
        self.denials_total += 1
        if len(self.denials) < wire.MAX_DENIALS:
            self.denials.append((kind, target, int((time.monotonic() - self.started) * 1000)))
        else:
            # Our time is not the tool's: answering a flood would be a second processor for it.
            time.sleep(_FLOOD_PAUSE_S)


def supervise(
    control: socket.socket, tasks: Tasks, tool: int, filter_: int, group: Group
) -> NoReturn:
    artifacts = os.open(ARTIFACTS, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    send(control, {"kind": "started"}, artifacts)
    os.close(artifacts)
    wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    supervisor = Supervisor(tasks, tool, filter_)
    poll = select.poll()
    for descriptor in (control.fileno(), filter_, wake_read):
        poll.register(descriptor, select.POLLIN)
    supervisor.reap()  # the tool may have ended before the handler stood
    while supervisor.wait_status is None:
        ready = poll.poll(PERIOD_MS)
        if not ready:
            supervisor.measure()
        # By the clock: a tool can keep us busy, so that a quiet moment never comes.
        if tasks.is_due():
            supervisor.settle()
        for descriptor, event in ready:
            if descriptor == wake_read:
                os.read(wake_read, 512)
            elif descriptor == filter_:
                if event & select.POLLIN:
                    supervisor.answer()
                else:
                    poll.unregister(filter_)
            else:
                _obey(control)
        supervisor.reap()
    _end(control, supervisor, group)


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


def _end(control: socket.socket, supervisor: Supervisor, group: Group) -> NoReturn:
    """The tool is gone; whatever it left running goes too, before anything is collected."""
    try:
        while True:
            os.kill(-1, signal.SIGKILL)
            os.waitpid(-1, 0)
    except (ProcessLookupError, ChildProcessError):
        pass  # nobody left
    supervisor.measure()
    send(
        control,
        {
            "kind": "ended",
            "wait_status": supervisor.wait_status or 0,
            "violation": supervisor.violation,
            "denials": supervisor.denials,
            "denials_total": supervisor.denials_total,
            "scratch_bytes": supervisor.used["scratch_bytes"],
            "artifacts_bytes": supervisor.used["artifacts_bytes"],
            "full": sorted(supervisor.full),
            "usage": group.usage(),
        },
    )
    control.recv(1)  # until the host has read it and hangs up
    os._exit(0)
