"""The jail's fork server: one small single-threaded process that clones every sandbox.

Forking from the host process would copy its threads' locks and its whole memory map. Started as
`python -I -S` with nothing imported that it does not need. It holds no key, no secret and no
database, and sees nothing of a request: it prepares members, hands them to the host, and forgets.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import signal
import socket

from actum import kernel
from actum.sandbox import interpreter, root, seccomp, trees, wire
from actum.sandbox.become import NOT_AHEAD, Kit, Template, fork_ahead
from actum.sandbox.groups import Groups
from actum.sandbox.talk import pass_packet, receive_document

TYPE_CHECKING = False
if TYPE_CHECKING:
    from actum.sandbox.wire import Make, Member

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

#: Where the template is built, in the spawner's own mount namespace, before it becomes the root
#: there. No directory on the host has to be made for it.
_FOLDER = "/sys"


class _Spawner:
    def __init__(
        self, server: socket.socket, view: int, template: Template, groups: Groups
    ) -> None:
        self._server = server
        self._view = view
        self._template = template
        self._groups = groups
        self._made = 0

    def serve(self) -> None:
        """Until the host hangs up."""
        while (received := receive_document(self._server)) is not None:
            order = received[0]
            if order == wire.LEARN:
                self._learn()
            else:
                self._make(order)

    def _learn(self) -> None:
        """Our own files are the host's, which only the opener sees all the time."""
        home = os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
        kernel.setns(self._view, kernel.CLONE_NEWNS)
        interpreter.learn()
        gc.collect()
        gc.freeze()
        kernel.setns(home, kernel.CLONE_NEWNS)
        os.close(home)

    def _make(self, order: Make) -> None:
        self._made += 1
        try:
            group = self._groups.make(self._made)
        except OSError as error:
            self._tell({"error": f"{error.filename}: {error.strerror}"}, [])
            return
        ours, control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        trees, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        stdin = os.memfd_create("stdin", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        out_read, out_write = os.pipe2(os.O_CLOEXEC)
        err_read, err_write = os.pipe2(os.O_CLOEXEC)
        go, start = os.pipe2(os.O_CLOEXEC)
        for descriptor in (out_read, err_read):
            os.set_blocking(descriptor, False)
        if not self._template.rootless:
            # So that /dev/stdout and /dev/stderr can be opened by name, as scripts do.
            for descriptor in (out_write, err_write):
                os.fchown(descriptor, self._template.uid, self._template.gid)
        kit = Kit(control.fileno(), theirs.fileno(), [stdin, out_write, err_write], go, group)
        # All of it before the clone: each page that the new process writes has to be copied.
        for descriptor in kit.inherited():
            os.set_inheritable(descriptor, True)
        template = self._template
        words, more = self._words(order, kit), group.words(order)
        pid, pidfd = kernel.clone_process(_NAMESPACES)
        if pid == 0:
            try:
                ahead = fork_ahead(template, order, kit) if order["interpreter"] else NOT_AHEAD
                os.execve(template.jail, [*words, *ahead, *more], {})  # noqa: S606
            finally:
                os._exit(1)  # whatever happened: there is one spawner
        control.close()
        theirs.close()
        member: Member = {"group": group.name}
        passed = [ours.fileno(), trees.fileno(), stdin, out_read, err_read, pidfd, group.oom, start]
        self._tell(member, passed)
        ours.close()
        trees.close()
        group.close()
        # At once: a copy of the tool's stdout kept here would keep the host waiting for its end.
        for descriptor in (stdin, out_read, out_write, err_read, err_write, pidfd, go, start):
            os.close(descriptor)

    def _words(self, order: Make, kit: Kit) -> list[str]:
        """What an init is told at its start (`read_words` in jail/init.c), up to its tool."""
        template, group = self._template, kit.group
        numbers = (
            *(kit.control, kit.trees, *kit.streams, kit.go),
            *template.inherited(order),
            *(template.abi, template.uid, template.gid, template.rootless, order["steady"]),
            *(order["scratch_bytes"], group.born_inside, group.task_limit),
        )
        return ["jail", *[str(int(number)) for number in numbers]]

    def _tell(self, what: Member | dict[str, str], descriptors: list[int]) -> None:
        # If the host left this instant, the next look at its socket tells.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            pass_packet(self._server, json.dumps(what).encode(), descriptors)


def main(descriptor: int, opener: int) -> None:
    """Serve until the host hangs up."""
    server = socket.socket(fileno=descriptor)
    # They came through an exec; through those of the inits they do not go.
    for passed in (descriptor, opener):
        os.set_inheritable(passed, False)
    # Nothing of the host process's environment or terminal is of use here.
    os.environ.clear()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the host's to handle
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps; an init is never waited for
    os.umask(0o022)  # what is made for a tool must be open to it
    view, template = _prepare()
    _start_opener(opener, server, view, template)
    server.send(b"ready")
    received = receive_document(server)
    if received is None:
        return
    recipe, parents = received
    gc.freeze()
    _Spawner(server, view, template, Groups(recipe, parents)).serve()


def _start_opener(descriptor: int, spawners: socket.socket, view: int, template: Template) -> None:
    server = socket.socket(fileno=descriptor)
    if os.fork() == 0:
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        if template.is_orphan():
            os._exit(1)
        # Held here as well, the spawner's end would be heard of only with ours.
        spawners.close()
        kernel.setns(view, kernel.CLONE_NEWNS)
        trees.serve(server, (template.uid, template.gid))
    server.close()


def _prepare() -> tuple[int, Template]:
    """(the mount namespace that follows the host's, what members are made of)"""
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
        # What may build walls in this namespace; an init has it too, and takes it from its tool.
        kernel.keep_capabilities()
    # Slave, not private: mounts that the host makes later still arrive, none of ours leave.
    kernel.mount("", "/", "", kernel.MS_REC | kernel.MS_SLAVE)
    view = os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    kernel.unshare(kernel.CLONE_NEWNS)
    root.make_template(_FOLDER, uid, gid)
    programs = {allow: seccomp.compile_filter(allow_fork=allow) for allow in (True, False)}
    return view, Template(programs, kernel.landlock_abi(), uid, gid, rootless=rootless)


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)
