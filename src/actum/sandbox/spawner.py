"""The jail's fork server: one small single-threaded process that clones every sandbox.

Forking from the host process would copy its threads' locks and its whole memory map. Started as
`python -P -s -S` with minimal imports, it prepares what all sandboxes have in common, starts the
opener and the zygote, and executes a small program that only makes members (`jail/serve.c`). It
holds no key, no secret and no database, and never receives a request.
"""

from __future__ import annotations

import gc
import os
import signal
import socket

from actum import kernel
from actum.sandbox import root, seccomp
from actum.sandbox.identity import TOOL_ID
from actum.sandbox.packets import receive_document
from actum.sandbox.snippet_fork import Template
from actum.sandbox.zygote import Zygote

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from actum.sandbox.wire import Recipe


#: The template is built here, in the spawner's own mount namespace, before it becomes the root
#: there. An existing directory, so that none has to be made on the host.
_FOLDER = "/sys"

#: argv[0] selects the role of the program, and names it in process lists.
_PROGRAM, _OPENER = "actum.sandbox.spawner", "actum.sandbox.opener"


def main(
    descriptor: int, opener: int, program: int, filters: dict[bool, bytes] | None = None
) -> None:
    """Serve until the host closes the socket. `program` holds the program of every init; `filters`
    are those of `compiled_filters`, where they were compiled before."""
    server = socket.socket(fileno=descriptor)
    # Inherited through an exec, but not to be inherited by the inits.
    for passed in (descriptor, opener, program):
        os.set_inheritable(passed, False)
    # The host process's environment and terminal are not needed here.
    os.environ.clear()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the host handles Ctrl-C
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps; an init is never waited for
    os.umask(0o022)  # files made for a tool must be readable for it
    view, template = _prepare(_content(program), filters or compiled_filters())
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
    """The arguments that `read_spawner` in jail/serve.c reads; each list begins with its length."""
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
            os._exit(1)  # on any error: there must be only one spawner
    channel.close()


def _start_opener(descriptor: int, view: int, template: Template) -> None:
    server = socket.socket(fileno=descriptor)
    if os.fork() == 0:
        kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
        if template.is_orphan():
            os._exit(1)
        # If the opener held the spawner's sockets, the spawner's end would show only with its own:
        # so everything that it does not get is close-on-exec.
        kernel.setns(view, kernel.CLONE_NEWNS)
        given = [server.fileno(), template.spawner]
        for number in given:
            os.set_inheritable(number, True)
        words = map(str, (*given, template.uid, template.gid))
        os.execve(template.jail, [_OPENER, *words], {})  # noqa: S606 -- jail/opener.c
    server.close()


def compiled_filters() -> dict[bool, bytes]:
    """The filter of the tools, by whether forks are allowed."""
    return {allow: seccomp.compile_filter(allow_fork=allow) for allow in (True, False)}


def _prepare(init: bytes, filters: dict[bool, bytes]) -> tuple[int, Template]:
    """(a mount namespace that follows the host's mounts, the template of members)"""
    uid, gid = os.getuid(), os.getgid()
    rootless = uid != 0
    if not rootless:
        uid = gid = TOOL_ID
        kernel.unshare(kernel.CLONE_NEWNS)
    else:
        # The network namespace too: a listener that is moved home then gets to ours, not the
        # host's.
        kernel.unshare(kernel.CLONE_NEWUSER | kernel.CLONE_NEWNS | kernel.CLONE_NEWNET)
        # Map the same id, not root: no process inside looks privileged to the tool or to libc.
        _write("/proc/self/setgroups", "deny")
        _write("/proc/self/uid_map", f"{uid} {uid} 1")
        _write("/proc/self/gid_map", f"{gid} {gid} 1")
        # Capabilities to mount and confine in this namespace. An init has them too, and removes
        # them from its tool.
        kernel.keep_capabilities()
    # Slave, not private: later mounts of the host still arrive, and none of ours propagate.
    kernel.mount("", "/", "", kernel.MS_REC | kernel.MS_SLAVE)
    view = os.open("/proc/self/ns/mnt", os.O_RDONLY | os.O_CLOEXEC)
    kernel.unshare(kernel.CLONE_NEWNS)
    root.make_template(_FOLDER, uid, gid, init)
    return view, Template(filters, kernel.landlock_abi(), uid, gid, rootless=rootless)


def _content(descriptor: int) -> bytes:
    content = os.pread(descriptor, os.fstat(descriptor).st_size, 0)
    os.close(descriptor)
    return content


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)
