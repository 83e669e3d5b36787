"""Clones the members whose tool's process is to be an interpreter: a fork of this one.

A child of the spawner, and as it was before the spawner became a program of its own: Python, single
threaded, without a key, a secret or a database. It sees nothing of a request. What a member is made
of, and what its init must know, comes from the spawner; a pidfd goes back, or why there is none.
"""

from __future__ import annotations

import gc
import os

from actum import kernel
from actum.sandbox import interpreter, wire
from actum.sandbox.become import Kit, fork_ahead
from actum.sandbox.talk import pass_packet, receive

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from typing import NoReturn

    from actum.sandbox.become import Template

NAMESPACES = (
    kernel.CLONE_NEWPID
    | kernel.CLONE_NEWNS
    | kernel.CLONE_NEWNET
    | kernel.CLONE_NEWIPC
    | kernel.CLONE_NEWUTS
)


class Zygote:
    def __init__(self, spawner: socket.socket, view: int, template: Template) -> None:
        self._spawner = spawner
        self._view = view
        self._template = template
        self._own = os.pidfd_open(os.getpid())

    def serve(self) -> NoReturn:
        """Until the spawner hangs up."""
        while True:
            packet, descriptors = receive(self._spawner)
            if not packet:
                os._exit(0)
            if packet == wire.LEARN:
                self._learn()
            else:
                self._clone(packet[1:].decode().split("\0")[:-1], descriptors)

    def _learn(self) -> None:
        """Our own files are the host's, which only the opener sees all the time."""
        home = os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
        kernel.setns(self._view, kernel.CLONE_NEWNS)
        interpreter.learn()
        gc.collect()
        gc.freeze()
        kernel.setns(home, kernel.CLONE_NEWNS)
        os.close(home)

    def _clone(self, words: list[str], descriptors: list[int]) -> None:
        numbers = iter(descriptors)
        here = [str(next(numbers)) if word == wire.SENT_ALONG else word for word in words]
        kit = Kit(here, self._own)
        # Before the clone: each page that the new process writes has to be copied.
        inherited = [*descriptors, self._own]
        for descriptor in inherited:
            os.set_inheritable(descriptor, True)
        try:
            pid, pidfd = kernel.clone_process(NAMESPACES)
        except OSError as error:
            # Of processes or namespaces there are too many: no reason to end those that there are.
            pass_packet(self._spawner, wire.MAKE + str(error.errno).encode(), [])
        else:
            if pid == 0:
                self._become_init(kit, inherited)
            pass_packet(self._spawner, wire.MAKE, [pidfd])
            os.close(pidfd)
        for descriptor in descriptors:
            os.close(descriptor)

    def _become_init(self, kit: Kit, inherited: list[int]) -> NoReturn:
        try:
            _close_all_but([*inherited, self._template.jail])
            ahead = fork_ahead(self._template, kit)
            os.execve(self._template.jail, ["jail", *kit.words, *ahead], {})  # noqa: S606
        finally:
            os._exit(1)  # whatever happened: there is one zygote


def _close_all_but(kept: list[int]) -> None:
    lowest = 3
    for descriptor in sorted(kept):
        os.closerange(lowest, descriptor)
        lowest = descriptor + 1
    os.closerange(lowest, os.sysconf("SC_OPEN_MAX"))
