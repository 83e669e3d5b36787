"""How a fork of the spawner becomes an interpreter that runs a snippet: forked ahead, confined step
by step, told what to run.

Only for members that were made for that (`interpreter`); every other tool's process is the jail's
own (`jail/tool.c`). It takes the same steps in the same order and says the same words to the init.
What it is asked for, and cannot be, it executes.
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
from actum.sandbox import interpreter, landlock, root, seccomp, wire
from actum.sandbox.talk import packed, receive

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from actum.sandbox.wire import Tool

_EXEC_FAILED_NOT_FOUND, _EXEC_FAILED_DENIED = 127, 126
_OPEN_FILES = 1_024
_FILTER_BYTES = 4_096 * 8
#: What is needed until the last exec is held from here on, beyond the descriptors that the tool may
#: read its secrets from.
_BEYOND_SECRETS = 64
#: What the host has written to stdin is to be read, by whoever inherits it.
_SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
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


class Template:
    """What the spawner prepared and every member inherits."""

    def __init__(
        self, programs: dict[bool, bytes], abi: int, uid: int, gid: int, *, rootless: bool
    ) -> None:
        self.rootless = rootless
        #: The filter, by whether forks are allowed.
        self.filters = {allow: _held(program) for allow, program in programs.items()}
        self.abi = abi
        self.uid = uid
        self.gid = gid
        self.spawner = os.pidfd_open(os.getpid())
        self.jail = os.open(root.JAIL, os.O_PATH | os.O_CLOEXEC)
        # Nobody is to find it by a name; a member's root never held one.
        os.unlink(root.JAIL)
        own = os.stat("/proc/self/exe")
        self.interpreter = (own.st_dev, own.st_ino)  #: the file that all of this runs from

    def is_orphan(self) -> bool:
        """Whether the spawner is dead: then no signal tells of it any more."""
        return bool(select.select([self.spawner], [], [], 0)[0])


def _held(program: bytes) -> int:
    file = os.memfd_create("filter", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.write(file, program)
    everything = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, everything)
    return file


class Kit:
    """What was made for one member: the words for its init, and what the tool's process needs."""

    def __init__(self, words: list[str], own: int) -> None:
        # As far as jail/words.c has it, in its order.
        words[6] = str(own)
        numbers = [int(word) for word in words[:9]]
        self.control, self.trees, *self.streams = numbers[:5]
        self.go, _spawner, self.born_inside, doors = numbers[5:]
        self.doors = [int(word) for word in words[9 : 9 + doors]]
        self.filter = int(words[9 + doors])
        self.words = words


def fork_ahead(template: Template, kit: Kit) -> list[str]:
    """In the process that becomes the init; which is told the rules, the process, the way to it."""
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    try:
        # One ruleset for each member: a rule added by one holder binds every holder.
        rules = landlock.ruleset(template.abi)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # Version 2 of the cgroups: moving a process in would wait for a global lock (11 ms on an
        # idle host).
        inside = kit.born_inside
        pid = kernel.clone_into_cgroup(inside) if inside >= 0 else os.fork()
    except OSError:
        return _NOT_AHEAD  # the init's own attempt fails as well, and it can tell the host
    if pid == 0:
        if inside >= 0:
            kernel.after_raw_fork()
        ours.close()
        _become_tool(template, kit, rules, theirs)
    for descriptor in (rules, ours.fileno()):
        os.set_inheritable(descriptor, True)
    return [str(rules), str(pid), str(ours.detach())]


#: What an init is told of a process forked ahead of it, if there is none: it forks its own.
_NOT_AHEAD = ["-1", "-1", "-1"]


def _become_tool(template: Template, kit: Kit, rules: int, report: socket.socket) -> NoReturn:
    """Between fork and exec. The order matters; each line says why it stands where it stands."""
    step = "prepare"
    try:
        # What the init is to inherit is nothing for the tool.
        kernel.close_on_exec_from(3)
        for descriptor in (kit.control, kit.trees):
            os.close(descriptor)
        report = socket.socket(
            fileno=fcntl.fcntl(report.detach(), fcntl.F_DUPFD_CLOEXEC, _BEYOND_SECRETS)
        )
        step = "join"
        # Before anything of the tool exists: a child forked first would escape the limit. "0" in
        # `tasks` moves this one thread and spares the global lock that cgroup.procs takes.
        for door in kit.doors:
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
        go = fcntl.fcntl(kit.go, fcntl.F_DUPFD_CLOEXEC, _BEYOND_SECRETS)
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGCHLD):
            # Python ignores these, or the spawner does, and exec would keep that.
            signal.signal(number, signal.SIG_DFL)
        kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
        # From here on the filter holds for us as well; nothing that follows is forbidden by it.
        listener = seccomp.install(os.pread(kit.filter, _FILTER_BYTES, 0))
        rights = array.array("i", [listener])
        report.sendmsg([wire.GO], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        os.close(listener)
        packet, descriptors = receive(report)
        if not packet:
            os._exit(0)  # never needed
        text, stdin = packed(packet, descriptors)
        tool = wire.unpack_tool(text)
        for descriptor in stdin:
            os.dup2(descriptor, 0, inheritable=True)
        if not stdin:
            fcntl.fcntl(0, fcntl.F_ADD_SEALS, _SEALS)
        if report.recv(1) != wire.GO:
            os._exit(0)
        # While we may still enter what the tool may not.
        step = "enter"
        os.chdir(tool["working_directory"])
        step = "prepare"
        os.setresgid(template.gid, template.gid, template.gid)
        os.setresuid(template.uid, template.uid, template.uid)
        # After setresuid, which clears it.
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        landlock.restrict_self(rules)
        # An exec would take them from a user who is nobody, were they not kept for the init.
        kernel.drop_capabilities()
        report.send(wire.GO)
    except OSError as error:
        report.send(f"{error.errno} {step}".encode())
        os._exit(_EXEC_FAILED_DENIED)
    _become(tool, template, go)


def _become(tool: Tool, template: Template, go: int) -> NoReturn:
    """What is left is to wait for the word. Everything but its streams is close-on-exec: the tool
    starts with 0, 1, 2 and its secrets."""
    try:
        try:
            served = interpreter.serves(tool, template.interpreter)
        except OSError:
            served = False  # an exec will say the same
        if not served:
            _pass_secrets(tool["secrets"])
        os.eventfd_read(go)  # whoever hangs up instead is heard by the init, and we end with it
        if served:
            interpreter.become(tool)
        os.execve(tool["executable"], tool["argv"], tool["environment"])  # noqa: S606
    except FileNotFoundError:
        os._exit(_EXEC_FAILED_NOT_FOUND)
    except OSError:
        # The exit code says it, because the tool's start is its own affair.
        os._exit(_EXEC_FAILED_DENIED)


def _pass_secrets(values: list[bytes]) -> None:
    """A pipe each, filled and closed: it can be read once, and no child finds it full again."""
    readers = []
    for value in values:
        reader, writer = os.pipe2(os.O_CLOEXEC)
        # A pipe holds 64 KiB, twice the longest secret, so this never waits.
        os.write(writer, value)
        os.close(writer)
        readers.append(fcntl.fcntl(reader, fcntl.F_DUPFD_CLOEXEC, _BEYOND_SECRETS))
    for number, reader in enumerate(readers, start=3):
        os.dup2(reader, number, inheritable=True)
