"""The system call filter, compiled to BPF once per spawner.

What Docker's default profile denies is denied, plus io_uring, userfaultfd, keyrings, new
namespaces and every socket family but IP and netlink. Three manners of saying no:

* *quiet*: an errno; common programs probe these and fall back (io_uring, clone3);
* *reported*: the init is asked (user notification) and answers EPERM, and the denial is recorded;
* *violation*: the init is asked and kills the tree, because the call has no innocent reading here.

Making a thread asks the init as well, which makes room for it in the pids cgroup (see `tasks`).
Making a process is the pids cgroup's affair, or is refused and reported where forks are forbidden.

AF_UNIX sockets are refused except socketpair(): a socket file of the host that lies in a granted
directory would otherwise be a way out that no network namespace closes. A pair of datagram sockets
is refused too, because either end can still be sent from, or connected, to any address.
"""

from __future__ import annotations

import ctypes
import errno
import struct

from actum import kernel

ALLOW = 0x7FFF0000
NOTIFY = 0x7FC00000
KILL_PROCESS = 0x80000000


def errno_of(number: int) -> int:
    return 0x00050000 | number


_AUDIT_ARCH_X86_64 = 0xC000003E

# System calls up to this number were looked at when the lists below were written.
_LAST_KNOWN = 462

QUIET = {
    "mbind": 237,
    "set_mempolicy": 238,
    "get_mempolicy": 239,
    "move_pages": 279,
    "perf_event_open": 298,
    "userfaultfd": 323,
    "io_uring_setup": 425,
    "io_uring_enter": 426,
    "io_uring_register": 427,
    "syslog": 103,
    "sysfs": 139,
    "ustat": 136,
    "uselib": 134,
    "vhangup": 153,
    "lookup_dcookie": 212,
    "settimeofday": 164,
    "clock_settime": 227,
    "clock_adjtime": 305,
    "fanotify_init": 300,
}

REPORTED = {
    "ptrace": 101,
    "process_vm_readv": 310,
    "process_vm_writev": 311,
    "kcmp": 312,
    "pidfd_getfd": 438,
    "add_key": 248,
    "request_key": 249,
    "keyctl": 250,
    "unshare": 272,
    "chroot": 161,
    "name_to_handle_at": 303,
    "quotactl": 179,
    "quotactl_fd": 443,
    "acct": 163,
}

VIOLATION = {
    "pivot_root": 155,
    "mount": 165,
    "umount2": 166,
    "swapon": 167,
    "swapoff": 168,
    "reboot": 169,
    "iopl": 172,
    "ioperm": 173,
    "create_module": 174,
    "init_module": 175,
    "delete_module": 176,
    "kexec_load": 246,
    "open_by_handle_at": 304,
    "setns": 308,
    "finit_module": 313,
    "kexec_file_load": 320,
    "bpf": 321,
    "open_tree": 428,
    "move_mount": 429,
    "fsopen": 430,
    "fsconfig": 431,
    "fsmount": 432,
    "fspick": 433,
    "mount_setattr": 442,
}

FORKS = {"clone": 56, "fork": 57, "vfork": 58}
CLONE_THREAD = 0x00010000

NAMES = {number: name for table in (REPORTED, VIOLATION, FORKS) for name, number in table.items()}
NAMES[41] = "socket"

_CLONE_NEW_ANY = 0x7E020000  # NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET
_SOCKET_FAMILIES = (2, 10, 16)  # AF_INET, AF_INET6, AF_NETLINK
_AF_UNIX = 1
_SOCK_DGRAM, _SOCK_RAW = 2, 3  # AF_UNIX takes raw for datagram
_SOCK_TYPE_MASK = 0xF
#: A lease makes whoever opens the file on the host wait for the tool, up to 45 seconds each time.
_F_SETLEASE = 1_024
_RLIMIT_CORE = 4
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C

#: Calls that set the mode of a file, by the argument that holds it. A set-uid file that a tool
#: leaves in a granted directory belongs to the caller on the host, root included.
_SET_MODE = {"chmod": (90, 1), "fchmod": (91, 1), "fchmodat": (268, 2), "fchmodat2": (452, 2)}
_SET_MODE |= {"creat": (85, 1), "mknod": (133, 1), "mknodat": (259, 2)}
_SET_ID_BITS = 0o6000
_CREATES = 0o100 | 0o20000000  # O_CREAT, O_TMPFILE: only with these is there a mode
#: Huge pages come from a pool of the host that the memory cgroup does not count.
_HUGE = {"mmap": (9, 3, 0x40000), "memfd_create": (319, 1, 0x4), "shmget": (29, 2, 0o4000)}

# Instructions, by (code, jump if true, jump if false, constant).
Instruction = tuple[int, int, int, int]
LOAD, JUMP, JEQ, JGE, JSET, RETURN, AND = 0x20, 0x05, 0x15, 0x35, 0x45, 0x06, 0x54


def give(action: int) -> list[Instruction]:
    return [(RETURN, 0, 0, action)]


def argument(index: int) -> Instruction:
    """Load the low half of a system call argument."""
    return (LOAD, 0, 0, 16 + 8 * index)


def _clone(fork: int) -> list[Instruction]:
    return [
        argument(0),
        (JSET, 0, 1, _CLONE_NEW_ANY),
        (RETURN, 0, 0, errno_of(errno.EPERM)),
        (JSET, 0, 1, CLONE_THREAD),
        (RETURN, 0, 0, NOTIFY),
        (RETURN, 0, 0, fork),
    ]


def one_of(index: int, values: tuple[int, ...], inside: int, outside: int) -> list[Instruction]:
    code = [argument(index)]
    for position, value in enumerate(values):
        code.append((JEQ, len(values) - position, 0, value))
    return [*code, (RETURN, 0, 0, outside), (RETURN, 0, 0, inside)]


def _without(index: int, bits: int) -> list[Instruction]:
    """Any value of an argument but one with any of `bits`."""
    return [
        argument(index),
        (JSET, 0, 1, bits),
        (RETURN, 0, 0, errno_of(errno.EPERM)),
        (RETURN, 0, 0, ALLOW),
    ]


def _open(flags: int) -> list[Instruction]:
    """open and openat: no set-id bits in the mode that follows `flags`, where it counts."""
    return [
        argument(flags),
        (JSET, 1, 0, _CREATES),
        (RETURN, 0, 0, ALLOW),
        *_without(flags + 1, _SET_ID_BITS),
    ]


def _socketpair() -> list[Instruction]:
    return [
        argument(1),
        (AND, 0, 0, _SOCK_TYPE_MASK),
        (JEQ, 2, 0, _SOCK_DGRAM),
        (JEQ, 1, 0, _SOCK_RAW),
        (RETURN, 0, 0, ALLOW),
        (RETURN, 0, 0, errno_of(errno.EACCES)),
    ]


def _prlimit() -> list[Instruction]:
    """Not of another process: an ordinary user's init has the tool's uid, and a limit of no open
    files or no time would be its end. The limit of core files stays as the init set it; programs
    that set it to 0 are told that they did."""
    return [
        argument(0),
        (JEQ, 1, 0, 0),
        (RETURN, 0, 0, errno_of(errno.EPERM)),
        argument(1),
        (JEQ, 1, 0, _RLIMIT_CORE),
        (RETURN, 0, 0, ALLOW),
        argument(2),  # where the new limit lies; nowhere means that it is only read
        (JEQ, 0, 3, 0),
        (LOAD, 0, 0, 16 + 8 * 2 + 4),
        (JEQ, 0, 1, 0),
        (RETURN, 0, 0, ALLOW),
        (RETURN, 0, 0, errno_of(0)),
    ]


def _rules(fork: int) -> dict[int, list[Instruction]]:
    rules = {number: give(errno_of(errno.EPERM)) for number in QUIET.values()}
    rules |= {number: give(NOTIFY) for number in (*REPORTED.values(), *VIOLATION.values())}
    rules[FORKS["fork"]] = rules[FORKS["vfork"]] = give(fork)
    rules[FORKS["clone"]] = _clone(fork)
    # clone3 passes its flags by pointer, where a filter cannot look; libc falls back to clone.
    rules[435] = give(errno_of(errno.ENOSYS))
    rules[41] = [
        argument(0),
        (JEQ, 0, 1, _AF_UNIX),  # quiet: libc asks its name cache this way on every look-up
        (RETURN, 0, 0, errno_of(errno.EACCES)),
        *one_of(0, _SOCKET_FAMILIES, ALLOW, NOTIFY),
    ]
    rules[53] = _socketpair()
    rules[72] = one_of(1, (_F_SETLEASE,), errno_of(errno.EPERM), ALLOW)
    rules[16] = one_of(1, (_TIOCSTI, _TIOCLINUX), errno_of(errno.EPERM), ALLOW)
    rules[135] = one_of(0, (0, 0xFFFFFFFF), ALLOW, errno_of(errno.EPERM))  # personality
    rules |= {number: _without(index, _SET_ID_BITS) for number, index in _SET_MODE.values()}
    rules[2], rules[257] = _open(1), _open(2)
    # openat2 takes its mode by pointer; programs fall back to openat.
    rules[437] = give(errno_of(errno.ENOSYS))
    rules |= {number: _without(index, bits) for number, index, bits in _HUGE.values()}
    rules[302] = _prlimit()
    rules[160] = one_of(0, (_RLIMIT_CORE,), errno_of(0), ALLOW)  # setrlimit
    return rules


def _tree(ranges: list[tuple[int, list[Instruction]]]) -> list[Instruction]:
    """Binary search over (first number, code): the kernel evaluates this for every system call
    when it builds its allow bitmap, and a linear list of this length costs 0.7 ms per load."""
    if len(ranges) == 1:
        return ranges[0][1]
    middle = len(ranges) // 2
    low, high = _tree(ranges[:middle]), _tree(ranges[middle:])
    pivot = ranges[middle][0]
    if len(low) <= 255:
        return [(JGE, len(low), 0, pivot), *low, *high]
    return [(JGE, 0, 1, pivot), (JUMP, 0, 0, len(low)), *low, *high]


def compile_filter(*, allow_fork: bool) -> bytes:
    rules = _rules(ALLOW if allow_fork else NOTIFY)
    return assemble(rules, otherwise=ALLOW, beyond=errno_of(errno.ENOSYS))


def assemble(rules: dict[int, list[Instruction]], *, otherwise: int, beyond: int) -> bytes:
    """A program that applies `rules` by system call number; `beyond` is for unknown numbers."""
    ranges: list[tuple[int, list[Instruction]]] = []
    previous_end = 0
    for number in sorted(rules):
        if number > previous_end:
            ranges.append((previous_end, give(otherwise)))
        ranges.append((number, rules[number]))
        previous_end = number + 1
    ranges.append((previous_end, give(otherwise)))
    ranges.append((_LAST_KNOWN + 1, give(beyond)))
    program: list[Instruction] = [
        (LOAD, 0, 0, 4),
        (JEQ, 1, 0, _AUDIT_ARCH_X86_64),
        (RETURN, 0, 0, KILL_PROCESS),  # int 0x80: another table of numbers, no innocent reading
        (LOAD, 0, 0, 0),
        *_tree(ranges),
    ]
    return b"".join(struct.pack("HBBI", *instruction) for instruction in program)


_SET_MODE_FILTER = 1
_NEW_LISTENER = 8
_WAIT_KILLABLE_RECV = 32


def install(program: bytes) -> int:
    """Put the calling thread under the filter; returns the descriptor the init listens on."""
    buffer = ctypes.create_string_buffer(program, len(program))
    fprog = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(buffer))
    for flags in (_NEW_LISTENER | _WAIT_KILLABLE_RECV, _NEW_LISTENER):
        try:
            return kernel.syscall(kernel.SYS_SECCOMP, "seccomp", _SET_MODE_FILTER, flags, fprog)
        except OSError as error:
            if error.errno != errno.EINVAL:  # WAIT_KILLABLE_RECV came with Linux 5.19
                raise
    raise OSError(errno.EINVAL, "seccomp: this kernel offers no user notification")
