"""An interpreter's memory goes with its process, keeps no answer back, and is its own."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from actum import Outcome, Runtime
from actum.runners.warm import Warm
from actum.sandbox.root import SNIPPET
from actum.sandbox.spawner_client import Spawner
from hostile.jail import own_cgroups, until
from hostile.member import asked, pid_of, spawner

pytestmark = [
    pytest.mark.sandbox,
    pytest.mark.skipif(
        os.path.realpath(sys.executable) != os.path.realpath("/usr/bin/python3"),
        reason="our interpreter is not the one that snippets are run by",
    ),
]
ORDER = {"params": {}, "files": {}}
MUCH = 8 << 20
TAKES_MUCH = f"kept = b'x' * {MUCH}"


@pytest.fixture(scope="module")
def rt() -> Iterator[Runtime]:
    with Runtime.temporary() as runtime:
        yield runtime


@contextmanager
def waiting(started: Spawner, **changes: Any) -> Iterator[Warm]:
    """An interpreter that waits for its order."""
    python = os.stat("/usr/bin/python3")
    request = asked(
        "",
        argv=["python3", "-s", SNIPPET],
        executable="/usr/bin/python3",
        executable_device=python.st_dev,
        executable_inode=python.st_ino,
        **changes,
    )
    reading, writing = os.pipe2(os.O_CLOEXEC)
    sandbox, cgroup = started.launch(request, (os.getuid(), os.getgid()), reading)
    os.close(reading)
    sandbox.go()
    assert sandbox.still_waiting(10_000)
    warm = Warm(sandbox, cgroup, writing, 0.0)
    try:
        yield warm
    finally:
        sandbox.discard()
        cgroup.remove()


def init_of(warm: Warm) -> Path:
    return Path("/proc", str(pid_of(warm.sandbox.pidfd)))


def states_of_init(warm: Warm) -> str:
    """One letter per thread of the init: as proc(5) has it."""
    told = [file.read_text() for file in init_of(warm).glob("task/*/stat")]
    return "".join(text.rpartition(")")[2].split()[0] for text in told)


def groups_of(warm: Warm) -> set[str]:
    """Not those of sandboxes that are prepared for others."""
    init = init_of(warm)
    (interpreter,) = (init / "task" / init.name / "children").read_text().split()
    everybody = {group: Path(group, "cgroup.procs").read_text() for group in own_cgroups()}
    return {group for group, those in everybody.items() if interpreter in those.split()}


def charged(groups: set[str]) -> int:
    """What the memory groups among these hold now, of both versions."""
    files = [
        Path(group, name)
        for group in groups
        for name in ("memory.usage_in_bytes", "memory.current")
    ]
    return sum(int(file.read_text()) for file in files if file.exists())


def ordered(code: str) -> bytes:
    return json.dumps({"code": code, **ORDER}).encode()


@pytest.mark.req("004-17")
@pytest.mark.parametrize("then", ["", "\nimport time\ntime.sleep(0.3)"], ids=["short", "long"])
def test_an_interpreter_that_is_gone_leaves_no_memory(then: str) -> None:
    with spawner() as started:
        started.teach()
        with waiting(started) as warm:
            made = groups_of(warm)
            warm.give(ordered(f"{TAKES_MUCH}{then}"))
            assert warm.sandbox.await_gone()  # the kernel removes a group only when it is empty
            left = own_cgroups() & made
            assert len(left) == len(made) - 1
            assert charged(left) < MUCH
            assert warm.sandbox.await_cleared()
            assert not own_cgroups() & made


def test_an_init_that_is_stopped_goes_on_when_it_is_continued() -> None:
    with spawner() as started:
        started.teach()
        with waiting(started) as warm:
            for number, state in ((signal.SIGSTOP, "T"), (signal.SIGCONT, "S")):
                signal.pidfd_send_signal(warm.sandbox.pidfd, number)
                until(lambda state=state: states_of_init(warm) == state, state)
            warm.give(ordered("print(6 * 7)"))
            assert warm.sandbox.await_gone()
            assert os.read(warm.sandbox.stdout, 10) == b"42\n"


#: Asks the kernel to watch both streams (AIO), which would keep them open as long as the memory is
#: there; and leaves them to a child.
WATCH_STREAMS = """
import ctypes, os, struct, time
call, context = ctypes.CDLL(None, use_errno=True).syscall, ctypes.c_ulong(0)
watches = call(206, 8, ctypes.byref(context)) == 0
kept = []
for stream in (1, 2) if watches else ():
    order = struct.pack('<QIIHhIQQqQII', 0, 0, 0, 5, 0, stream, 1, 0, 0, 0, 0, 0)
    kept.append(ctypes.create_string_buffer(order, 64))
    where = (ctypes.c_void_p * 1)(ctypes.addressof(kept[-1]))
    assert call(209, context, 1, where) == 1
if os.fork() == 0:
    time.sleep(30)
os._exit(3)
"""


def test_streams_that_memory_keeps_open_delay_no_answer(rt: Runtime) -> None:
    for _ in range(4):
        result = rt.python(WATCH_STREAMS, timeout="2s")
        assert result.result is not None
        assert (result.outcome, result.result.exit_code) == (Outcome.TOOL_ERROR, 3)
        assert [each.target for each in result.denials] == ["io_setup"]
        assert result.result.duration_ms < 9_000  # as long as a dead one is waited for


#: Never lets a tenth of a second pass without a child that ends.
BUSY = "i=0; while [ $i -lt 30 ]; do (sleep 0.01 &); sleep 0.03; i=$((i+1)); done; exec "


@pytest.mark.parametrize("before", ["sleep 0.5; exec ", BUSY], ids=["quiet", "busy"])
def test_a_program_that_takes_its_place_has_all_of_its_memory(rt: Runtime, before: str) -> None:
    """80 MiB of a snippet, then of the program that it becomes, of 128 that it may have at once."""
    then = f"{before} python3 -c 'kept = bytes(1) * (80 << 20); print(len(kept))'"
    code = f"kept = b'x' * (80 << 20)\nimport os\nos.execv('/bin/sh', ['sh', '-c', {then!r}])"
    for _ in range(3):  # the first ones are executed, and not forked
        result = rt.python(code, memory="128M")
        assert result.outcome is Outcome.SUCCEEDED, result.result
        assert result.result is not None
        assert result.result.stdout == f"{80 << 20}\n"
