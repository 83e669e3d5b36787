"""The system call filter, compiled to BPF once per spawner.

A call is allowed if `system_calls.ALLOWED` names it, and for some calls if its arguments pass.
Every other number, known or not, is refused. There are four ways to refuse:

* *missing*: the default. The init gets a user notification, records the call and answers ENOSYS.
  Programs fall back on ENOSYS, as on an older kernel; on EPERM many give up;
* *forbidden*: the init records the call and answers EPERM. For calls that every kernel has;
* *violation*: the init kills the tree, because the call has no legitimate use here;
* *quiet*: an errno without a record. C libraries try these calls in nearly every process.

A new thread notifies the init as well, which raises the limit of the pids cgroup (`jail/tasks.c`).
The pids cgroup limits new processes; where forks are forbidden they are refused and reported.

AF_UNIX sockets are refused except socketpair(): a socket file of the host in a granted directory
would otherwise be an escape that no network namespace closes. A pair of datagram sockets is refused
too, because either end can still send, or be connected, to any address.

Proved by `tests/security/kernel` and `tests/integration/test_ordinary_programs.py`.
"""

from __future__ import annotations

import ctypes
import errno
import struct

from actum import kernel
from actum.sandbox.system_calls import ALLOWED, NUMBERS

ALLOW = 0x7FFF0000
NOTIFY = 0x7FC00000
KILL_PROCESS = 0x80000000


def errno_of(number: int) -> int:
    return 0x00050000 | number


_AUDIT_ARCH_X86_64 = 0xC000003E

#: clone3 and openat2 pass the arguments to be judged by pointer, which a filter cannot read.
#: Libraries for linear algebra try the others whenever they allocate.
QUIET = ("clone3", "openat2", "get_mempolicy", "set_mempolicy", "mbind")

#: With ENOSYS, programs would conclude that the kernel lacks the call. `unshare` of a namespace is
#: a violation, as a `clone` into one; the init reads the flags.
FORBIDDEN = ("ptrace", "unshare")

VIOLATION = (
    *("pivot_root", "mount", "umount2", "swapon", "swapoff", "reboot", "iopl", "ioperm"),
    *("create_module", "init_module", "delete_module", "finit_module"),
    *("kexec_load", "kexec_file_load", "open_by_handle_at", "setns", "bpf"),
    *("open_tree", "open_tree_attr", "move_mount", "mount_setattr"),
    *("fsopen", "fsconfig", "fsmount", "fspick"),
    *("add_key", "keyctl", "request_key", "userfaultfd"),
)

FORKS = ("clone", "fork", "vfork")
CLONE_THREAD = 0x00010000
#: NEWTIME, NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET
CLONE_NEW_ANY = 0x7E020080

#: Allowed calls whose refused arguments notify the init; it answers EPERM.
ARGUMENTS_FORBIDDEN = ("clone", "socket", "socketpair")

_AF_UNIX, _AF_INET, _AF_INET6, _AF_NETLINK = 1, 2, 10, 16
_NETLINK_ROUTE = 0
_SOCK_STREAM, _SOCK_DGRAM, _SOCK_SEQPACKET = 1, 2, 5
_SOCK_TYPE_MASK = 0xF
_IP_PROTOCOLS = (0, 6, 17)  # the default of the type, TCP, UDP
#: PER_LINUX, PER_LINUX32, UNAME26, both, and the query of the current one.
_PERSONALITIES = (0, 0x8, 0x20000, 0x20008, 0xFFFFFFFF)
#: A lease makes every open of the file on the host wait for the tool, up to 45 seconds each.
_F_SETLEASE = 1_024
_RLIMIT_CORE = 4
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C

#: Calls that set the mode of a file, by the argument that holds it. A set-uid file that a tool
#: leaves in a granted directory belongs to the caller on the host, root included.
_SET_MODE = {"chmod": 1, "fchmod": 1, "fchmodat": 2, "fchmodat2": 2, "creat": 1, "mknod": 1}
_SET_MODE["mknodat"] = 2
_SET_ID_BITS = 0o6000
_CREATES = 0o100 | 0o20000000  # O_CREAT, O_TMPFILE: only these use the mode argument
#: Huge pages come from a pool of the host that the memory cgroup does not charge.
_HUGE = {"mmap": (3, 0x40000), "memfd_create": (1, 0x4), "shmget": (2, 0o4000)}

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
        (JSET, 0, 1, CLONE_NEW_ANY | CLONE_THREAD),
        (RETURN, 0, 0, NOTIFY),
        (RETURN, 0, 0, fork),
    ]


def one_of(index: int, values: tuple[int, ...], inside: int, outside: int) -> list[Instruction]:
    code = [argument(index)]
    for position, value in enumerate(values):
        code.append((JEQ, len(values) - position, 0, value))
    return [*code, (RETURN, 0, 0, outside), (RETURN, 0, 0, inside)]


def _without(index: int, bits: int) -> list[Instruction]:
    """Allow any value of an argument without `bits`."""
    return [
        argument(index),
        (JSET, 0, 1, bits),
        (RETURN, 0, 0, errno_of(errno.EPERM)),
        (RETURN, 0, 0, ALLOW),
    ]


def _open(flags: int) -> list[Instruction]:
    """open and openat: no set-id bits in the mode that follows `flags`, where it is used."""
    return [
        argument(flags),
        (JSET, 1, 0, _CREATES),
        (RETURN, 0, 0, ALLOW),
        *_without(flags + 1, _SET_ID_BITS),
    ]


def _socket() -> list[Instruction]:
    return [
        argument(0),
        (JEQ, 0, 1, _AF_UNIX),  # quiet: libc tries its name cache (nscd) on every look-up
        (RETURN, 0, 0, errno_of(errno.EACCES)),
        (JEQ, 0, 4, _AF_NETLINK),
        argument(2),
        (JEQ, 1, 0, _NETLINK_ROUTE),
        (RETURN, 0, 0, NOTIFY),
        (RETURN, 0, 0, ALLOW),
        (JEQ, 2, 0, _AF_INET),
        (JEQ, 1, 0, _AF_INET6),
        (RETURN, 0, 0, NOTIFY),
        argument(1),
        (AND, 0, 0, _SOCK_TYPE_MASK),
        (JEQ, 2, 0, _SOCK_STREAM),
        (JEQ, 1, 0, _SOCK_DGRAM),
        (RETURN, 0, 0, NOTIFY),
        # Quiet: the runtime of Go tries multipath TCP first, and accepts this error.
        *one_of(2, _IP_PROTOCOLS, ALLOW, errno_of(errno.EPROTONOSUPPORT)),
    ]


def _socketpair() -> list[Instruction]:
    return [
        argument(0),
        (JEQ, 1, 0, _AF_UNIX),
        (RETURN, 0, 0, NOTIFY),
        argument(1),
        (AND, 0, 0, _SOCK_TYPE_MASK),
        (JEQ, 2, 0, _SOCK_STREAM),
        (JEQ, 1, 0, _SOCK_SEQPACKET),
        (RETURN, 0, 0, errno_of(errno.EACCES)),
        (RETURN, 0, 0, ALLOW),
    ]


def _prlimit() -> list[Instruction]:
    """Not for another process: an ordinary user's init has the tool's uid, and a limit of no open
    files or no CPU time would end it. The limit of core files stays as the init set it; a program
    that sets it gets a success."""
    return [
        argument(0),
        (JEQ, 1, 0, 0),
        (RETURN, 0, 0, errno_of(errno.EPERM)),
        argument(1),
        (JEQ, 1, 0, _RLIMIT_CORE),
        (RETURN, 0, 0, ALLOW),
        argument(2),  # pointer to the new limit; NULL means that it is only read
        (JEQ, 0, 3, 0),
        (LOAD, 0, 0, 16 + 8 * 2 + 4),
        (JEQ, 0, 1, 0),
        (RETURN, 0, 0, ALLOW),
        (RETURN, 0, 0, errno_of(0)),
    ]


def _rules(fork: int) -> dict[str, list[Instruction]]:
    """The code for calls that are not refused by default, by name."""
    rules = {name: give(ALLOW) for name in ALLOWED}
    rules |= {name: give(errno_of(errno.ENOSYS)) for name in QUIET}
    rules["fork"] = rules["vfork"] = give(fork)
    rules["clone"] = _clone(fork)
    rules["socket"], rules["socketpair"] = _socket(), _socketpair()
    rules["fcntl"] = one_of(1, (_F_SETLEASE,), errno_of(errno.EPERM), ALLOW)
    rules["ioctl"] = one_of(1, (_TIOCSTI, _TIOCLINUX), errno_of(errno.EPERM), ALLOW)
    rules["personality"] = one_of(0, _PERSONALITIES, ALLOW, errno_of(errno.EPERM))
    rules |= {name: _without(index, _SET_ID_BITS) for name, index in _SET_MODE.items()}
    rules["open"], rules["openat"] = _open(1), _open(2)
    rules |= {name: _without(index, bits) for name, (index, bits) in _HUGE.items()}
    rules["prlimit64"] = _prlimit()
    rules["setrlimit"] = one_of(0, (_RLIMIT_CORE,), errno_of(0), ALLOW)
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
    return assemble({NUMBERS[name]: code for name, code in rules.items()}, otherwise=NOTIFY)


def described(*, allow_fork: bool) -> str:
    """A description of the filter, with the digest of its program."""
    import hashlib  # not needed by a spawner

    digest = hashlib.sha256(compile_filter(allow_fork=allow_fork)).hexdigest()
    return f"seccomp: allow-list of {len(ALLOWED)} calls, filter sha256 {digest}"


def assemble(rules: dict[int, list[Instruction]], *, otherwise: int) -> bytes:
    """A program that applies `rules` by system call number; all other numbers get `otherwise`."""
    ranges: list[tuple[int, list[Instruction]]] = []
    for number in range(max(rules) + 2):
        code = rules.get(number) or give(otherwise)
        if not ranges or ranges[-1][1] != code:
            ranges.append((number, code))
    program: list[Instruction] = [
        (LOAD, 0, 0, 4),
        (JEQ, 1, 0, _AUDIT_ARCH_X86_64),
        (RETURN, 0, 0, KILL_PROCESS),  # int 0x80: another table of numbers, no legitimate use
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
