"""System calls that Python 3.11 does not wrap. Thin, typed, without policy.

The spawner imports it too and runs with `python -S`, so it uses only the standard library.
Numbers are those of x86-64. `ARCHITECTURE_SUPPORTED` says whether they apply on this host; the
local runner refuses to start where they do not.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import signal
import struct
from itertools import repeat

TYPE_CHECKING = False  # importing typing costs the spawner more than this whole module
if TYPE_CHECKING:
    from typing import Any

ARCHITECTURE_SUPPORTED = os.uname().machine == "x86_64"

_libc = ctypes.CDLL(None, use_errno=True)
_libc.syscall.restype = ctypes.c_long
_silent = ctypes.CDLL(None)  # saves no errno, which is cheaper; for calls made by the thousand
_locked = ctypes.PyDLL(None, use_errno=True)
_locked.syscall.restype = ctypes.c_long

# System call numbers, x86-64.
SYS_CAPGET = 125
SYS_CAPSET = 126
SYS_PIVOT_ROOT = 155
SYS_NEWFSTATAT = 262
SYS_SECCOMP = 317
SYS_OPEN_TREE = 428
SYS_MOVE_MOUNT = 429
SYS_CLONE3 = 435
SYS_CLOSE_RANGE = 436
SYS_OPENAT2 = 437
SYS_MOUNT_SETATTR = 442
SYS_LANDLOCK_CREATE_RULESET = 444
SYS_LANDLOCK_RESTRICT_SELF = 446

AT_FDCWD = -100
AT_SYMLINK_NOFOLLOW = 0x100
AT_EMPTY_PATH = 0x1000
AT_RECURSIVE = 0x8000
STATX_INO, STATX_SIZE = 0x100, 0x200

CLONE_NEWNS = 0x00020000
CLONE_NEWCGROUP = 0x02000000
CLONE_NEWUTS = 0x04000000
CLONE_NEWIPC = 0x08000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWPID = 0x20000000
CLONE_NEWNET = 0x40000000

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE, MS_SLAVE = 32, 4096, 16384, 1 << 18, 1 << 19
MNT_DETACH = 2

OPEN_TREE_CLONE = 1
OPEN_TREE_CLOEXEC = os.O_CLOEXEC
MOVE_MOUNT_F_EMPTY_PATH = 4

MOUNT_ATTR_RDONLY = 0x1
MOUNT_ATTR_NOSUID = 0x2
MOUNT_ATTR_NODEV = 0x4
MOUNT_ATTR_IDMAP = 0x100000

RESOLVE_NO_XDEV = 0x01
RESOLVE_NO_MAGICLINKS = 0x02
RESOLVE_NO_SYMLINKS = 0x04
RESOLVE_BENEATH = 0x08

PR_SET_PDEATHSIG = 1
PR_SET_DUMPABLE = 4
PR_SET_NO_NEW_PRIVS = 38
PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE = 47, 2

CLONE_PIDFD = 0x00001000
CLONE_PARENT = 0x00008000
CLONE_INTO_CGROUP = 0x2_0000_0000
SYS_CLONE = 56

SYS_REQUEST_KEY = 249
SYS_KEYCTL = 250
KEYCTL_READ = 11


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def syscall(number: int, what: str, *arguments: Any) -> int:
    """Raw system call; raises OSError naming `what`."""
    return _checked(_libc.syscall(ctypes.c_long(number), *arguments), what)


def openat2(directory: int, path: str | bytes, flags: int, resolve: int, mode: int = 0) -> int:
    """Open with path resolution restricted by the kernel, so that no component can be swapped."""
    how = struct.pack("QQQ", flags | os.O_CLOEXEC, mode, resolve)
    return syscall(
        SYS_OPENAT2,
        "openat2",
        directory,
        os.fsencode(path),
        how,
        ctypes.c_size_t(len(how)),
    )


def open_beneath(directory: int, path: str | bytes, flags: int) -> int:
    """Open `path` below `directory`; refuses every symlink, `..` and magic link in it."""
    resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS
    return openat2(directory, path, flags, resolve)


def open_within(directory: int, path: str | bytes, flags: int) -> int:
    """As `open_beneath`, and across no mount: EXDEV where there is one."""
    resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV
    return openat2(directory, path, flags, resolve)


def mount_points() -> list[str]:
    """The mount points that this process sees, hidden mounts included."""
    with open("/proc/self/mountinfo", "rb") as file:
        fields = [line.split(b" ", 5)[4] for line in file]
    # The kernel writes space, tab, newline and backslash as three octal digits.
    return [os.fsdecode(field.decode("unicode_escape").encode("latin-1")) for field in fields]


def open_exact(path: str, flags: int) -> int:
    """Open an absolute path that must already be free of symlinks."""
    return openat2(AT_FDCWD, path, flags, RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS)


STAT_WORDS = 18  #: size of `struct stat` in 64-bit words


class Stats:
    """A buffer for the `struct stat` of many names: one system call each, and no object for any."""

    def __init__(self) -> None:
        self._make_room(128)

    def look(self, directory: int, names: list[bytes]) -> memoryview | None:
        """The `struct stat` of every name in order, without following links; ``None`` if one fails.

        The returned buffer is valid until the next call.
        """
        if len(names) > len(self._places):
            self._make_room(2 * len(names))
        failed = map(
            _silent.syscall,
            repeat(SYS_NEWFSTATAT),
            repeat(directory),
            names,
            self._places,
            repeat(AT_SYMLINK_NOFOLLOW),
        )
        return None if any(failed) else self._words[: len(names) * STAT_WORDS]

    def _make_room(self, count: int) -> None:
        size = STAT_WORDS * 8
        room = ctypes.create_string_buffer(count * size)
        self._places: list[Any] = [ctypes.byref(room, number * size) for number in range(count)]
        self._words = memoryview(room).cast("B").cast("Q")


class NamedFile:
    """Tells which file a name refers to. For one thread at a time that asks often.

    `os.stat` asks for the times too. From Linux 6.13 on, a reader of the times always sees the
    next change: even a write in the same clock tick alters them. To sync that write, an ext4
    without a journal of its own then writes the inode first, and waits for it.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        room = ctypes.create_string_buffer(256)  # struct statx
        name, wanted = os.fsencode(path), STATX_INO | STATX_SIZE
        self._question = (AT_FDCWD, name, AT_SYMLINK_NOFOLLOW, wanted, ctypes.byref(room))
        self._words = memoryview(room).cast("B").cast("Q")
        self._statx = ctypes.PyDLL(None).statx

    def look(self) -> tuple[int, int, int]:
        """As `place`, without following links."""
        if self._statx(*self._question):
            return place(os.stat(self._path, follow_symlinks=False))  # raises with the reason
        words = self._words
        return words[17], words[4], words[5]


def place(status: os.stat_result) -> tuple[int, int, int]:
    """A file's device, inode number and length."""
    device = os.major(status.st_dev) | os.minor(status.st_dev) << 32
    return device, status.st_ino, status.st_size


def clone_tree(descriptor: int, *, recursive: bool = True) -> int:
    """A detached copy of the mounts at an O_PATH descriptor."""
    flags = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH
    if recursive:
        flags |= AT_RECURSIVE
    return syscall(SYS_OPEN_TREE, "open_tree", descriptor, b"", flags)


def mount_setattr(
    descriptor: int, set_: int, *, clear: int = 0, userns: int = 0, recursive: bool = True
) -> None:
    attributes = struct.pack("QQQQ", set_, clear, 0, userns)
    flags = AT_EMPTY_PATH | (AT_RECURSIVE if recursive else 0)
    syscall(
        SYS_MOUNT_SETATTR,
        "mount_setattr",
        descriptor,
        b"",
        flags,
        attributes,
        ctypes.c_size_t(len(attributes)),
    )


def move_mount(tree: int, target: str) -> None:
    """Attach a detached tree at `target`."""
    syscall(
        SYS_MOVE_MOUNT,
        f"move_mount {target}",
        tree,
        b"",
        AT_FDCWD,
        os.fsencode(target),
        MOVE_MOUNT_F_EMPTY_PATH,
    )


def mount(source: str, target: str, kind: str, flags: int, data: str = "") -> None:
    _checked(
        _libc.mount(
            os.fsencode(source),
            os.fsencode(target),
            kind.encode() or None,
            ctypes.c_ulong(flags),
            data.encode() or None,
        ),
        f"mount {kind or source} on {target}",
    )


def umount_detach(target: str) -> None:
    _checked(_libc.umount2(os.fsencode(target), MNT_DETACH), f"umount {target}")


def syncfs(descriptor: int) -> None:
    """Write everything on the file system of a descriptor to its disk."""
    _checked(_libc.syncfs(descriptor), "syncfs")


def file_system_type(descriptor: int) -> int:
    """The magic number of the file system of a descriptor (statfs(2))."""
    found = ctypes.create_string_buffer(256)
    _checked(_libc.fstatfs(descriptor, found), "fstatfs")
    return int(struct.unpack_from("q", found)[0])


def pivot_root(new_root: str, put_old: str) -> None:
    syscall(SYS_PIVOT_ROOT, "pivot_root", os.fsencode(new_root), os.fsencode(put_old))


def clone_process(flags: int) -> tuple[int, int]:
    """Fork into new namespaces. Returns (pid, pidfd) in the parent, (0, -1) in the child.

    Only for a single-threaded process: Python's fork hooks do not run.
    """
    # PyDLL holds the interpreter lock across the call, so that the child owns it as well.
    pidfd = ctypes.c_int(-1)
    ctypes.set_errno(0)
    result = _locked.syscall(
        ctypes.c_long(SYS_CLONE),
        ctypes.c_ulong(flags | CLONE_PIDFD | signal.SIGCHLD),
        None,
        ctypes.byref(pidfd),
        None,
        None,
    )
    return _checked(result, "clone"), pidfd.value


def close_from(first: int) -> None:
    """Close this descriptor and all above it."""
    last = ctypes.c_uint(0xFFFFFFFF)
    syscall(SYS_CLOSE_RANGE, "close_range", ctypes.c_uint(first), last, 0)


def close_on_exec_from(first: int) -> None:
    """Set close-on-exec on this descriptor and all above it."""
    last, mark = ctypes.c_uint(0xFFFFFFFF), 4
    syscall(SYS_CLOSE_RANGE, "close_range", ctypes.c_uint(first), last, mark)


def clone_sibling() -> int:
    """Fork a process whose parent is our parent. Returns its pid here, 0 in the new process.

    Only for a single-threaded process, as `clone_process`, and not for pid 1 of a namespace. Python
    does not know of it: see `before_raw_fork`.
    """
    ctypes.set_errno(0)
    result = _locked.syscall(
        ctypes.c_long(SYS_CLONE),
        ctypes.c_ulong(CLONE_PARENT | signal.SIGCHLD),
        None,
        None,
        None,
        None,
    )
    return _checked(result, "clone")


def clone_into_cgroup(folder: int) -> int:
    """Fork a child into the cgroup (version 2) of an open folder. Returns 0 in the child.

    Only for a single-threaded process, as `clone_process`.
    """
    # struct clone_args: flags, pidfd, child_tid, parent_tid, exit_signal, stack, stack_size, tls,
    # set_tid, set_tid_size, cgroup.
    arguments = struct.pack("11Q", CLONE_INTO_CGROUP, 0, 0, 0, signal.SIGCHLD, *[0] * 5, folder)
    ctypes.set_errno(0)
    result = _locked.syscall(ctypes.c_long(SYS_CLONE3), arguments, ctypes.c_size_t(len(arguments)))
    return _checked(result, "clone3 into the cgroup")


def unshare(flags: int) -> None:
    _checked(_libc.unshare(flags), "unshare")


def setns(descriptor: int, kind: int) -> None:
    _checked(_libc.setns(descriptor, kind), "setns")


def mapping_namespace(uid_map: str, gid_map: str) -> int:
    """A user namespace for idmapped mounts, with these maps; it lives as long as its descriptor."""
    ready_read, ready_write = os.pipe()
    hold_read, hold_write = os.pipe()
    helper = os.fork()
    if helper == 0:
        try:
            unshare(CLONE_NEWUSER)
            os.write(ready_write, bytes([0]))
            os.close(hold_write)
            os.read(hold_read, 1)
        except OSError as error:
            os.write(ready_write, bytes([error.errno or errno.EPERM]))
        finally:
            os._exit(0)  # always: the caller must not continue in two processes
    os.close(ready_write)
    os.close(hold_read)
    try:
        (number,) = os.read(ready_read, 1) or bytes([errno.ECHILD])
        if number:
            raise OSError(number, f"no user namespace can be made: {os.strerror(number)}")
        for name, lines in (("uid_map", uid_map), ("gid_map", gid_map)):
            with open(f"/proc/{helper}/{name}", "w") as file:
                file.write(lines)
        return os.open(f"/proc/{helper}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    finally:
        os.close(hold_write)
        os.close(ready_read)
        with contextlib.suppress(ChildProcessError):  # where SIGCHLD is ignored, the kernel reaps
            os.waitpid(helper, 0)


def sethostname(name: str) -> None:
    _checked(_libc.sethostname(name.encode(), len(name)), "sethostname")


def prctl(option: int, argument: int) -> None:
    _checked(_libc.prctl(option, ctypes.c_ulong(argument), 0, 0, 0), f"prctl {option}")


_CAPABILITY_VERSION_3 = 0x20080522


def drop_capabilities() -> None:
    """Drop all of the calling thread: effective, permitted, inheritable, and so ambient."""
    syscall(SYS_CAPSET, "capset", struct.pack("Ii", _CAPABILITY_VERSION_3, 0), bytes(24))


def keep_capabilities() -> None:
    """Pass this thread's capabilities on to every program it executes."""
    header = struct.pack("Ii", _CAPABILITY_VERSION_3, 0)
    sets = ctypes.create_string_buffer(24)
    syscall(SYS_CAPGET, "capget", header, sets)
    # Twice (effective, permitted, inheritable): the low halves, then the high ones.
    low_effective, low, _, high_effective, high, _ = struct.unpack("6I", sets.raw)
    kept = struct.pack("6I", low_effective, low, low, high_effective, high, high)
    syscall(SYS_CAPSET, "capset", header, kept)
    for number in range(64):
        if (high << 32 | low) >> number & 1:
            _checked(
                _libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_RAISE, ctypes.c_ulong(number), 0, 0),
                f"prctl: capability {number}",
            )


def write_own_memory(address: int, content: bytes) -> None:
    ctypes.memmove(address, content, len(content))


def before_raw_fork() -> None:
    """Run what Python runs before its own fork. Then `after_raw_fork` in the child, and
    `after_raw_fork_in_parent`, also if the fork fails: modules take locks before it."""
    ctypes.pythonapi.PyOS_BeforeFork()


def after_raw_fork_in_parent() -> None:
    ctypes.pythonapi.PyOS_AfterFork_Parent()


def after_raw_fork() -> None:
    """Run what Python runs in the child of its own fork."""
    ctypes.pythonapi.PyOS_AfterFork_Child()


def landlock_abi() -> int:
    """The Landlock ABI of this kernel; 0 where there is none."""
    try:
        return syscall(
            SYS_LANDLOCK_CREATE_RULESET, "landlock", None, ctypes.c_size_t(0), ctypes.c_uint32(1)
        )
    except OSError as error:
        if error.errno in (errno.ENOSYS, errno.EOPNOTSUPP):
            return 0
        raise


def read_user_key(description: str, most_bytes: int) -> bytes:
    """The payload of the `user` key of that name in the keyrings of this process."""
    key = syscall(SYS_REQUEST_KEY, "request_key", b"user", description.encode(), None, 0)
    buffer = ctypes.create_string_buffer(most_bytes)
    size = syscall(SYS_KEYCTL, "keyctl", KEYCTL_READ, key, buffer, ctypes.c_size_t(most_bytes))
    return buffer.raw[: min(size, most_bytes)]
