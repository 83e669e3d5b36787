"""The memory of an interpreter outlives it until the host has its answer, and no longer (0026)."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from actum import Outcome, Runtime
from actum.runners.warm import Warm
from actum.sandbox.host import Spawner
from actum.sandbox.root import SNIPPET
from hostile.jail import own_cgroups, until
from hostile.member import asked, granted, spawner

pytestmark = [
    pytest.mark.sandbox,
    pytest.mark.skipif(
        os.path.realpath(sys.executable) != os.path.realpath("/usr/bin/python3"),
        reason="our interpreter is not the one that snippets are run by",
    ),
]
ROOT = os.geteuid() == 0
ORDER = {"params": {}, "files": {}}
MUCH = 48 << 20


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
    for line in Path(f"/proc/self/fdinfo/{warm.sandbox.pidfd}").read_text().splitlines():
        if line.startswith("Pid:"):
            return Path("/proc", line.split()[1])
    raise AssertionError("no pidfd")


def threads_of_init(warm: Warm) -> int:
    """That sleep: one that supervises; and one that holds, if there is something to be held."""
    told = [file.read_text() for file in init_of(warm).glob("task/*/stat")]
    return sum(text.rpartition(")")[2].split()[0] == "S" for text in told)


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
def test_it_is_gone_at_once_and_its_memory_when_it_is_let_go() -> None:
    with spawner() as started:
        started.teach()
        with waiting(started) as warm:
            made = groups_of(warm)
            if ROOT:
                until(lambda: threads_of_init(warm) == 2, "a thread that holds")
            warm.give(ordered(f"kept = b'x' * {MUCH}"))
            assert warm.sandbox.await_gone()  # a group of it is removed, so nobody is left in it
            left = own_cgroups() & made
            assert len(left) == len(made) - 1
            if ROOT:
                until(lambda: threads_of_init(warm) == 2, "a thread that holds")
                assert charged(left) > MUCH
            else:  # whoever may not hold it has waited for it
                assert charged(left) < MUCH
            assert warm.sandbox.await_cleared()
            assert not own_cgroups() & made


@pytest.mark.parametrize("write", [False, True])
def test_what_may_write_to_the_host_is_waited_for_to_the_last_byte(
    tmp_path: Path, write: bool
) -> None:
    tmp_path.chmod(0o755)
    threads = 2 if ROOT and not write else 1
    with spawner() as started:
        started.teach()
        with waiting(started, grants=[granted(tmp_path, write=write)]) as warm:
            until(lambda: threads_of_init(warm) == threads, "an init that supervises")
            warm.give(ordered("1"))
            assert warm.sandbox.await_gone()
            until(lambda: threads_of_init(warm) == threads, "an init that waits for a word")


def test_a_program_that_takes_its_place_has_all_of_its_memory() -> None:
    """80 MiB of a snippet, then of the program that it becomes, of 128 that it may have at once."""
    much = "kept = b'x' * (80 << 20)"
    then = f"import time; time.sleep(0.5); {much}; print(len(kept))"
    code = f"{much}\nimport os\nos.execv('/usr/bin/python3', ['p', '-c', {then!r}])"
    with Runtime.temporary() as rt:
        for _ in range(3):  # the first ones are executed, and not forked
            result = rt.python(code, memory="128M")
            assert result.outcome is Outcome.SUCCEEDED, result.result
            assert result.result is not None
            assert result.result.stdout == f"{80 << 20}\n"
