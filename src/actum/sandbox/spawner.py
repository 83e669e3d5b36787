"""The jail's fork server: one small single-threaded process that clones every sandbox.

Forking from the host process would copy its threads' locks and its whole memory map; from here a
sandbox costs a few milliseconds. Started as `python -I -S` with nothing imported that it does not
need. It holds no key, no secret and no database, reads no request, and keeps nothing of one: it
receives descriptors, clones, passes on a pidfd, and forgets.
"""

from __future__ import annotations

import array
import gc
import json
import os
import signal
import socket

from actum import kernel
from actum.sandbox import init, root, seccomp, wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from actum.sandbox.wire import Order

#: The tool's uid and gid when the host process is root: above every range that distributions,
#: containers and user namespaces hand out, so it maps to nobody. An ordinary user's tools run as
#: that user, inside a user namespace that maps nobody else.
TOOL_ID = 1_900_000_001

_NAMESPACES = (
    kernel.CLONE_NEWPID
    | kernel.CLONE_NEWNS
    | kernel.CLONE_NEWNET
    | kernel.CLONE_NEWIPC
    | kernel.CLONE_NEWUTS
)


#: Where the template is mounted, in the spawner's own mount namespace. Nothing below /sys is ever
#: granted to a tool, so no grant can contain it; and no directory on the host has to be made.
FOLDER = "/sys"


def main(descriptor: int) -> None:
    """Serve until the host hangs up."""
    server = socket.socket(fileno=descriptor)
    # Nothing of the host process's environment or terminal is of use here.
    os.environ.clear()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the host's to handle
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps; an init is never waited for
    template = _prepare()
    idmaps: dict[tuple[int, int], int] = {}
    gc.freeze()
    server.send(b"ready")
    while True:
        packet, descriptors = _receive(server)
        if not packet:
            return
        order: Order = json.loads(packet)
        owner = (order["owner_uid"], order["owner_gid"])
        if owner != (template.uid, template.gid) and owner not in idmaps:
            idmaps[owner] = _idmap(*owner)
        _spawn(template, descriptors, idmaps.get(owner, -1))


def _prepare() -> init.Template:
    uid, gid = os.getuid(), os.getgid()
    rootless = uid != 0
    if not rootless:
        uid = gid = TOOL_ID
        kernel.unshare(kernel.CLONE_NEWNS)
    else:
        # The network namespace too: from here a listener's way home leads to ours, not the host's.
        kernel.unshare(kernel.CLONE_NEWUSER | kernel.CLONE_NEWNS | kernel.CLONE_NEWNET)
        # Identity, not root: nothing inside ever looks privileged to the tool or to libc.
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{uid} {uid} 1")
        _write("/proc/self/gid_map", f"{gid} {gid} 1")
    # Slave, not private: mounts that the host makes later still arrive, none of ours leave.
    kernel.mount("", "/", "", kernel.MS_REC | kernel.MS_SLAVE)
    root.write_template(FOLDER, uid, gid)
    os.mkdir(f"{FOLDER}/root")
    programs = {allow: seccomp.compile_filter(allow_fork=allow) for allow in (True, False)}
    return init.Template(FOLDER, programs, kernel.landlock_abi(), uid, gid, rootless=rootless)


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def _receive(server: socket.socket) -> tuple[bytes, list[int]]:
    rights = array.array("i")
    packet, ancillary, _flags, _address = server.recvmsg(
        wire.MAX_PACKET,
        socket.CMSG_SPACE(wire.MAX_DESCRIPTORS * rights.itemsize),
        # Without this the tool would inherit them, the status socket included.
        socket.MSG_CMSG_CLOEXEC,
    )
    for _level, _kind, data in ancillary:
        rights.frombytes(data[: len(data) - len(data) % rights.itemsize])
    return packet, list(rights)


def _spawn(template: init.Template, descriptors: list[int], idmap: int) -> None:
    pid, pidfd = kernel.clone_process(_NAMESPACES)
    if pid == 0:
        init.main(template, descriptors, idmap)
    control = socket.socket(fileno=descriptors[wire.CONTROL])
    rights = array.array("i", [pidfd])
    control.sendmsg(
        [json.dumps({"kind": "pid", "pid": pid}).encode()],
        [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)],
    )
    control.close()
    os.close(pidfd)
    # At once: a copy of the tool's stdout kept here would keep the host waiting for its end.
    for descriptor in descriptors[wire.CONTROL + 1 :]:
        os.close(descriptor)


def _idmap(uid: int, gid: int) -> int:
    """A user namespace that shows `uid`'s files as the tool's, for idmapped mounts."""
    ready_read, ready_write = os.pipe()
    hold_read, hold_write = os.pipe()
    helper = os.fork()
    if helper == 0:
        kernel.unshare(kernel.CLONE_NEWUSER)
        os.write(ready_write, b"1")
        os.close(hold_write)
        os.read(hold_read, 1)
        os._exit(0)
    os.close(ready_write)
    os.close(hold_read)
    os.read(ready_read, 1)
    for name, owner in (("uid_map", uid), ("gid_map", gid)):
        _write(f"/proc/{helper}/{name}", f"{owner} {TOOL_ID} 1")
    namespace = os.open(f"/proc/{helper}/ns/user", os.O_RDONLY | os.O_CLOEXEC)
    os.close(hold_write)
    os.close(ready_read)
    return namespace
