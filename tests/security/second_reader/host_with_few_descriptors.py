"""A host that may hold 1,024 descriptors, by its soft or its hard limit (the argument).

Meanwhile a tool keeps as many as it can on their way between two sockets.
test_descriptors_on_their_way.py starts it, because a hard limit stays.

It prints what became of four executions during that time, and of one after it.
"""

from __future__ import annotations

import json
import os
import resource
import sys
from pathlib import Path

from actum.errors import SandboxUnavailable
from actum.sandbox.spawner_client import Spawner
from hostile.member import asked, carried_out, granted, spawner

_KEEPS = """
import array, os, socket, time
held = []
def send(count):
    pair = socket.socketpair()
    held.append(pair)
    rights = array.array("i", [0] * count)
    pair[0].sendmsg([b"x"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)])
for count in (250, 1):
    try:
        while True: send(count)
    except OSError as error: print(error.errno, flush=True)
while True:  # whatever becomes free meanwhile
    try: send(1)
    except OSError: held.pop(); time.sleep(0.001)
"""
_OWNER = (os.getuid(), os.getgid())
_USED = 1_024


def _execution(started: Spawner, folder: Path) -> str:
    try:
        report, said = carried_out(started, asked("echo served", grants=[granted(folder)]))
    except SandboxUnavailable as refused:
        return refused.message
    return said.strip() or report["message"]  # type: ignore[typeddict-item]


def main(kind: str, folder: Path) -> None:
    _soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (_USED, _USED if kind == "hard" else hard))
    python = os.path.realpath("/usr/bin/python3")
    found = os.stat(python)
    keeps = asked(
        "",
        argv=["python3", "-c", _KEEPS],
        executable=python,
        executable_device=found.st_dev,
        executable_inode=found.st_ino,
    )
    with spawner() as started:
        sandbox, cgroup = started.launch(keeps, _OWNER, b"")
        sandbox.go()
        os.set_blocking(sandbox.stdout, True)
        kept = b""
        while kept.count(b"\n") < 2:
            kept += os.read(sandbox.stdout, 100)
        during = [_execution(started, folder) for _ in range(4)]
        alive = sandbox.is_alive()
        sandbox.discard()
        cgroup.remove()
        after = _execution(started, folder)
    print(json.dumps({"kept": kept.decode(), "during": during, "alive": alive, "after": after}))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
