"""A member that waits holds what it was given, and nothing else of the spawner's."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from actum.sandbox.host import _GUESS
from hostile.member import spawner

pytestmark = pytest.mark.sandbox


def _held(pid: int) -> dict[str, str]:
    folder = Path(f"/proc/{pid}/fd")
    return {name: os.readlink(folder / name) for name in os.listdir(folder)}


def _pid_of(pidfd: int) -> int:
    for line in Path(f"/proc/self/fdinfo/{pidfd}").read_text().splitlines():
        if line.startswith("Pid:"):
            return int(line.split()[1])
    raise AssertionError("no pidfd")


@pytest.mark.parametrize("interpreter", [False, True])
def test_neither_the_init_nor_the_tools_process_holds_a_socket_of_the_spawner(
    interpreter: bool,
) -> None:
    if os.geteuid() != 0:
        pytest.skip("neither is dumpable: only root can look")
    with spawner() as started:
        if interpreter:
            started.teach()
        make = {"allow_fork": True, "steady": False, "interpreter": interpreter, **_GUESS}
        member = started._take(make)  # type: ignore[arg-type]
        process = started._process
        assert process is not None
        spawners = {what for what in _held(process.pid).values() if what.startswith("socket:")}
        assert spawners
        init = _pid_of(member.sandbox.pidfd)
        deadline = time.monotonic() + 30
        while not (children := _children(init)) or len(_sockets(children[0])) > 1:
            assert time.monotonic() < deadline, "the tool's process never came to wait"
            time.sleep(0.01)
        # The init: to the host, to the opener, to the tool's process. That one: to the init.
        assert len(_sockets(init)) == 3
        assert len(_sockets(children[0])) == 1
        assert not spawners & (_sockets(init) | _sockets(children[0]))
        member.discard()


def _children(pid: int) -> list[int]:
    return [*map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]


def _sockets(pid: int) -> set[str]:
    return {what for what in _held(pid).values() if what.startswith("socket:")}
