"""Pid 1 of a sandbox: builds the walls, starts the tool once, reaps, answers, reports.

The tool is never pid 1 and never reaches this process: it has another uid (or finds it not
dumpable), sees it hidden in /proc, and holds none of its descriptors. So a tool cannot forge how
it ended. Killing this process kills everything in the namespace; that is the host's last word.
"""

from __future__ import annotations

import array
import contextlib
import ctypes
import errno
import fcntl
import json
import os
import resource
import select
import signal
import socket
import stat
import struct
import time

from actum import kernel
from actum.sandbox import landlock, netlink, root, seccomp, wire
from actum.sandbox.tasks import PERIOD_MS, Tasks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from actum.sandbox.wire import Report, Request

_EXEC_FAILED_NOT_FOUND, _EXEC_FAILED_DENIED = 127, 126
_OPEN_FILES = 1_024
#: 0 forbids files only: where the host pipes cores to a program, that program, as root and outside
#: of every namespace, would still be handed the memory of the tool. At 1 the kernel starts nothing.
_NO_CORE = 1
#: Largest single file a tool may write into a host path; scratch is capped by its tmpfs.
FILE_BYTES = 1 << 30
_HOSTNAME = "actum"
_BACKLOG = 1_024
_IPV6_FREEBIND = 78


class CannotJoin(Exception):
    """The kernel does not let this process into the cgroup that was made for it."""


class Template:
    """What the spawner prepared and every init inherits."""

    def __init__(
        self,
        folder: str,
        programs: dict[bool, bytes],
        abi: int,
        uid: int,
        gid: int,
        *,
        rootless: bool,
    ) -> None:
        self.rootless = rootless
        self.folder = folder
        self.programs = programs  #: the filter, by whether forks are allowed
        self.abi = abi
        self.uid = uid
        self.gid = gid
        self.spawner = os.pidfd_open(os.getpid())  #: readable once the spawner is dead


def main(template: Template, channel: socket.socket) -> NoReturn:
    """Prepare, wait for one order, carry it out. Never returns."""
    # The spawner ignores it, and an ignored SIGCHLD would lose the tool's status.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    # The spawner's death must not leave a sandbox behind.
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    # A spawner that died before the line above sends no signal any more.
    if select.select([template.spawner], [], [], 0)[0]:
        os._exit(1)
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    _close_all_but({0, 1, 2, channel.fileno()})
    trouble: OSError | None = None
    try:
        new_root = root.prepare(template.folder)
        kernel.sethostname(_HOSTNAME)
        _raise_loopback()
    except OSError as error:
        trouble = error  # to be told to whoever gives the order
    ahead = _fork_ahead(template)
    packet, descriptors = receive(channel)
    if not packet:
        os._exit(0)  # never needed
    idmap = descriptors.pop() if packet == wire.WITH_IDMAP else -1
    control = socket.socket(fileno=descriptors[wire.CONTROL])
    try:
        if trouble is not None:
            raise trouble
        request = _read_request(descriptors[wire.REQUEST])
        root.furnish(new_root, request, template.folder, idmap)
        root.enter(new_root, request["working_directory"])
        rules = _rules(request, template)
        _open_doors(control, request)
        tool, listener = _start_tool(request, template, descriptors, rules, ahead)
    except root.PathChanged as error:
        _fail(control, "PATH_CHANGED", f"{error} is no longer the file that was checked")
    except CannotJoin as error:
        _fail(control, "CGROUP_NOT_JOINABLE", f"the tool cannot join its cgroup: {error}")
    except root.CannotMap as error:
        _fail(control, "IDMAP_UNSUPPORTED", str(error))
    except OSError as error:
        _fail(control, "SANDBOX_UNAVAILABLE", f"{error.strerror or error}")
    for descriptor in descriptors[wire.CONTROL + 1 :]:
        if descriptor != descriptors[wire.TASK_LIMIT]:
            os.close(descriptor)
    tasks = Tasks(request["max_children"], descriptors[wire.TASK_LIMIT])
    _supervise(control, tasks, tool, listener)


def receive(channel: socket.socket) -> tuple[bytes, list[int]]:
    """A packet and the descriptors that came with it."""
    rights = array.array("i")
    packet, ancillary, _flags, _address = channel.recvmsg(
        wire.MAX_PACKET,
        socket.CMSG_SPACE(wire.MAX_DESCRIPTORS * rights.itemsize),
        # Without this the tool would inherit them, the status socket included.
        socket.MSG_CMSG_CLOEXEC,
    )
    for _level, _kind, data in ancillary:
        rights.frombytes(data[: len(data) - len(data) % rights.itemsize])
    return packet, list(rights)


def _fail(control: socket.socket, reason: str, message: str) -> NoReturn:
    _send(control, {"kind": "failed", "reason": reason, "message": message})
    os._exit(1)


def _send(control: socket.socket, report: Report, *descriptors: int) -> None:
    ancillary = []
    if descriptors:
        rights = array.array("i", descriptors)
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)]
    try:
        control.sendmsg([json.dumps(report).encode()], ancillary)
    except (BrokenPipeError, ConnectionResetError):
        os._exit(1)  # the host is gone: nobody to report to, and the tree dies with us


def _close_all_but(kept: set[int]) -> None:
    for name in os.listdir("/proc/self/fd"):
        descriptor = int(name)
        if descriptor not in kept:
            try:
                os.close(descriptor)
            except OSError as error:
                if error.errno != errno.EBADF:  # the listing's own descriptor
                    raise


def _read_request(descriptor: int) -> Request:
    size = os.fstat(descriptor).st_size
    request: Request = json.loads(os.pread(descriptor, size, 0))
    return request


def _rules(request: Request, template: Template) -> int:
    """The Landlock ruleset for the tool, from inside its own root."""
    found = os.stat(request["executable"])
    if (found.st_dev, found.st_ino) != (
        request["executable_device"],
        request["executable_inode"],
    ):
        raise root.PathChanged(request["executable"])
    rules = [(path, landlock.READ) for path in ("/usr", "/etc", "/proc", "/var", "/run")]
    # On a merged /usr these are links into it; elsewhere they are folders of their own.
    rules += [
        (f"/{name}", landlock.READ)
        for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
        if os.path.isdir(f"/{name}") and not os.path.islink(f"/{name}")
    ]
    rules += [
        ("/tmp", landlock.WRITE),
        ("/dev/shm", landlock.WRITE),
        ("/dev", landlock.DEVICES),
        (root.ARTIFACTS, landlock.DROP),
    ]
    rules += [
        (grant["path"], landlock.WRITE if grant["write"] else landlock.READ)
        for grant in request["grants"]
    ]
    return landlock.ruleset(rules, template.abi)


def _raise_loopback() -> None:
    """A private loopback, so that a tool's own servers work; nothing else routes."""
    get_flags, set_flags, up = 0x8913, 0x8914, 0x1
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        name = b"lo".ljust(16, b"\0")
        reply = fcntl.ioctl(probe, get_flags, name + bytes(24))
        flags = struct.unpack_from("H", reply, 16)[0]
        fcntl.ioctl(probe, set_flags, name + struct.pack("H", flags | up) + bytes(22))


def _open_doors(control: socket.socket, request: Request) -> None:
    """The sandbox's few ways out: sockets bound here, accepted on by the host."""
    for address in request["addresses"]:
        netlink.add_loopback_address(address)
    bound = [_listener(address, port) for address, port in request["listen"]]
    for first in range(0, len(bound), wire.MAX_PASSED):
        _pass_on(control, {"kind": "listening"}, bound[first : first + wire.MAX_PASSED])
    if request["resolver"]:
        names = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        names.bind((request["resolver"], 53))
        _pass_on(control, {"kind": "resolver"}, [names, _listener(request["resolver"], 53)])


def _listener(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6:  # its address is still being checked for duplicates
        listener.setsockopt(socket.IPPROTO_IPV6, _IPV6_FREEBIND, 1)
    listener.bind((address, port))
    listener.listen(_BACKLOG)
    return listener


def _pass_on(control: socket.socket, report: Report, sockets: list[socket.socket]) -> None:
    _send(control, report, *(passed.fileno() for passed in sockets))
    for passed in sockets:
        passed.close()


class _Ahead:
    """A process forked before it was needed, which becomes the tool when it is told how."""

    def __init__(self, pid: int, channel: socket.socket) -> None:
        self.pid = pid
        self.channel = channel


def _fork_ahead(template: Template) -> _Ahead:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid == 0:
        ours.close()
        packet, descriptors = receive(theirs)
        if not packet:
            os._exit(0)
        request = _read_request(descriptors[0])
        _become_tool(request, template, descriptors[2:5], descriptors[5:], descriptors[1], theirs)
    theirs.close()
    return _Ahead(pid, ours)


def _start_tool(
    request: Request, template: Template, descriptors: list[int], rules: int, ahead: _Ahead
) -> tuple[int, int]:
    """Turn a process into the tool; (its pid, listener of its filter) once it is."""
    streams = descriptors[wire.STDIN : wire.STDERR + 1]
    doors = descriptors[wire.FIXED_DESCRIPTORS :]
    born_inside = [door for door in doors if stat.S_ISDIR(os.fstat(door).st_mode)]
    if born_inside:
        # Version 2 of the cgroups: moving a process in would wait for a global lock (11 ms on an
        # idle host), so the one that was forked ahead is of no use.
        ahead.channel.close()
        os.waitpid(ahead.pid, 0)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            tool = kernel.clone_into_cgroup(born_inside[0])
        except OSError as error:
            raise CannotJoin(error.strerror) from error
        if tool == 0:
            ours.close()
            _become_tool(request, template, streams, [], rules, theirs)
        theirs.close()
    else:
        tool, ours = ahead.pid, ahead.channel
        rights = array.array("i", [descriptors[wire.REQUEST], rules, *streams, *doors])
        ours.sendmsg([b"go"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
    os.close(rules)
    message, ancillary, _flags, _address = ours.recvmsg(
        64, socket.CMSG_SPACE(4), socket.MSG_CMSG_CLOEXEC
    )
    if not ancillary:
        raise OSError(int(message or b"0"), f"the tool's process failed ({message.decode()})")
    listener = array.array("i", ancillary[0][2][:4])[0]
    # Exec closes the other end; a message before that is the reason why it did not happen. The
    # exit code then says it as a shell would, because the tool's start is the tool's affair.
    ours.recv(64)
    ours.close()
    return tool, listener


def _become_tool(
    request: Request,
    template: Template,
    streams: list[int],
    doors: list[int],
    rules: int,
    report: socket.socket,
) -> NoReturn:
    """Between fork and exec. The order matters; each line says why it stands where it stands."""
    try:
        os.setsid()
        os.chdir(request["working_directory"])
        # Before anything of the tool exists: a child forked first would escape the limit. "0" in
        # `tasks` moves this one thread and spares the global lock that cgroup.procs takes.
        for door in doors:
            os.write(door, b"0")
        # After joining, so that the tool sees itself at the root of its cgroups.
        kernel.unshare(kernel.CLONE_NEWCGROUP)
        for limit, value in (
            (resource.RLIMIT_CORE, _NO_CORE),
            (resource.RLIMIT_NOFILE, _OPEN_FILES),
            (resource.RLIMIT_MEMLOCK, 65_536),
            (resource.RLIMIT_MSGQUEUE, 0),
            (resource.RLIMIT_FSIZE, FILE_BYTES),
        ):
            resource.setrlimit(limit, (value, value))
        os.umask(0o022)
        if not template.rootless:  # in a user's own namespace there is no such call
            os.setgroups([])
            # So that /dev/stdout and /dev/stderr can be opened by name, as scripts do.
            for descriptor in streams[1:]:
                os.fchown(descriptor, template.uid, template.gid)
        os.setresgid(template.gid, template.gid, template.gid)
        os.setresuid(template.uid, template.uid, template.uid)
        # After setresuid, which clears it.
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
        landlock.restrict_self(rules)
        for target, source in enumerate(streams):
            os.dup2(source, target, inheritable=True)
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)  # Python ignores these, and exec would keep that
        listener = seccomp.install(template.programs[request["max_children"] > 0])
        rights = array.array("i", [listener])
        report.sendmsg([b"ok"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
    except OSError as error:
        report.send(str(error.errno).encode())
        os._exit(_EXEC_FAILED_DENIED)
    try:
        # Everything else is close-on-exec: the tool starts with 0, 1, 2 and nothing more.
        os.execve(request["executable"], request["argv"], request["environment"])  # noqa: S606
    except FileNotFoundError:
        os._exit(_EXEC_FAILED_NOT_FOUND)
    except OSError:
        os._exit(_EXEC_FAILED_DENIED)


_NOTIFY_RECEIVE, _NOTIFY_SEND = 0xC0502100, 0xC0182101
_NOTIFY_CONTINUE = 1
#: Limit -> where it shows; /tmp and /dev/shm have the same size each.
_SCRATCH = (
    ("scratch_bytes", "/tmp"),
    ("scratch_bytes", "/dev/shm"),
    ("artifacts_bytes", root.ARTIFACTS),
)


class _Supervisor:
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
            with contextlib.suppress(
                ProcessLookupError
            ):  # ended by itself, and reaped by its parent
                os.kill(pid, signal.SIGKILL)

    def _deny(self, kind: str, target: str) -> None:
        self.denials_total += 1
        if len(self.denials) < wire.MAX_DENIALS:
            self.denials.append((kind, target, int((time.monotonic() - self.started) * 1000)))


def _supervise(control: socket.socket, tasks: Tasks, tool: int, listener: int) -> NoReturn:
    artifacts = os.open(root.ARTIFACTS, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    _send(control, {"kind": "started"}, artifacts)
    os.close(artifacts)
    wake_read, wake_write = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    supervisor = _Supervisor(tasks, tool, listener)
    poll = select.poll()
    for descriptor in (control.fileno(), listener, wake_read):
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
            elif descriptor == listener:
                if event & select.POLLIN:
                    supervisor.answer()
                else:
                    poll.unregister(listener)
            else:
                _obey(control)
        supervisor.reap()
    _end(control, supervisor)


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
            bound[port] = _listener(address, port)
        except OSError:
            # The tool listens there itself. That is its own affair, and no end of the sandbox.
            continue
    report: Report = {"kind": "listening", "address": address, "ports": list(bound)}
    _pass_on(control, report, list(bound.values()))


def _end(control: socket.socket, supervisor: _Supervisor) -> NoReturn:
    """The tool is gone; whatever it left running goes too, before anything is collected."""
    try:
        while True:
            os.kill(-1, signal.SIGKILL)
            os.waitpid(-1, 0)
    except (ProcessLookupError, ChildProcessError):
        pass  # nobody left
    supervisor.measure()
    _send(
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
        },
    )
    control.recv(1)  # until the host has read it and hangs up
    os._exit(0)


# ctypes is loaded before the first sandbox, so that no init has to look for it in its own root.
assert ctypes  # noqa: S101
