"""A fork of the zygote that runs a snippet as its interpreter: forked ahead, confined step by step,
then given its request.

Only for members that were made for that (`interpreter`); every other tool's process is the jail's
own (`jail/tool.c`). It takes the same steps in the same order and sends the same messages to the
init. A request that it cannot serve is executed by execve.
"""

from __future__ import annotations

import array
import errno
import fcntl
import os
import resource
import select
import signal
import socket

from actum import kernel
from actum.sandbox import landlock, root, seccomp, snippet_interpreter, wire
from actum.sandbox.packets import packed, receive

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from actum.sandbox.wire import Tool

_EXEC_FAILED_NOT_FOUND, _EXEC_FAILED_DENIED = 127, 126
_OPEN_FILES = 1_024
_FILTER_BYTES = 4_096 * 8
#: Descriptors that are needed until the last exec start here, beyond those from which the tool may
#: read its secrets.
_BEYOND_SECRETS = 64
#: The content of stdin is read-only for every process that inherits it.
_SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
#: 0 forbids only core files: where the host pipes cores to a program, that program, as root and
#: outside of every namespace, would still get the memory of the tool. At 1 the kernel starts none.
_NO_CORE = 1
#: Largest single file a tool may write into a host path; scratch is capped by its tmpfs.
FILE_BYTES = 1 << 30
_LIMITS = (
    (resource.RLIMIT_CORE, _NO_CORE),
    (resource.RLIMIT_MEMLOCK, 65_536),
    (resource.RLIMIT_MSGQUEUE, 0),
    (resource.RLIMIT_FSIZE, FILE_BYTES),
)


class Template:
    """Prepared by the spawner, inherited by every member."""

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
        # No process may find it by a name; a member's root never has one.
        os.unlink(root.JAIL)
        own = os.stat("/proc/self/exe")
        self.interpreter = (own.st_dev, own.st_ino)  #: the running interpreter's own file

    def is_orphan(self) -> bool:
        """Whether the spawner is dead already: then PR_SET_PDEATHSIG sends no signal."""
        return bool(select.select([self.spawner], [], [], 0)[0])


def _held(program: bytes) -> int:
    file = os.memfd_create("filter", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.write(file, program)
    everything = fcntl.F_SEAL_SEAL | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_WRITE
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, everything)
    return file


class Kit:
    """The parts of one member: the arguments of its init, and what the tool's process needs."""

    def __init__(self, words: list[str], own: int) -> None:
        # The fields and order of jail/words.c.
        words[6] = str(own)
        numbers = [int(word) for word in words[:9]]
        self.control, self.trees, *self.streams = numbers[:5]
        self.go, _spawner, self.born_inside, doors = numbers[5:]
        self.doors = [int(word) for word in words[9 : 9 + doors]]
        self.filter = int(words[9 + doors])
        self.words = words


def fork_ahead(template: Template, kit: Kit) -> list[str]:
    """In the process that becomes the init. Returns the init's arguments: ruleset, pid, socket."""
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    try:
        # One ruleset for each member: a rule added by one holder binds every holder.
        rules = landlock.ruleset(template.abi)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # cgroup version 2: moving a process in would wait for a global lock (11 ms on an idle
        # host).
        inside = kit.born_inside
        pid = kernel.clone_into_cgroup(inside) if inside >= 0 else os.fork()
    except OSError:
        return _NOT_AHEAD  # the init's own attempt fails as well, and the init can report it
    if pid == 0:
        if inside >= 0:
            kernel.after_raw_fork()
        ours.close()
        _become_tool(template, kit, rules, theirs)
    for descriptor in (rules, ours.fileno()):
        os.set_inheritable(descriptor, True)
    return [str(rules), str(pid), str(ours.detach())]


#: The init's arguments if no process was forked ahead: it forks its own.
_NOT_AHEAD = ["-1", "-1", "-1"]


def _become_tool(template: Template, kit: Kit, rules: int, report: socket.socket) -> NoReturn:
    """Between fork and exec. The order matters; comments give the reason."""
    step = "prepare"
    try:
        # The tool must not inherit the init's descriptors.
        kernel.close_on_exec_from(3)
        for descriptor in (kit.control, kit.trees):
            os.close(descriptor)
        report = socket.socket(
            fileno=fcntl.fcntl(report.detach(), fcntl.F_DUPFD_CLOEXEC, _BEYOND_SECRETS)
        )
        step = "join"
        # Before any process of the tool exists: a child forked earlier would escape the limit. "0"
        # in `tasks` moves this one thread without the global lock that cgroup.procs takes.
        for door in kit.doors:
            os.write(door, b"0")
        step = "prepare"
        os.setsid()
        # After joining, so that the tool sees itself at the root of its cgroups.
        kernel.unshare(kernel.CLONE_NEWCGROUP)
        for limit, value in _LIMITS:
            resource.setrlimit(limit, (value, value))
        os.umask(0o022)
        if not template.rootless:  # setgroups is denied in an ordinary user's namespace
            os.setgroups([])
        for target, source in enumerate(kit.streams):
            os.dup2(source, target, inheritable=True)
        go = fcntl.fcntl(kit.go, fcntl.F_DUPFD_CLOEXEC, _BEYOND_SECRETS)
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGCHLD):
            # Python or the spawner ignores these, and exec would keep that.
            signal.signal(number, signal.SIG_DFL)
        kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
        # From here on the filter applies to us as well; it allows every call that follows.
        listener = seccomp.install(os.pread(kit.filter, _FILTER_BYTES, 0))
        rights = array.array("i", [listener])
        report.sendmsg([wire.GO], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
        os.close(listener)
        # After the last descriptor was passed. The limit bounds these as well, for all processes of
        # a uid together, and a tool that has ours can have used it up.
        resource.setrlimit(resource.RLIMIT_NOFILE, (_OPEN_FILES, _OPEN_FILES))
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
        # While we may still enter folders that the tool may not.
        step = "enter"
        os.chdir(tool["working_directory"])
        step = "prepare"
        secrets = _held_secrets(tool["secrets"], template)
        os.setresgid(template.gid, template.gid, template.gid)
        os.setresuid(template.uid, template.uid, template.uid)
        # After setresuid, which clears it.
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        landlock.restrict_self(rules)
        # An exec would drop them for this uid, but they are kept (ambient) for the init.
        kernel.drop_capabilities()
        report.send(wire.GO)
    except OSError as error:
        report.send(f"{error.errno} {step}".encode())
        os._exit(_EXEC_FAILED_DENIED)
    _start(tool, template, secrets, go)


def _start(tool: Tool, template: Template, secrets: list[int], go: int) -> NoReturn:
    """Wait for the start. Everything but the streams is close-on-exec: the tool starts with
    descriptors 0, 1, 2 and its secrets."""
    try:
        try:
            served = snippet_interpreter.serves(tool, template.interpreter)
        except OSError:
            served = False  # the exec will fail the same way
        for number, reader in enumerate(secrets, start=3):
            if not served:
                os.dup2(reader, number, inheritable=True)
            os.close(reader)
        os.eventfd_read(go)  # if the host closes the socket, the init exits and kills us
        if served:
            snippet_interpreter.run(tool)
        os.execve(tool["executable"], tool["argv"], tool["environment"])  # noqa: S606
    except FileNotFoundError:
        os._exit(_EXEC_FAILED_NOT_FOUND)
    except OSError:
        # Reported by the exit code: a failed exec is the tool's own error.
        os._exit(_EXEC_FAILED_DENIED)


def _held_secrets(values: list[bytes], template: Template) -> list[int]:
    """One pipe per secret, filled and closed: it can be read once, also by children.

    It holds 64 KiB, twice the longest secret, or 8 KiB if the pipes of this uid hold too much
    already (pipe(7)). So the root's own uid makes it, and a secret that does not fit is refused: a
    write would block for ever.
    """
    readers = []
    for value in values:
        reader, writer = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(writer, False)
        if not template.rootless:
            os.fchown(reader, template.uid, template.gid)  # so that it can be opened by name
        if value and os.write(writer, value) != len(value):
            raise OSError(errno.ENOBUFS, os.strerror(errno.ENOBUFS))
        os.close(writer)
        readers.append(fcntl.fcntl(reader, fcntl.F_DUPFD_CLOEXEC, _BEYOND_SECRETS))
        os.close(reader)
    return readers
