"""The jail's fork server: one small single-threaded process that clones every sandbox.

Forking from the host process would copy its threads' locks and its whole memory map. Started as
`python -I -S` with nothing imported that it does not need, it prepares what all sandboxes have in
common, starts the opener and the zygote, and becomes a small program that does nothing but make
members (`jail/serve.c`). It holds no key, no secret and no database, and sees nothing of a request.
"""

from __future__ import annotations

import gc
import os
import signal
import socket

from actum import kernel
from actum.sandbox import root, seccomp
from actum.sandbox.become import Template
from actum.sandbox.identity import TOOL_ID
from actum.sandbox.talk import receive_document
from actum.sandbox.zygote import Zygote

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from actum.sandbox.wire import Recipe


#: Where the template is built, in the spawner's own mount namespace, before it becomes the root
#: there. No directory on the host has to be made for it.
_FOLDER = "/sys"

#: By these names the program knows what it is to be, and others know it.
_PROGRAM, _OPENER = "actum.sandbox.spawner", "actum.sandbox.opener"


def main(descriptor: int, opener: int, program: int) -> None:
    """Serve until the host hangs up. `program` holds the program of every init."""
    server = socket.socket(fileno=descriptor)
    # They came through an exec; through those of the inits they do not go.
    for passed in (descriptor, opener, program):
        os.set_inheritable(passed, False)
    # Nothing of the host process's environment or terminal is of use here.
    os.environ.clear()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the host's to handle
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps; an init is never waited for
    os.umask(0o022)  # what is made for a tool must be open to it
    view, template = _prepare(_content(program))
    _start_opener(opener, view, template)
    server.send(b"ready")
    received = receive_document(server)
    if received is None:
        return
    recipe, parents = received
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    _start_zygote((server, ours), theirs, view, template)
    inherited = [server.fileno(), ours.fileno(), template.filters[False], template.filters[True]]
    numbers = [*inherited, template.abi, template.uid, template.gid, int(template.rootless)]
    for number in (*inherited, *parents):
        os.set_inheritable(number, True)
    words = [*map(str, numbers), *_recipe_words(recipe, parents)]
    os.execve(template.jail, [_PROGRAM, *words], {})  # noqa: S606 -- the same process, another program


def _recipe_words(recipe: Recipe, parents: list[int]) -> list[str]:
    """As `read_spawner` in jail/serve.c takes them; each list begins with its length."""
    register = recipe["register"]
    lists: list[Sequence[Sequence[int | str]]] = [
        [(parent,) for parent in parents],
        recipe["once"],
        [place[:2] for place in recipe["limits"]],
        recipe["usage"],
        recipe["doors"],
    ]
    words: list[int | str] = [recipe["mark"], int(recipe["born_inside"])]
    for each in lists:
        words += [len(each), *(word for row in each for word in row)]
    words += [*recipe["task_limit"], *recipe["oom"]]
    words += [0] if register is None else [1, *register]
    return [*map(str, words)]


def _start_zygote(
    spawners: tuple[socket.socket, ...], channel: socket.socket, view: int, template: Template
) -> None:
    if os.fork() == 0:
        try:
            kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
            if template.is_orphan():
                os._exit(1)
            for each in spawners:
                each.close()
            gc.freeze()
            Zygote(channel, view, template).serve()
        finally:
            os._exit(1)  # whatever happened: there is one spawner
    channel.close()


def _start_opener(descriptor: int, view: int, template: Template) -> None:
    server = socket.socket(fileno=descriptor)
    if os.fork() == 0:
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        if template.is_orphan():
            os._exit(1)
        # Held by it as well, the spawner's end would be heard of only with its own: all that it is
        # not given is close-on-exec.
        kernel.setns(view, kernel.CLONE_NEWNS)
        given = [server.fileno(), template.spawner]
        for number in given:
            os.set_inheritable(number, True)
        words = map(str, (*given, template.uid, template.gid))
        os.execve(template.jail, [_OPENER, *words], {})  # noqa: S606 -- jail/opener.c
    server.close()


def _prepare(init: bytes) -> tuple[int, Template]:
    """(the mount namespace that follows the host's, what members are made of)"""
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
        # What may build walls in this namespace; an init has it too, and takes it from its tool.
        kernel.keep_capabilities()
    # Slave, not private: mounts that the host makes later still arrive, none of ours leave.
    kernel.mount("", "/", "", kernel.MS_REC | kernel.MS_SLAVE)
    view = os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    kernel.unshare(kernel.CLONE_NEWNS)
    root.make_template(_FOLDER, uid, gid, init)
    programs = {allow: seccomp.compile_filter(allow_fork=allow) for allow in (True, False)}
    return view, Template(programs, kernel.landlock_abi(), uid, gid, rootless=rootless)


def _content(descriptor: int) -> bytes:
    content = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
    os.close(descriptor)
    return content


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)
