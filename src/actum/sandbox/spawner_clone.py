"""Spawners as clones of one process (`spawner_source`): the side of the host.

A `SpawnerSource` belongs to the process that starts work items; each item holds a copy of its
socket and has its own spawner cloned. Where that fails, a spawner is started as any other is.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

from actum.sandbox.packets import pass_packet, receive
from actum.sandbox.snippet_interpreter import HASH_SEED

if TYPE_CHECKING:
    from collections.abc import Sequence

_SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
_BOOT = (
    "import sys; sys.path.insert(0, sys.argv[1]); from actum.sandbox.spawner_source import main; "
    "main(int(sys.argv[2]))"
)
#: As -I, which would ignore PYTHONHASHSEED as well; the environment holds nothing else.
ALONE = ("-P", "-s", "-S")


class SpawnerSource:
    """The process that spawners are cloned from. Started when this is made."""

    def __init__(self) -> None:
        self.line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                self._process = subprocess.Popen(
                    [
                        *(os.path.realpath(sys.executable), *ALONE, "-c", _BOOT),
                        *(_SOURCE, str(theirs.fileno())),
                    ],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                    env={"PYTHONHASHSEED": HASH_SEED},
                    cwd="/",
                    start_new_session=True,
                )
            except BaseException:
                self.line.close()
                raise

    def close(self) -> None:
        """End it; spawners that were cloned from it go on. If this process is killed instead, it
        ends with the last item, because then nobody holds the other end."""
        self.line.close()
        self._process.kill()
        self._process.wait()


class Clone:
    """A spawner that is no child of this process. Its methods are those of `subprocess.Popen`."""

    def __init__(self, pidfd: int, errors: int) -> None:
        self.pidfd = pidfd  #: the caller closes it
        self.stderr = os.fdopen(errors, "rb")

    def communicate(self) -> tuple[None, bytes]:
        """Wait for its end; what it has written to stderr."""
        text = self.stderr.read()
        self.wait()
        return None, text

    def wait(self) -> None:
        ended = select.poll()
        ended.register(self.pidfd, select.POLLIN)
        ended.poll()


def cloned(line: socket.socket, arguments: Sequence[int]) -> Clone | None:
    """A spawner in the namespaces of this process, which requires that it has its own; ``None`` if
    the source does not answer."""
    # An ordinary user's mount namespace belongs to a user namespace, which is entered first.
    names = ("mnt",) if os.geteuid() == 0 else ("user", "mnt")
    with contextlib.ExitStack() as passed:
        answers, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        passed.callback(answers.close)
        passed.callback(theirs.close)
        errors, write = os.pipe2(os.O_CLOEXEC)
        passed.callback(os.close, write)
        namespaces = []
        for name in names:
            namespaces.append(os.open(f"/proc/self/ns/{name}", os.O_RDONLY | os.O_CLOEXEC))
            passed.callback(os.close, namespaces[-1])
        pidfd = -1
        with contextlib.suppress(OSError):  # it has died
            pass_packet(line, b"clone", [theirs.fileno(), write, *arguments, *namespaces])
            theirs.close()
            _packet, descriptors = receive(answers)
            pidfd = descriptors[0] if descriptors else -1
        if pidfd < 0:
            os.close(errors)
            return None
        return Clone(pidfd, errors)
