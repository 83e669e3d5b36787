"""How a process becomes the tool: forked ahead, told how, confined step by step, then exec.

The last of our code that runs in that process. It holds nothing afterwards but its three streams.
"""

from __future__ import annotations

import array
import fcntl
import os
import resource
import signal
import socket
import stat

from actum import kernel
from actum.sandbox import landlock, seccomp, wire
from actum.sandbox.talk import read_request, receive

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from actum.sandbox.wire import Request

_EXEC_FAILED_NOT_FOUND, _EXEC_FAILED_DENIED = 127, 126
_OPEN_FILES = 1_024
#: 0 forbids files only: where the host pipes cores to a program, that program, as root and outside
#: of every namespace, would still be handed the memory of the tool. At 1 the kernel starts nothing.
_NO_CORE = 1
#: Largest single file a tool may write into a host path; scratch is capped by its tmpfs.
FILE_BYTES = 1 << 30


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


class Ahead:
    """A process forked before it was needed, which becomes the tool when it is told how."""

    def __init__(self, pid: int, channel: socket.socket) -> None:
        self.pid = pid
        self.channel = channel


def fork_ahead(template: Template) -> Ahead:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid == 0:
        ours.close()
        packet, descriptors = receive(theirs)
        if not packet:
            os._exit(0)
        request = read_request(descriptors[0])
        _become_tool(request, template, descriptors[2:5], descriptors[5:], descriptors[1], theirs)
    theirs.close()
    return Ahead(pid, ours)


def start_tool(
    request: Request, template: Template, descriptors: list[int], rules: int, ahead: Ahead
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
    if request["secrets"]:
        # Out of the way of the descriptors that the tool will read its secrets from.
        report = socket.socket(fileno=fcntl.fcntl(report, fcntl.F_DUPFD_CLOEXEC, 64))
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
        if request["steady"]:
            # Before the filter, which lets nobody change it back.
            kernel.syscall(kernel.SYS_PERSONALITY, "personality", kernel.ADDR_NO_RANDOMIZE)
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
    _pass_secrets(request["secrets"])
    try:
        # Everything else is close-on-exec: the tool starts with 0, 1, 2 and its secrets.
        os.execve(request["executable"], request["argv"], request["environment"])  # noqa: S606
    except FileNotFoundError:
        os._exit(_EXEC_FAILED_NOT_FOUND)
    except OSError:
        os._exit(_EXEC_FAILED_DENIED)


def _pass_secrets(values: list[str]) -> None:
    """A pipe each, filled and closed: it can be read once, and no child finds it full again."""
    readers = []
    for value in values:
        reader, writer = os.pipe2(os.O_CLOEXEC)
        # A pipe holds 64 KiB, twice the longest secret, so this never waits.
        os.write(writer, os.fsencode(value))
        os.close(writer)
        readers.append(fcntl.fcntl(reader, fcntl.F_DUPFD_CLOEXEC, 64))
    for number, reader in enumerate(readers, start=3):
        os.dup2(reader, number, inheritable=True)
