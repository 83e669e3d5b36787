"""Starts a real command and sends a signal to one of its processes at a chosen moment.

The processes are found through /proc and signalled through pidfds. The calling process is their
subreaper meanwhile, so no descendant escapes: each one must end, whatever was struck.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import pty
import select
import signal
import subprocess
import termios
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
#: Upper bounds on an emulated machine whose host is busy. No test measures time with them.
_ENDS_WITHIN_S = 180.0
_UNHARMED_WITHIN_S = 600.0
#: How much longer than a look at the processes the pause after it is.
_PAUSE_PER_LOOK = 20


class Target(StrEnum):
    COMMAND = "command"
    CHILD = "child"
    BOTH = "both"
    SPAWNER = "spawner"
    GROUP = "group"  #: the process group of a replay script
    AGAIN = "again"  #: the `item again` of a replay script


class Signal(StrEnum):
    INT = "INT"
    TERM = "TERM"
    HUP = "HUP"
    KILL = "KILL"
    CLOSED = "closed"  #: the terminal is closed

    @property
    def number(self) -> signal.Signals:
        return signal.Signals[f"SIG{self.value}"]


#: Bytes in the command line of a process that make it the target.
_MARKS: Mapping[Target, bytes] = {
    Target.CHILD: b"actum.doors.work_item_process",
    Target.SPAWNER: b"actum.sandbox.spawner",
    Target.AGAIN: b"\0item\0again\0",
}


@dataclass(frozen=True)
class Blow:
    signal: Signal
    target: Target
    delay_s: float  #: after the target was first seen
    clock: Target | None = None  #: the delay starts when this one is first seen instead


@dataclass(frozen=True)
class Ended:
    exit_code: int | None  #: None: it had to be killed after the bound
    hit: bool  #: whether the signal was sent while the target was there
    said: str
    lives: Mapping[Target, float]  #: how long each target was seen, in seconds
    problems: tuple[str, ...]


@dataclass
class _Process:
    pid: int
    descriptor: int
    line: bytes = b""
    first_s: float = 0.0
    last_s: float = 0.0
    ended: bool = False


@dataclass
class _Family:
    """Every descendant of the command that was ever seen, with a pidfd each."""

    strangers: set[int]  #: processes that were there before, and their descendants
    top: int = 0
    seen: dict[int, _Process] = field(default_factory=dict)

    def look(self) -> None:
        """Take in new descendants and the command lines of those that live."""
        now = time.monotonic()
        for pid in _all_pids() - self.seen.keys() - self.strangers:
            parent = _parent_of(pid)
            if parent == os.getpid() or parent in self.seen:
                with contextlib.suppress(ProcessLookupError):
                    self.seen[pid] = _Process(pid, os.pidfd_open(pid), first_s=now)
            # Any other unknown parent may be a descendant that the next look will find.
            elif parent in self.strangers or parent == 0:
                self.strangers.add(pid)
        for process in self.seen.values():
            process.ended = process.ended or _is_over(process.descriptor)
            if not process.ended:
                # A process that is about to end has no command line any more.
                process.line = _line_of(process.pid) or process.line
                process.last_s = now

    def alive(self) -> list[_Process]:
        return [process for process in self.seen.values() if not process.ended]

    def find(self, target: Target) -> list[_Process]:
        """The live processes that a blow at `target` means; empty if one of them is missing."""
        command = [each for each in self.alive() if each.pid == self.top]
        if target in (Target.COMMAND, Target.GROUP):
            return command
        if target is Target.BOTH:
            child = self.find(Target.CHILD)
            return command + child if command and child else []
        return [each for each in self.alive() if _MARKS[target] in each.line]

    def lives(self) -> dict[Target, float]:
        found = {}
        for target in Target:
            if target in (Target.COMMAND, Target.GROUP):
                those = [each for each in self.seen.values() if each.pid == self.top]
            else:
                mark = _MARKS[Target.CHILD if target is Target.BOTH else target]
                those = [each for each in self.seen.values() if mark in each.line]
            if those:
                first = min(each.first_s for each in those)
                found[target] = max(each.last_s for each in those) - first
        return found

    def close(self) -> None:
        for process in self.seen.values():
            os.close(process.descriptor)


def run(
    command: Sequence[str | Path],
    folder: Path,
    blow: Blow | None,
    *,
    environment: Mapping[str, str],
) -> Ended:
    """Run a command to its end, struck or not, and wait until nothing of it lives."""
    on_terminal = blow is not None and blow.signal is Signal.CLOSED
    with _adopting(), _output(on_terminal) as output:
        family = _Family(_all_pids())
        process = subprocess.Popen(
            [os.fspath(word) for word in command],
            cwd=folder,
            env=dict(environment),
            stdin=output.stdin,
            stdout=output.stdout,
            stderr=output.stdout,
            start_new_session=True,
            preexec_fn=_on_terminal if on_terminal else _as_from_a_shell,
        )
        family.top = process.pid
        try:
            return _watched(process, family, blow, output)
        finally:
            _end_all(family)
            process.wait()
            family.close()


def _watched(
    process: subprocess.Popen[bytes], family: _Family, blow: Blow | None, output: _Output
) -> Ended:
    hit, due = False, None
    deadline = time.monotonic() + _UNHARMED_WITHIN_S
    while True:
        before_s = time.process_time()
        family.look()
        look_s = time.process_time() - before_s
        output.drain()
        now = time.monotonic()
        if not family.alive() or process.poll() is not None or now > deadline:
            break
        if blow is not None and not hit:
            targets = family.find(blow.target)
            if due is None and family.find(blow.clock or blow.target):
                due = now + blow.delay_s
            if targets and due is not None and now >= due:
                hit = _strike(blow, family, targets, output)
                deadline = now + _ENDS_WITHIN_S
        # On an emulated machine a look takes as long as a pause: the command needs the processor.
        least = 0.002 if blow is not None and not hit else 0.005
        pause = max(least, look_s * _PAUSE_PER_LOOK)
        if due is not None and not hit:
            pause = max(0.0, min(pause, due - now))
        time.sleep(pause)
    in_time = process.poll() is not None
    if not in_time:
        process.kill()
        process.wait()
    problems = [] if in_time else ["the command did not end"]
    problems += [f"survived the command: {each.line!r}" for each in _survivors(family)]
    return Ended(
        exit_code=process.returncode if in_time else None,
        hit=hit,
        said=output.text(),
        lives=family.lives(),
        problems=tuple(problems),
    )


def _strike(blow: Blow, family: _Family, targets: list[_Process], output: _Output) -> bool:
    if blow.signal is Signal.CLOSED:
        output.hang_up()
        return True
    if blow.target is Target.GROUP:
        # The leader is our child and was not waited for: its number is not used again.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(family.top, blow.signal.number)
            return True
        return False
    hit = False
    for process in targets:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(process.descriptor, blow.signal.number)
            hit = True
    return hit


def _survivors(family: _Family) -> list[_Process]:
    """What still lives when the bound is over. Orphans are waited for: they are our children."""
    deadline = time.monotonic() + _ENDS_WITHIN_S
    while True:
        family.look()
        for process in family.seen.values():
            if process.ended and process.pid != family.top:
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(process.pid, os.WNOHANG)
        if not family.alive() or time.monotonic() > deadline:
            return family.alive()
        time.sleep(0.005)


def _end_all(family: _Family) -> None:
    """After a failed trial, end what it left."""
    for process in family.alive():
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(process.descriptor, signal.SIGKILL)


class _Output:
    """Where the command speaks to: a file, or a terminal that can be closed."""

    def __init__(self, *, on_terminal: bool) -> None:
        self._said = b""
        self._reader = -1
        if on_terminal:
            self._reader, self.stdout = pty.openpty()
            os.set_blocking(self._reader, False)
            self.stdin = self.stdout
        else:
            self.stdin = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
            self.stdout = os.memfd_create("output")
        self._on_terminal = on_terminal

    def drain(self) -> None:
        if self._reader >= 0:
            with contextlib.suppress(BlockingIOError, OSError):
                self._said += os.read(self._reader, 65_536)

    def hang_up(self) -> None:
        # The last descriptors of this side: the kernel sends SIGHUP when the master is closed.
        os.close(self._reader)
        self._reader = -1

    def text(self) -> str:
        if not self._on_terminal:
            size = os.fstat(self.stdout).st_size
            self._said = os.pread(self.stdout, size, 0)
        return self._said.decode(errors="replace")

    def close(self) -> None:
        for descriptor in {self._reader, self.stdin, self.stdout} - {-1}:
            os.close(descriptor)


@contextlib.contextmanager
def _output(on_terminal: bool) -> Iterator[_Output]:
    output = _Output(on_terminal=on_terminal)
    try:
        yield output
    finally:
        output.close()


@contextlib.contextmanager
def _adopting() -> Iterator[None]:
    """Orphans become children of this process, not of a process outside of the test."""
    prctl = ctypes.CDLL(None).prctl
    assert prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    try:
        yield
    finally:
        prctl(_PR_SET_CHILD_SUBREAPER, 0, 0, 0, 0)


def _as_from_a_shell() -> None:
    """A test run in the background ignores SIGINT, and its children would inherit that."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _on_terminal() -> None:
    _as_from_a_shell()
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _all_pids() -> set[int]:
    return {int(name) for name in os.listdir("/proc") if name.isdecimal()}


def _parent_of(pid: int) -> int:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return int(file.read().rpartition(b")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return -1


def _line_of(pid: int) -> bytes:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def _is_over(descriptor: int) -> bool:
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))
