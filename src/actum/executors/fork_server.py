"""The executors' fork server (the zygote): a small, isolated process that clones one-shot children.

It is pid 1 of its own pid namespace (when it dies, so does every child). It has an unmapped uid, an
empty root directory, no network, no environment, a fixed hash seed and address layout, and a clock
that the filter closes. It never sees a request and never runs an executor's code: it passes two
descriptors of a new child to the host and reports how the child ended.

Not started with `-I`: that would ignore PYTHONHASHSEED, which the host sets in an otherwise empty
environment.
"""

# ruff: noqa: E402 -- what executors may import comes first, so that the rest can be hidden

from __future__ import annotations

import sys

from actum.executors import modules

modules.load()
# Other modules import `locale`, which reveals where this runs.
_HIDDEN = frozenset({"actum", "locale"})
_VISIBLE = frozenset(name for name in sys.modules if name.split(".")[0] not in _HIDDEN)

import array
import contextlib
import ctypes
import errno
import gc
import json
import os
import resource
import select
import signal
import socket
import time

from actum import kernel
from actum.executors import clone_source, vdso
from actum.executors.filter import Filter, compile_filter
from actum.sandbox import landlock

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

#: As root: a uid next to the jail's, equally unmapped.
EXECUTOR_ID = 1_900_000_002

#: What one call may use beyond what the zygote itself has mapped.
MEMORY_BYTES = 256 << 20
_ORDER_BYTES = 64

_NAMESPACES = (
    kernel.CLONE_NEWPID
    | kernel.CLONE_NEWNS
    | kernel.CLONE_NEWNET
    | kernel.CLONE_NEWIPC
    | kernel.CLONE_NEWUTS
)
_ADDR_NO_RANDOMIZE = 0x0040000
_SYS_CAPSET = 126
_CAPABILITIES_V3 = 0x20080522


class _NoEnvironment:
    """Replaces `os.environ`: every access is an error, not an empty answer."""

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise PermissionError(errno.EPERM, "an executor has no environment; use the payload")

    __getitem__ = __setitem__ = __delitem__ = __contains__ = __iter__ = __len__ = _refuse
    get = keys = values = items = pop = setdefault = update = copy = clear = _refuse


def _no_clock() -> NoReturn:
    raise PermissionError(errno.EPERM, "an executor has no clock; pass times in the payload")


def main(*, fixed_layout: bool) -> None:
    """Serve on standard input until the host closes it."""
    if fixed_layout and not _layout_is_fixed():
        _start_again_with_fixed_layout()
    walls = ["seccomp", "rlimits"]
    server = socket.socket(fileno=0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the host handles Ctrl-C
    # SCHED_BATCH: this process and its children do not preempt the host that
    # woke them.
    os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))
    _close_clock_and_entropy()
    address_space = _mapped_bytes() + MEMORY_BYTES
    namespaces = _enter_namespaces(server)
    if namespaces:
        _lose_the_file_system()
        walls += ["namespaces", "empty root"]
    _lose_privileges()
    if namespaces:
        # After the change of uid, which resets PDEATHSIG. Without a process in between it
        # would refer to the host's *thread* that started us; there the closed socket is enough.
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    # After the mounts: Landlock forbids making any.
    if abi := kernel.landlock_abi():
        landlock.restrict_self(landlock.ruleset(abi))
        walls.append("landlock")
    walls += ["identity"] if os.getuid() == EXECUTOR_ID else []
    program = Filter(compile_filter())
    _forget_the_surroundings()
    gc.collect()
    gc.freeze()
    template_pidfd, line = _start_template(program, address_space)
    server.send(json.dumps(walls).encode())
    _serve(server, line, template_pidfd)


def _layout_is_fixed() -> bool:
    ask_only = 0xFFFFFFFF
    return bool(kernel.syscall(135, "personality", ctypes.c_ulong(ask_only)) & _ADDR_NO_RANDOMIZE)


def _start_again_with_fixed_layout() -> NoReturn:
    kernel.syscall(135, "personality", ctypes.c_ulong(_ADDR_NO_RANDOMIZE))
    os.execve(sys.orig_argv[0], sys.orig_argv, dict(os.environ))  # noqa: S606 -- itself


def _close_clock_and_entropy() -> None:
    if not vdso.close_clock():
        raise OSError("no vDSO was found, so the clock cannot be closed")
    vdso.forget_random_bytes()
    vdso.close_cycle_counter()


def _enter_namespaces(server: socket.socket) -> bool:
    """Become pid 1 of new namespaces; the process that stays outside waits for our end."""
    if os.geteuid() != 0:
        uid, gid = os.getuid(), os.getgid()
        try:
            kernel.unshare(kernel.CLONE_NEWUSER)
            for name, text in (
                ("setgroups", "deny"),
                ("uid_map", f"{EXECUTOR_ID} {uid} 1"),
                ("gid_map", f"{EXECUTOR_ID} {gid} 1"),
            ):
                with open(f"/proc/self/{name}", "w") as file:
                    file.write(text)
        except OSError as error:
            # A host may forbid this to users. The filter alone already permits nothing but
            # computing, so continuing breaks no promise; the host gets a message.
            if error.errno not in (errno.EPERM, errno.ENOSPC, errno.EUSERS, errno.ENOSYS):
                raise
            return False
    pid, pidfd = kernel.clone_process(_NAMESPACES)
    if pid:
        server.close()
        os.close(pidfd)
        _pid, status = os.waitpid(pid, 0)
        os._exit(os.waitstatus_to_exitcode(status) & 0x7F)
    return True


def _lose_the_file_system() -> None:
    """Mount an empty, read-only root; the old one is unmounted for this namespace."""
    somewhere = "/sys"
    kernel.mount("", "/", "", kernel.MS_REC | kernel.MS_PRIVATE)
    flags = kernel.MS_NOSUID | kernel.MS_NODEV | kernel.MS_NOEXEC
    kernel.mount("tmpfs", somewhere, "tmpfs", flags, "size=4k,mode=555")
    os.chdir(somewhere)
    kernel.pivot_root(".", ".")
    kernel.umount_detach(".")
    os.chdir("/")
    kernel.mount("", "/", "", flags | kernel.MS_REMOUNT | kernel.MS_RDONLY)


def _lose_privileges() -> None:
    if os.geteuid() == 0:
        os.setgroups([])
        os.setresgid(EXECUTOR_ID, EXECUTOR_ID, EXECUTOR_ID)
        os.setresuid(EXECUTOR_ID, EXECUTOR_ID, EXECUTOR_ID)
    header = (ctypes.c_uint32 * 2)(_CAPABILITIES_V3, 0)
    nothing = (ctypes.c_uint32 * 6)()
    kernel.syscall(_SYS_CAPSET, "capset", header, nothing)
    kernel.prctl(kernel.PR_SET_NO_NEW_PRIVS, 1)
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)


def _forget_the_surroundings() -> None:
    """Remove everything that reveals to an executor where or by whom it was started."""
    import posix

    blank: Any = _NoEnvironment()
    # Below, libc keeps what the host set: the same fixed words on every machine.
    os.environ = os.environb = posix.environ = blank
    sys.argv, sys.orig_argv, sys.path = [""], [], []
    sys.executable = sys.prefix = sys.base_prefix = sys.exec_prefix = sys.base_exec_prefix = ""
    for name in ("stdin", "stdout", "stderr", "__stdin__", "__stdout__", "__stderr__"):
        setattr(sys, name, None)
    # Built-in and frozen modules need no file; the filter would kill a path finder.
    sys.meta_path = [finder for finder in sys.meta_path if "Path" not in finder.__name__]  # type: ignore[attr-defined]
    sys.path_importer_cache.clear()
    sys.path_hooks.clear()
    # The filter refuses these calls, and the interpreter would return 0.0 for them.
    for name in ("monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns"):
        setattr(time, name, _no_clock)


def _start_template(program: Filter, address_space: int) -> tuple[int, socket.socket]:
    """(a pidfd of the process, our end of the socket to it)."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid, pidfd = kernel.clone_process(0)
    if pid == 0:
        clone_source.serve(theirs.fileno(), program, address_space, _VISIBLE)
    theirs.close()
    return pidfd, ours


def _serve(server: socket.socket, line: socket.socket, template_pidfd: int) -> None:
    poller = select.poll()
    for watched in (server.fileno(), template_pidfd):
        poller.register(watched, select.POLLIN)
    children: dict[int, _Child] = {}
    by_descriptor: dict[int, _Child] = {}
    while True:
        # One event at a time: handling it may close the descriptor of the next.
        descriptor, _events = poller.poll()[0]
        if descriptor == template_pidfd:
            return  # without the template process there are no more children
        if descriptor == server.fileno():
            order = server.recv(_ORDER_BYTES)
            if not order:
                return
            if useless := children.get(int(order)):
                useless.kill()
            child = _clone(server, line)
            children[child.number] = child
            for watched in (child.pidfd, child.control.fileno()):
                by_descriptor[watched] = child
                poller.register(watched, select.POLLIN)
        elif descriptor == (child := by_descriptor.pop(descriptor)).pidfd:
            del children[child.number]
            if by_descriptor.pop(child.control.fileno(), None):
                poller.unregister(child.control)
            poller.unregister(descriptor)
            child.report_end()
        else:  # the host wants it killed, or has closed the socket
            poller.unregister(descriptor)
            child.kill()


class _Child:
    count = 0

    def __init__(self, pid: int, control: socket.socket) -> None:
        _Child.count += 1
        self.number = _Child.count
        self.pid = pid
        self.pidfd = os.pidfd_open(pid)
        self.control = control

    def kill(self) -> None:
        signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)

    def report_end(self) -> None:
        os.close(self.pidfd)
        _pid, status = os.waitpid(self.pid, 0)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # the host closed it
            self.control.send(b"%d" % status)
        self.control.close()


def _clone(server: socket.socket, line: socket.socket) -> _Child:
    """Clone one more child, and pass both of its sockets to the host."""
    data, its_data = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    control, our_control = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in (data, control):
        end.setblocking(False)  # for the host, which has a deadline
    _send(line, b"cast", its_data.fileno())
    child = _Child(int(line.recv(_ORDER_BYTES)), our_control)
    _send(server, b"%d" % child.number, control.fileno(), data.fileno())
    for end in (data, its_data, control):
        end.close()
    return child


def _send(to: socket.socket, word: bytes, *descriptors: int) -> None:
    rights = array.array("i", descriptors)
    to.sendmsg([word], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])


def _mapped_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[0]) * resource.getpagesize()
