"""The process that spawners of work items are cloned from.

The sandboxes of a work item show the item's mounts, so each item has a spawner in its own mount
namespace. All spawners import the same files; this process imports them once. It is started like a
spawner, and holds no key, no secret and no database. It receives descriptors and never a request,
and enters no namespace itself: a clone enters those of its item and then starts as every spawner
does.
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import socket
import sys

from actum import kernel
from actum.sandbox import spawner
from actum.sandbox.packets import DescriptorsLost, pass_packet, receive

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn


def main(descriptor: int) -> None:
    """Clone a spawner for each packet, until every holder of the other end has closed it."""
    line = socket.socket(fileno=descriptor)
    os.set_inheritable(descriptor, False)
    os.environ.clear()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the host handles Ctrl-C
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps; an item waits by a pidfd
    filters = spawner.compiled_filters()
    gc.collect()
    gc.freeze()
    while True:
        try:
            packet, descriptors = receive(line)
        except DescriptorsLost:
            continue  # the item sees that nobody answers, and starts a spawner itself
        if not packet:
            return
        _clone(line, descriptors, filters)


def _clone(line: socket.socket, descriptors: list[int], filters: dict[bool, bytes]) -> None:
    answers, *given = descriptors
    try:
        kernel.before_raw_fork()
        try:
            pid, pidfd = kernel.clone_process(0)
            if pid == 0:
                _become_spawner([line.fileno(), answers], given, filters)
        finally:
            kernel.after_raw_fork_in_parent()  # a clone never gets here: it exits
    except OSError:
        pass  # too many processes: nobody answers
    else:
        _answer(answers, pidfd)
        os.close(pidfd)
    for descriptor in descriptors:
        os.close(descriptor)


def _answer(answers: int, pidfd: int) -> None:
    # If the item has died, its spawner ends with its socket.
    with contextlib.suppress(OSError), socket.socket(fileno=os.dup(answers)) as channel:
        pass_packet(channel, b"cloned", [pidfd])


def _become_spawner(closed: list[int], given: list[int], filters: dict[bool, bytes]) -> NoReturn:
    """`given` are stderr, the arguments of a spawner, and the namespaces of its item."""
    try:
        kernel.after_raw_fork()
        for descriptor in closed:
            os.close(descriptor)
        os.setsid()
        errors, server, opener, program, *namespaces = given
        os.dup2(errors, 2)
        os.close(errors)
        for namespace in namespaces:
            kernel.setns(namespace, 0)
            os.close(namespace)
        spawner.main(server, opener, program, filters)
    except BaseException:  # noqa: BLE001 -- the last handler of this process
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(1)
