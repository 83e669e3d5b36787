"""The template process, from which every child is cloned, and which does nothing else.

A child starts as an exact copy of this memory, so this memory must hold no trace of earlier
children or of the zygote's other work. Each iteration of the loop below leaves it unchanged. So
everything that depends on addresses (`id`, the order of a set of objects) is the same in every
call, and no call can observe another.
"""

from __future__ import annotations

import array
import os
import resource
import signal
import socket
import sys

from actum import kernel
from actum.executors import child
from actum.executors.filter import DESCRIPTOR

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import CodeType
    from typing import NoReturn

    from actum.executors.filter import Filter

#: A backstop behind the host's own deadline, in seconds of CPU time.
_CPU_S = 660


def serve(line: int, program: Filter, address_space: int, visible: frozenset[str]) -> NoReturn:
    """Clone one child for each message on `line`; the message passes the child's descriptor."""
    try:
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        os.dup2(line, DESCRIPTOR, inheritable=False)
        kernel.close_from(DESCRIPTOR + 1)
        orders = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET, fileno=DESCRIPTOR)
        for limit, most in (
            (resource.RLIMIT_AS, address_space),
            (resource.RLIMIT_FSIZE, 0),
            (resource.RLIMIT_CORE, 0),
            (resource.RLIMIT_MEMLOCK, 0),
        ):
            resource.setrlimit(limit, (most, most))
        for name in set(sys.modules) - visible:
            del sys.modules[name]
        rehearsal = child.rehearsal()
        while (data := _order(orders)) >= 0:
            pid = kernel.clone_sibling()
            if pid == 0:
                _become_child(data, program, rehearsal)
            os.close(data)
            orders.send(b"%d" % pid)
    finally:
        os._exit(1)


def _order(orders: socket.socket) -> int:
    rights = array.array("i")
    packet, ancillary, _flags, _address = orders.recvmsg(
        8, socket.CMSG_SPACE(rights.itemsize), socket.MSG_CMSG_CLOEXEC
    )
    for _level, _kind, data in ancillary:
        rights.frombytes(data)
    return rights[0] if packet else -1


def _become_child(
    data: int, program: Filter, rehearsal: tuple[CodeType, CodeType, bytes]
) -> NoReturn:
    """The steps from the clone to the filter. After the last line only computing is allowed."""
    try:
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        os.dup2(data, DESCRIPTOR, inheritable=False)
        kernel.close_from(DESCRIPTOR + 1)
        for limit, most in (
            (resource.RLIMIT_CPU, _CPU_S),
            (resource.RLIMIT_NPROC, 0),
            (resource.RLIMIT_NOFILE, 0),
        ):
            resource.setrlimit(limit, (most, most))
        program.install()
        child.serve(rehearsal)
    finally:
        os._exit(1)
