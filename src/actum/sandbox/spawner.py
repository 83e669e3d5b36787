"""The jail's fork server: one small single-threaded process that clones every sandbox.

Forking from the host process would copy its threads' locks and its whole memory map; from here a
sandbox costs a few milliseconds. Started as `python -I -S` with nothing imported that it does not
need. It holds no key, no secret and no database, reads no request, and keeps nothing of one: it
receives descriptors, clones, passes on a pidfd, and forgets.
"""

from __future__ import annotations

import array
import contextlib
import gc
import json
import os
import select
import signal
import socket

from actum import kernel
from actum.sandbox import init, root, seccomp, wire
from actum.sandbox.become import Template
from actum.sandbox.talk import receive

TYPE_CHECKING = False
if TYPE_CHECKING:
    from actum.sandbox.wire import Order

#: The tool's uid and gid when the host process is root: above every range that distributions,
#: containers and user namespaces hand out, so it maps to nobody. An ordinary user's tools run as
#: that user, inside a user namespace that maps nobody else.
TOOL_ID = 1_900_000_001

_NAMESPACES = (
    kernel.CLONE_NEWPID
    | kernel.CLONE_NEWNS
    | kernel.CLONE_NEWNET
    | kernel.CLONE_NEWIPC
    | kernel.CLONE_NEWUTS
)


#: Where the template is mounted, in the spawner's own mount namespace. Nothing below /sys is ever
#: granted to a tool, so no grant can contain it; and no directory on the host has to be made.
FOLDER = "/sys"


class _Member:
    """A sandbox that is prepared and waits for its one order, or carries it out."""

    def __init__(self, pid: int, pidfd: int, channel: socket.socket) -> None:
        self.pid = pid
        self.pidfd = pidfd
        self.channel = channel


class _Pool:
    """Warm members, each used once. Refilled when a sandbox has ended: a refill at the time of an
    order would compete with it for the processor."""

    def __init__(self, template: Template, limit: int) -> None:
        self._template = template
        self._limit = limit
        self._wanted = min(limit, 2)
        self._warm: list[_Member] = []
        self.running: dict[int, _Member] = {}  # by pidfd, which tells when it has ended

    def take(self) -> _Member:
        while self._warm:
            member = self._warm.pop(0)
            if not select.select([member.pidfd], [], [], 0)[0]:
                return member
            _forget(member)  # killed by someone while it waited
        return self._make()

    def started(self, member: _Member) -> None:
        self.running[member.pidfd] = member
        self._wanted = min(self._limit, max(self._wanted, len(self.running)))

    def ended(self, pidfd: int) -> None:
        _forget(self.running.pop(pidfd))

    @property
    def hungry(self) -> bool:
        return len(self._warm) < self._wanted

    def refill(self) -> None:
        self._warm.append(self._make())

    def _make(self) -> _Member:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        pid, pidfd = kernel.clone_process(_NAMESPACES)
        if pid == 0:
            init.main(self._template, theirs)
        theirs.close()
        return _Member(pid, pidfd, ours)


def _forget(member: _Member) -> None:
    os.close(member.pidfd)
    member.channel.close()


def main(descriptor: int, pool_size: int) -> None:
    """Serve until the host hangs up."""
    server = socket.socket(fileno=descriptor)
    # Nothing of the host process's environment or terminal is of use here.
    os.environ.clear()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the host's to handle
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps; an init is never waited for
    os.umask(0o022)  # what is made for a tool must be open to it
    template = _prepare()
    gc.freeze()
    server.send(b"ready")
    pool = _Pool(template, pool_size)
    idmaps: dict[tuple[int, int], int] = {}
    poll = select.poll()
    poll.register(server, select.POLLIN)
    refill = False
    while True:
        ready = {descriptor for descriptor, _event in poll.poll(0 if refill else None)}
        for pidfd in ready & pool.running.keys():
            poll.unregister(pidfd)
            pool.ended(pidfd)
            refill = pool.hungry
        if server.fileno() in ready:
            packet, descriptors = receive(server)
            if not packet:
                return
            order: Order = json.loads(packet)
            member = pool.take()
            _hand_over(member, descriptors, _idmap_for(order, template, idmaps))
            pool.started(member)
            poll.register(member.pidfd, select.POLLIN)
        elif refill:
            pool.refill()
            refill = pool.hungry


def _idmap_for(order: Order, template: Template, idmaps: dict[tuple[int, int], int]) -> int:
    """A user namespace that shows the owner's files as the tool's; -1 where they are already."""
    owner = (order["owner_uid"], order["owner_gid"])
    if owner == (template.uid, template.gid):
        return -1
    if owner not in idmaps:
        idmaps[owner] = _idmap(*owner)
    return idmaps[owner]


def _prepare() -> Template:
    uid, gid = os.getuid(), os.getgid()
    rootless = uid != 0
    if not rootless:
        uid = gid = TOOL_ID
        kernel.unshare(kernel.CLONE_NEWNS)
    else:
        # The network namespace too: from here a listener's way home leads to ours, not the host's.
        kernel.unshare(kernel.CLONE_NEWUSER | kernel.CLONE_NEWNS | kernel.CLONE_NEWNET)
        # Identity, not root: nothing inside ever looks privileged to the tool or to libc.
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{uid} {uid} 1")
        _write("/proc/self/gid_map", f"{gid} {gid} 1")
    # Slave, not private: mounts that the host makes later still arrive, none of ours leave.
    kernel.mount("", "/", "", kernel.MS_REC | kernel.MS_SLAVE)
    root.write_template(FOLDER, uid, gid)
    os.mkdir(f"{FOLDER}/root")
    programs = {allow: seccomp.compile_filter(allow_fork=allow) for allow in (True, False)}
    return Template(FOLDER, programs, kernel.landlock_abi(), uid, gid, rootless=rootless)


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def _hand_over(member: _Member, descriptors: list[int], idmap: int) -> None:
    """Give a member its order, and the host the means to kill it."""
    passed = [*descriptors, idmap] if idmap >= 0 else descriptors
    what = wire.WITH_IDMAP if idmap >= 0 else wire.WITHOUT_IDMAP
    # If it died this instant, the host learns it from the control socket.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        _send(member.channel, what, passed)
    # If the host gave up this instant, the init finds nobody to report to, and leaves.
    with (
        contextlib.suppress(BrokenPipeError, ConnectionResetError),
        socket.socket(fileno=descriptors[wire.CONTROL]) as control,
    ):
        _send(control, json.dumps({"kind": "pid", "pid": member.pid}).encode(), [member.pidfd])
    # At once: a copy of the tool's stdout kept here would keep the host waiting for its end.
    for descriptor in descriptors[wire.CONTROL + 1 :]:
        os.close(descriptor)


def _send(channel: socket.socket, packet: bytes, descriptors: list[int]) -> None:
    rights = array.array("i", descriptors)
    channel.sendmsg([packet], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])


def _idmap(uid: int, gid: int) -> int:
    """A user namespace that shows `uid`'s files as the tool's, for idmapped mounts."""
    ready_read, ready_write = os.pipe()
    hold_read, hold_write = os.pipe()
    helper = os.fork()
    if helper == 0:
        kernel.unshare(kernel.CLONE_NEWUSER)
        os.write(ready_write, b"1")
        os.close(hold_write)
        os.read(hold_read, 1)
        os._exit(0)
    os.close(ready_write)
    os.close(hold_read)
    os.read(ready_read, 1)
    for name, owner in (("uid_map", uid), ("gid_map", gid)):
        _write(f"/proc/{helper}/{name}", f"{owner} {TOOL_ID} 1")
    namespace = os.open(f"/proc/{helper}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    os.close(hold_write)
    os.close(ready_read)
    return namespace
