"""Pid 1 of a sandbox: builds the walls, waits, starts one tool, reaps, answers, reports.

The tool is never pid 1 and never reaches this process: it has another uid (or finds it not
dumpable), sees it hidden in /proc, and holds none of its descriptors. So a tool cannot forge how
it ended. Killing this process kills everything in the namespace; that is the host's last word.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket

from actum import kernel
from actum.sandbox import landlock, wire
from actum.sandbox.become import CannotJoin, fork_ahead
from actum.sandbox.network import open_doors, raise_loopback
from actum.sandbox.root import ARTIFACTS, PathChanged, Root
from actum.sandbox.supervise import Supervisor
from actum.sandbox.talk import document, receive, send
from actum.sandbox.tasks import Tasks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from actum.sandbox.become import Ahead, Template
    from actum.sandbox.groups import Group
    from actum.sandbox.wire import Make, Request

_HOSTNAME = "actum"
#: As requests want it today; one that wants another size has it changed.
_ARTIFACTS_BYTES = 20 << 20
_BASE_RULES = (
    *((path, landlock.READ) for path in ("/usr", "/etc", "/proc", "/var", "/run")),
    ("/tmp", landlock.WRITE),
    ("/dev/shm", landlock.WRITE),
    ("/dev", landlock.DEVICES),
    (ARTIFACTS, landlock.DROP),
)
#: On a merged /usr these are links into it; elsewhere they are folders of their own.
_SYSTEM = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")


class TreesFailed(Exception):
    """The opener could not open a granted path; its own words."""


class Kit:
    """The descriptors of one member."""

    def __init__(
        self,
        control: socket.socket,
        trees: socket.socket,
        streams: list[int],
        go: int,
        group: Group,
    ) -> None:
        self.control = control
        self.trees = trees
        self.streams = streams  #: of the tool
        self.go = go  #: where the tool's process hears the word to start
        self.group = group

    def close_all_others(self, waiter: int) -> None:
        kept = [self.control.fileno(), self.trees.fileno(), *self.streams, self.go, waiter]
        lowest = 3
        for descriptor in sorted({*kept, *self.group.descriptors()}):
            os.closerange(lowest, descriptor)
            lowest = descriptor + 1
        os.closerange(lowest, os.sysconf("SC_OPEN_MAX"))


class _Member:
    """A sandbox that is ready but for the request."""

    def __init__(self, template: Template, make: Make, kit: Kit) -> None:
        # One ruleset for each member: a rule added by one holder binds every holder.
        self.rules = landlock.ruleset(template.abi)
        # First, so that it prepares itself while we prepare the rest; and while few pages of ours
        # are our own, since each has to be copied once more when it is written after a fork.
        self.ahead: Ahead = fork_ahead(template, make, kit, self.rules)
        for descriptor in (*kit.streams, kit.go, template.waiter):
            os.close(descriptor)
        kernel.sethostname(_HOSTNAME)
        raise_loopback()
        self._abi = template.abi
        self._group = kit.group
        kit.group.limit(_limits(make))
        self.root = Root(make["scratch_bytes"], _ARTIFACTS_BYTES)
        for path, rights in _BASE_RULES:
            landlock.permit(self.rules, path, rights, self._abi)
        for path in _SYSTEM:
            if os.path.isdir(path) and not os.path.islink(path):
                landlock.permit(self.rules, path, landlock.READ, self._abi)
        self.root.rehearse()
        document(wire.INLINE + json.dumps({"grants": [{"path": "", "inode": 1}]}).encode(), [])
        self.supervisor = Supervisor(kit.control, kit.group)
        self.ahead.await_filtered()

    def carry_out(self, kit: Kit, request: Request) -> None:
        """All of the request but the start."""
        self._group.limit(wire.figures(request))
        trees = _receive_trees(kit.trees, len(request["grants"]))
        if self.root.furnish(request, trees):
            landlock.permit(self.rules, "/etc", landlock.READ, self._abi)
        found = os.stat(request["executable"])
        if (found.st_dev, found.st_ino) != (
            request["executable_device"],
            request["executable_inode"],
        ):
            raise PathChanged(request["executable"])
        for grant in request["grants"]:
            rights = landlock.WRITE if grant["write"] else landlock.READ
            landlock.permit(self.rules, grant["path"], rights, self._abi)
        # Before the tool's process takes its last step: the host may have said go already, and a
        # tool that is faster than we are would find a door closed, or take its place.
        open_doors(kit.control, request)
        self.ahead.confine()
        self.ahead.await_ready()


def main(template: Template, make: Make, kit: Kit) -> NoReturn:
    """Prepare, wait for one request, carry it out. Never returns."""
    # The spawner ignores it, and an ignored SIGCHLD would lose the tool's status.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    # The spawner's death must not leave a sandbox behind.
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    # A spawner that died before the line above sends no signal any more.
    if template.is_orphan():
        os._exit(1)
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    kit.close_all_others(template.waiter)
    control = kit.control
    member: _Member | None = None
    trouble: Exception | None = None
    try:
        member = _Member(template, make, kit)
    except (OSError, CannotJoin) as error:
        trouble = error  # to be told to whoever asks
    packet, descriptors = receive(control)
    if not packet:
        os._exit(0)  # never needed
    try:
        if member is None:
            raise trouble or AssertionError
        # Before we look at it ourselves: two can read at once.
        member.ahead.tell(packet, descriptors)
        request, stdin = document(packet, descriptors)
        for descriptor in stdin:
            os.close(descriptor)
        member.carry_out(kit, request)
    except PathChanged as error:
        _fail(control, "PATH_CHANGED", f"{error} is no longer the file that was checked")
    except TreesFailed as error:
        reason, message = error.args
        _fail(control, reason, message)
    except CannotJoin as error:
        _fail(control, "CGROUP_NOT_JOINABLE", f"the tool cannot join its cgroup: {error}")
    except OSError as error:
        _fail(control, "SANDBOX_UNAVAILABLE", f"{error.strerror or error}")
    tasks = Tasks(request["max_children"], kit.group.task_limit)
    member.supervisor.supervise(tasks, member.ahead.pid, member.ahead.listener)


def _limits(make: Make) -> wire.Limits:
    return {
        "memory_bytes": make["memory_bytes"],
        "tasks": make["tasks"],
        "quota_us": make["quota_us"],
        "scratch_bytes": make["scratch_bytes"],
    }


def _receive_trees(channel: socket.socket, count: int) -> list[int]:
    trees: list[int] = []
    while len(trees) < count:
        packet, descriptors = receive(channel)
        if not packet:
            os._exit(0)  # the opener is gone
        if packet[:1] == wire.CANNOT:
            reason, _, message = packet[1:].decode().partition(" ")
            raise TreesFailed(reason, message)
        trees += descriptors
    channel.close()
    return trees


def _fail(control: socket.socket, reason: str, message: str) -> NoReturn:
    send(control, {"kind": "failed", "reason": reason, "message": message})
    os._exit(1)


# ctypes is loaded before the first sandbox, so that no init has to look for it in its own root.
assert ctypes  # noqa: S101
