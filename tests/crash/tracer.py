"""Kills the spawner while it makes members, a sandbox's init, or the process that becomes the tool,
at one chosen moment.

All are a program that knows nothing of tests, so they are struck from outside: a tracer follows the
spawner from its exec on, the first init that it clones and the process which that one forks, and
counts a moment before and after every system call of ours. From the tool's exec on it is no
business of ours.

Loaded into the spawner, as `injector`: nothing but the standard library's built-in parts.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import struct

_SEIZE, _INTERRUPT, _SYSCALL, _DETACH = 0x4206, 0x4207, 24, 17
_SYSGOOD, _FORK, _VFORK, _CLONE, _EXEC = 1, 2, 4, 8, 16
_EVENT_EXEC, _EVENT_STOP = 4, 128
_WALL = 0x4000_0000
_PDEATHSIG = 1
_SYSCALL_STOP = signal.SIGTRAP | 0x80
_CREDENTIALS = struct.Struct("3i")


def _ptrace(request: int, pid: int, data: int = 0) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.restype = ctypes.c_long
    if libc.ptrace(ctypes.c_long(request), pid, None, ctypes.c_void_p(data)) < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"ptrace {request}: {os.strerror(number)}")


class _Tracer:
    def __init__(self, maker: int, only: str, kill_at: int, tally: int) -> None:
        self.only, self.kill_at, self.tally = only, kill_at, tally
        self.roles = {maker: "maker"}
        self.seen = {"maker": 0, "init": 0, "tool": 0}
        self.is_ours = False  # from its first exec on
        self.known = {"maker"}
        self.is_started = False

    def role_of(self, pid: int) -> str:
        """By whom it was forked; only the first of each counts."""
        if pid not in self.roles:
            with open(f"/proc/{pid}/stat", "rb") as file:
                parent = int(file.read().rpartition(b")")[2].split()[1])
            role = {"maker": "init", "init": "tool"}.get(self.roles.get(parent, ""), "")
            self.roles[pid] = "" if role in self.known else role
            self.known.add(role)
        return self.roles[pid]

    def follow(self) -> None:
        while self.roles:
            pid, status = os.waitpid(-1, _WALL)
            if not os.WIFSTOPPED(status):
                self.roles.pop(pid, None)
                continue
            event, number = status >> 16, os.WSTOPSIG(status)
            try:
                role = self.role_of(pid)
                if not role or (event == _EVENT_EXEC and role == "tool"):
                    # The maker's moments end here as well: what it makes later is for others,
                    # who are to find all well.
                    self.is_started |= role == "tool"
                    del self.roles[pid]
                    _ptrace(_DETACH, pid)
                    continue
                self.is_ours |= event == _EVENT_EXEC
                if number == _SYSCALL_STOP and self.is_ours and self.strikes(role):
                    os.kill(pid, signal.SIGKILL)
                    continue
                delivered = 0 if event or number == _SYSCALL_STOP else number
                _ptrace(_SYSCALL, pid, delivered)
            except (ProcessLookupError, FileNotFoundError):
                continue  # it is dead, and the next look tells

    def strikes(self, role: str) -> bool:
        if role == "maker" and self.is_started:
            return False
        self.seen[role] += 1
        if self.kill_at == 0:
            os.pwrite(self.tally, struct.pack("III", *self.seen.values()), 4)
        return role == self.only and self.seen[role] == self.kill_at


def arm(only: str, kill_at: int, tally: str) -> None:
    """In the spawner: have it traced once it becomes the program that makes members."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    if os.fork() == 0:
        ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        # A copy of another end of the product's would hide a death from the host.
        os.closerange(3, ours.fileno())
        os.closerange(ours.fileno() + 1, os.sysconf("SC_OPEN_MAX"))
        try:
            _trace(ours, only, kill_at, tally)
        finally:
            os._exit(0)
    ours.close()
    execute = os.execve

    def announce(program: int, words: list[str], environment: dict[str, str]) -> None:
        # Not the opener, and not a clone of the zygote, which comes second.
        if words[0] == "actum.sandbox.spawner":
            with contextlib.suppress(OSError):
                theirs.send(b"1")
                theirs.recv(1)
        execute(program, words, environment)

    os.execve = announce  # type: ignore[assignment]


def _trace(channel: socket.socket, only: str, kill_at: int, tally: str) -> None:
    # The kernel tells who it is in our own count of processes.
    room = socket.CMSG_SPACE(_CREDENTIALS.size)
    _word, ancillary, _flags, _address = channel.recvmsg(1, room)
    maker, _uid, _gid = _CREDENTIALS.unpack(ancillary[0][2])
    _ptrace(_SEIZE, maker, _SYSGOOD | _FORK | _VFORK | _CLONE | _EXEC)
    _ptrace(_INTERRUPT, maker)
    os.waitpid(maker, _WALL)
    _ptrace(_SYSCALL, maker)
    channel.send(b"1")
    channel.close()
    _Tracer(maker, only, kill_at, os.open(tally, os.O_RDWR) if tally else -1).follow()
