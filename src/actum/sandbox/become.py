"""How a process becomes the tool: forked ahead, confined step by step, told what to run, then exec.

The last of our code that runs in that process. It holds nothing afterwards but its three streams.
What does not depend on the request is done while the member waits; the rest in the moment it comes.
"""

from __future__ import annotations

import array
import fcntl
import os
import resource
import select
import signal
import socket

from actum import kernel
from actum.sandbox import interpreter, landlock, seccomp, wire
from actum.sandbox.root import WAITER
from actum.sandbox.talk import pass_packet, receive_document

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

    from actum.sandbox.init import Kit
    from actum.sandbox.wire import Make

_EXEC_FAILED_DENIED = 126
_OPEN_FILES = 1_024
#: What is needed until the last exec is held from here on, beyond the descriptors that the tool may
#: read its secrets from.
_BEYOND_SECRETS = 64
#: Where the word to start is heard, by the waiter too: beyond those as well.
_GO = 100
#: 0 forbids files only: where the host pipes cores to a program, that program, as root and outside
#: of every namespace, would still be handed the memory of the tool. At 1 the kernel starts nothing.
_NO_CORE = 1
#: Largest single file a tool may write into a host path; scratch is capped by its tmpfs.
FILE_BYTES = 1 << 30
_LIMITS = (
    (resource.RLIMIT_CORE, _NO_CORE),
    (resource.RLIMIT_NOFILE, _OPEN_FILES),
    (resource.RLIMIT_MEMLOCK, 65_536),
    (resource.RLIMIT_MSGQUEUE, 0),
    (resource.RLIMIT_FSIZE, FILE_BYTES),
)


class CannotJoin(Exception):
    """The kernel does not let this process into the cgroup that was made for it."""


class Template:
    """What the spawner prepared and every member inherits."""

    def __init__(
        self, programs: dict[bool, bytes], abi: int, uid: int, gid: int, *, rootless: bool
    ) -> None:
        self.rootless = rootless
        self.programs = programs  #: the filter, by whether forks are allowed
        self.abi = abi
        self.uid = uid
        self.gid = gid
        self._spawner = os.pidfd_open(os.getpid())
        waiter = os.open(WAITER, os.O_PATH | os.O_CLOEXEC)
        self.waiter = fcntl.fcntl(waiter, fcntl.F_DUPFD_CLOEXEC, _BEYOND_SECRETS)
        os.close(waiter)
        own = os.stat("/proc/self/exe")
        self.interpreter = (own.st_dev, own.st_ino)  #: the file that all of this runs from

    def is_orphan(self) -> bool:
        """Whether the spawner is dead: then no signal tells of it any more."""
        return bool(select.select([self._spawner], [], [], 0)[0])


class Ahead:
    """A process forked before it was needed, which becomes the tool when it is told how."""

    def __init__(self, pid: int, channel: socket.socket) -> None:
        self.pid = pid
        self._channel = channel
        self.listener = -1  #: where the init hears of the system calls that ask

    def await_filtered(self) -> None:
        """Until it stands under the filter and in its groups."""
        message, ancillary, _flags, _address = self._channel.recvmsg(
            64, socket.CMSG_SPACE(4), socket.MSG_CMSG_CLOEXEC
        )
        if not ancillary:
            raise _failure(message)
        self.listener = array.array("i", ancillary[0][2][:4])[0]

    def tell(self, packet: bytes, descriptors: list[int]) -> None:
        """The request, as it came; with it another stdin than it was born with, or none."""
        pass_packet(self._channel, packet, descriptors)

    def confine(self) -> None:
        """The root is as the tool will see it, and the rules are complete."""
        self._channel.send(wire.GO)

    def await_ready(self) -> None:
        message = self._channel.recv(64)
        if message != wire.GO:
            raise _failure(message)
        self._channel.close()


def _failure(message: bytes) -> Exception:
    number, _, step = message.decode().partition(" ")
    if step == "join":
        return CannotJoin(os.strerror(int(number)))
    text = f"the tool's process failed: {os.strerror(int(number or 0))}"
    return OSError(int(number or 0), text)


def fork_ahead(template: Template, make: Make, kit: Kit, rules: int) -> Ahead:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    group = kit.group
    if group.born_inside >= 0:
        # Version 2 of the cgroups: moving a process in would wait for a global lock (11 ms on an
        # idle host).
        try:
            pid = kernel.clone_into_cgroup(group.born_inside)
        except OSError as error:
            raise CannotJoin(error.strerror) from error
    else:
        pid = os.fork()
    if pid == 0:
        if group.born_inside >= 0:
            kernel.after_raw_fork()
        ours.close()
        _become_tool(template, make, kit, rules, theirs)
    theirs.close()
    return Ahead(pid, ours)


def _become_tool(
    template: Template, make: Make, kit: Kit, rules: int, report: socket.socket
) -> NoReturn:
    """Between fork and exec. The order matters; each line says why it stands where it stands."""
    report = socket.socket(
        fileno=fcntl.fcntl(report.detach(), fcntl.F_DUPFD_CLOEXEC, _BEYOND_SECRETS)
    )
    step = "join"
    try:
        # Before anything of the tool exists: a child forked first would escape the limit. "0" in
        # `tasks` moves this one thread and spares the global lock that cgroup.procs takes.
        for door in kit.group.doors:
            os.write(door, b"0")
        step = "prepare"
        os.setsid()
        # After joining, so that the tool sees itself at the root of its cgroups.
        kernel.unshare(kernel.CLONE_NEWCGROUP)
        for limit, value in _LIMITS:
            resource.setrlimit(limit, (value, value))
        os.umask(0o022)
        if not template.rootless:  # in a user's own namespace there is no such call
            os.setgroups([])
        for target, source in enumerate(kit.streams):
            os.dup2(source, target, inheritable=True)
        os.dup2(kit.go, _GO, inheritable=False)
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)  # Python ignores these, and exec would keep that
        kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
        if make["steady"]:
            # Before the filter, which lets nobody change it back.
            kernel.syscall(kernel.SYS_PERSONALITY, "personality", kernel.ADDR_NO_RANDOMIZE)
        # From here on the filter holds for us as well; nothing that follows is forbidden by it.
        listener = seccomp.install(template.programs[make["allow_fork"]])
        rights = array.array("i", [listener])
        report.sendmsg([wire.GO], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        os.close(listener)
        told = receive_document(report)
        if told is None:
            os._exit(0)  # never needed
        tool, stdin = told
        for descriptor in stdin:
            os.dup2(descriptor, 0, inheritable=True)
        if report.recv(1) != wire.GO:
            os._exit(0)
        # While we may still enter what the tool may not.
        os.chdir(tool["working_directory"])
        os.setresgid(template.gid, template.gid, template.gid)
        os.setresuid(template.uid, template.uid, template.uid)
        # After setresuid, which clears it.
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        landlock.restrict_self(rules)
        report.send(wire.GO)
    except OSError as error:
        report.send(f"{error.errno} {step}".encode())
        os._exit(_EXEC_FAILED_DENIED)
    _become(tool, make, template)


def _become(tool: dict[str, Any], make: Make, template: Template) -> NoReturn:
    """What is left is to wait for the word. Everything but it is close-on-exec: the tool starts
    with 0, 1, 2 and its secrets."""
    try:
        served = not make["steady"] and interpreter.serves(tool, template.interpreter)
    except OSError:
        served = False  # an exec will say the same
    if served:
        _await_go()
        try:
            interpreter.become(tool)
        except OSError:
            os._exit(_EXEC_FAILED_DENIED)
    _pass_secrets(tool["secrets"])
    os.set_inheritable(_GO, True)
    try:
        os.execve(  # noqa: S606
            template.waiter, ["waiter", tool["executable"], *tool["argv"]], tool["environment"]
        )
    except OSError:
        # Too long for any exec. The exit code says it, because the tool's start is its own affair.
        _await_go()
        os._exit(_EXEC_FAILED_DENIED)


def _await_go() -> None:
    if os.read(_GO, 1) != wire.GO:
        os._exit(0)


def _pass_secrets(values: list[str]) -> None:
    """A pipe each, filled and closed: it can be read once, and no child finds it full again."""
    readers = []
    for value in values:
        reader, writer = os.pipe2(os.O_CLOEXEC)
        # A pipe holds 64 KiB, twice the longest secret, so this never waits.
        os.write(writer, os.fsencode(value))
        os.close(writer)
        readers.append(fcntl.fcntl(reader, fcntl.F_DUPFD_CLOEXEC, _BEYOND_SECRETS))
    for number, reader in enumerate(readers, start=3):
        os.dup2(reader, number, inheritable=True)
