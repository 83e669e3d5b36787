"""Pid 1 of a sandbox: builds the walls, starts the tool once, reaps, answers, reports.

The tool is never pid 1 and never reaches this process: it has another uid (or finds it not
dumpable), sees it hidden in /proc, and holds none of its descriptors. So a tool cannot forge how
it ended. Killing this process kills everything in the namespace; that is the host's last word.
"""

from __future__ import annotations

import ctypes
import errno
import os
import select
import signal
import socket

from actum import kernel
from actum.sandbox import landlock, root, wire
from actum.sandbox.become import CannotJoin, Template, fork_ahead, start_tool
from actum.sandbox.network import open_doors, raise_loopback
from actum.sandbox.supervise import supervise
from actum.sandbox.talk import read_request, receive, send
from actum.sandbox.tasks import Tasks

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

    from actum.sandbox.wire import Request

_HOSTNAME = "actum"


def main(template: Template, channel: socket.socket) -> NoReturn:
    """Prepare, wait for one order, carry it out. Never returns."""
    # The spawner ignores it, and an ignored SIGCHLD would lose the tool's status.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    # The spawner's death must not leave a sandbox behind.
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    # A spawner that died before the line above sends no signal any more.
    if select.select([template.spawner], [], [], 0)[0]:
        os._exit(1)
    kernel.prctl(kernel.PR_SET_DUMPABLE, 0)
    _close_all_but({0, 1, 2, channel.fileno()})
    trouble: OSError | None = None
    try:
        new_root = root.prepare(template.folder)
        kernel.sethostname(_HOSTNAME)
        raise_loopback()
    except OSError as error:
        trouble = error  # to be told to whoever gives the order
    ahead = fork_ahead(template)
    packet, descriptors = receive(channel)
    if not packet:
        os._exit(0)  # never needed
    idmap = descriptors.pop() if packet == wire.WITH_IDMAP else -1
    control = socket.socket(fileno=descriptors[wire.CONTROL])
    try:
        if trouble is not None:
            raise trouble
        request = read_request(descriptors[wire.REQUEST])
        root.furnish(new_root, request, template.folder, idmap)
        root.enter(new_root, request["working_directory"])
        rules = _rules(request, template)
        open_doors(control, request)
        # All of the above may happen before anyone has said that the tool may run; this may not.
        if control.recv(1) != wire.GO:
            os._exit(0)
        tool, listener = start_tool(request, template, descriptors, rules, ahead)
    except root.PathChanged as error:
        _fail(control, "PATH_CHANGED", f"{error} is no longer the file that was checked")
    except CannotJoin as error:
        _fail(control, "CGROUP_NOT_JOINABLE", f"the tool cannot join its cgroup: {error}")
    except root.CannotMap as error:
        _fail(control, "IDMAP_UNSUPPORTED", str(error))
    except OSError as error:
        _fail(control, "SANDBOX_UNAVAILABLE", f"{error.strerror or error}")
    for descriptor in descriptors[wire.CONTROL + 1 :]:
        if descriptor != descriptors[wire.TASK_LIMIT]:
            os.close(descriptor)
    tasks = Tasks(request["max_children"], descriptors[wire.TASK_LIMIT])
    supervise(control, tasks, tool, listener)


def _fail(control: socket.socket, reason: str, message: str) -> NoReturn:
    send(control, {"kind": "failed", "reason": reason, "message": message})
    os._exit(1)


def _close_all_but(kept: set[int]) -> None:
    for name in os.listdir("/proc/self/fd"):
        descriptor = int(name)
        if descriptor not in kept:
            try:
                os.close(descriptor)
            except OSError as error:
                if error.errno != errno.EBADF:  # the listing's own descriptor
                    raise


def _rules(request: Request, template: Template) -> int:
    """The Landlock ruleset for the tool, from inside its own root."""
    found = os.stat(request["executable"])
    if (found.st_dev, found.st_ino) != (
        request["executable_device"],
        request["executable_inode"],
    ):
        raise root.PathChanged(request["executable"])
    rules = [(path, landlock.READ) for path in ("/usr", "/etc", "/proc", "/var", "/run")]
    # On a merged /usr these are links into it; elsewhere they are folders of their own.
    rules += [
        (f"/{name}", landlock.READ)
        for name in ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
        if os.path.isdir(f"/{name}") and not os.path.islink(f"/{name}")
    ]
    rules += [
        ("/tmp", landlock.WRITE),
        ("/dev/shm", landlock.WRITE),
        ("/dev", landlock.DEVICES),
        (root.ARTIFACTS, landlock.DROP),
    ]
    rules += [
        (grant["path"], landlock.WRITE if grant["write"] else landlock.READ)
        for grant in request["grants"]
    ]
    return landlock.ruleset(rules, template.abi)


# ctypes is loaded before the first sandbox, so that no init has to look for it in its own root.
assert ctypes  # noqa: S101
