"""A member that waits holds what it was given, and nothing else of the spawner's."""

from __future__ import annotations

import contextlib
import hashlib
import os
from pathlib import Path

import pytest

from actum import native
from actum.sandbox.spawner_client import _GUESS
from hostile.jail import own_cgroups, until
from hostile.member import asked, carried_out, pid_of, spawner

pytestmark = pytest.mark.sandbox


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
        init = pid_of(member.sandbox.pidfd)
        # The init: to the host, to the opener, to the tool's process. That one: to the init.
        until(lambda: len(_sockets(init)) == 3, "an init that waits")
        until(lambda: [len(_sockets(pid)) for pid in _children(init)] == [1], "a tool's process")
        # The spawner lets go of what is the member's own, and keeps one: to the host.
        until(lambda: len(_sockets(process.pid)) <= 2, "a spawner that waits")
        inside = set().union(*map(_sockets, [init, *_children(init)]))
        assert _sockets(process.pid)
        assert not inside & _sockets(process.pid)
        member.discard()


@pytest.mark.parametrize("interpreter", [False, True])
def test_a_member_runs_the_init_that_receipts_name(interpreter: bool) -> None:
    if os.geteuid() != 0:
        pytest.skip("it is not dumpable: only root can look")
    with spawner() as started:
        if interpreter:
            started.teach()
        make = {"allow_fork": True, "steady": False, "interpreter": interpreter, **_GUESS}
        member = started._take(make)  # type: ignore[arg-type]
        init = pid_of(member.sandbox.pidfd)
        program = Path(f"/proc/{init}/exe")
        until(lambda: _sha256(program) == native.sha256(native.INIT), "the named init")
        member.discard()


def _sha256(program: Path) -> str:
    return hashlib.sha256(program.read_bytes()).hexdigest()


def _children(pid: int) -> list[int]:
    return [*map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]


def _sockets(pid: int) -> set[str]:
    folder, found = Path(f"/proc/{pid}/fd"), set()
    for name in os.listdir(folder):
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            found.add(os.readlink(folder / name))
    return {what for what in found if what.startswith("socket:")}


def test_an_init_removes_its_groups_when_they_are_empty_and_stays_until_it_is_let_go() -> None:
    before = own_cgroups()
    with spawner() as started:
        sandbox, cgroup = started.launch(asked("exit 3"), (os.getuid(), os.getgid()), b"")
        made = own_cgroups() - before
        assert made
        sandbox.go()
        assert sandbox.await_gone()
        assert len(made - own_cgroups()) == 1  # which proves that nobody is in the others
        sandbox.terminate()  # too late, and no reason to leave
        assert sandbox.await_cleared()
        assert own_cgroups() == before
        assert sandbox.is_alive()
        sandbox.discard()
        cgroup.remove()  # there is nothing left to do, and nothing to complain of


def test_an_init_that_nobody_asks_any_more_removes_its_groups_all_the_same() -> None:
    before = own_cgroups()
    with spawner() as started:
        sandbox, cgroup = started.launch(asked("exit 3"), (os.getuid(), os.getgid()), b"")
        sandbox.go()
        assert sandbox.await_gone()
        sandbox.close()
        until(lambda: own_cgroups() == before, "the removal")
        cgroup.close()


def test_a_tool_is_scheduled_like_everybody_though_who_prepares_it_keeps_back() -> None:
    with spawner() as started:
        report, output = carried_out(started, asked("cut -d' ' -f41 /proc/self/stat"))
    assert (report["kind"], output.split()) == ("ended", [str(os.SCHED_OTHER)])


def test_what_a_tool_is_given_to_read_it_cannot_write() -> None:
    script = "if echo mine >&0; then echo written; else cat; fi 2>/dev/null"
    with spawner() as started:
        sandbox, cgroup = started.launch(asked(script), (os.getuid(), os.getgid()), b"given")
        try:
            sandbox.go()
            until(lambda: not sandbox.still_waiting(), "the tool's end")
            assert os.read(sandbox.stdout, 100) == b"given"
        finally:
            sandbox.discard()
            cgroup.remove()
