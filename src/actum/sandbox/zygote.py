"""Clones the members whose tool's process is an interpreter forked from this process.

A fork of the spawner before the spawner executed `jail/serve.c`: Python, single-threaded, without a
key, a secret or a database. It never receives a request. The spawner sends the parts of a member
and the arguments of its init; a pidfd goes back, or an errno.
"""

from __future__ import annotations

import gc
import os

from actum import kernel
from actum.sandbox import snippet_interpreter, wire
from actum.sandbox.packets import pass_packet, receive
from actum.sandbox.snippet_fork import Kit, fork_ahead

TYPE_CHECKING = False
if TYPE_CHECKING:
    import socket
    from typing import NoReturn

    from actum.sandbox.snippet_fork import Template

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
        """Serve until the spawner closes the socket."""
        while True:
            packet, descriptors = receive(self._spawner)
            if not packet:
                os._exit(0)
            if packet == wire.LEARN:
                self._learn()
            else:
                self._clone(packet[1:].decode().split("\0")[:-1], descriptors)

    def _learn(self) -> None:
        """Import the snippet program, in the mount namespace that has the host's files."""
        home = os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
        kernel.setns(self._view, kernel.CLONE_NEWNS)
        snippet_interpreter.learn()
        gc.collect()
        gc.freeze()
        kernel.setns(home, kernel.CLONE_NEWNS)
        os.close(home)

    def _clone(self, words: list[str], descriptors: list[int]) -> None:
        numbers = iter(descriptors)
        here = [str(next(numbers)) if word == wire.SENT_ALONG else word for word in words]
        kit = Kit(here, self._own)
        # Before the clone: every page that the new process writes is copied.
        inherited = [*descriptors, self._own]
        for descriptor in inherited:
            os.set_inheritable(descriptor, True)
        try:
            pid, pidfd = kernel.clone_process(NAMESPACES)
        except OSError as error:
            # Too many processes or namespaces: the existing ones go on.
            pass_packet(self._spawner, wire.MAKE + str(error.errno).encode(), [])
        else:
            if pid == 0:
                self._become_init(kit, inherited)
            try:
                pass_packet(self._spawner, wire.MAKE, [pidfd])
            except OSError as error:
                # The member ends when the spawner closes its sockets.
                pass_packet(self._spawner, wire.MAKE + str(error.errno).encode(), [])
            os.close(pidfd)
        for descriptor in descriptors:
            os.close(descriptor)

    def _become_init(self, kit: Kit, inherited: list[int]) -> NoReturn:
        try:
            _close_all_but([*inherited, self._template.jail])
            ahead = fork_ahead(self._template, kit)
            os.execve(self._template.jail, ["jail", *kit.words, *ahead], {})  # noqa: S606
        finally:
            os._exit(1)  # on any error: there must be only one zygote


def _close_all_but(kept: list[int]) -> None:
    lowest = 3
    for descriptor in sorted(kept):
        os.closerange(lowest, descriptor)
        lowest = descriptor + 1
    os.closerange(lowest, os.sysconf("SC_OPEN_MAX"))
