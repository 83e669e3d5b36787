"""The processes beside the sandboxes: whichever of them is struck, the next execution is served."""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from actum.contract.model import RunnerKind
from actum.errors import SandboxUnavailable
from actum.runners.local import LocalRunner
from hostile.jail import Jail, appears, until

pytestmark = pytest.mark.sandbox


def _spawner(jail: Jail) -> int:
    runner = jail.runtime.rooms.runners[RunnerKind.LOCAL]
    assert isinstance(runner, LocalRunner)
    process = runner._spawner._process
    assert process is not None
    return process.pid


def _helpers(spawner: int) -> list[int]:
    """The opener and the zygote: forked first, and never an init."""
    children = Path(f"/proc/{spawner}/task/{spawner}/children").read_text().split()
    return sorted(map(int, children))[:2]


def _strike(pid: int, number: int) -> None:
    handle = os.pidfd_open(pid)
    signal.pidfd_send_signal(handle, number)
    if number == signal.SIGKILL:
        assert select.select([handle], [], [], 10)[0]
    os.close(handle)


@pytest.mark.parametrize("which", [0, 1], ids=["opener", "zygote"])
def test_a_helper_that_is_killed_is_replaced_with_its_spawner(own_jail: Jail, which: int) -> None:
    for _ in range(2):
        assert own_jail.runtime.python("1 + 1").output == 2
        first = _spawner(own_jail)
        _strike(_helpers(first)[which], signal.SIGKILL)
        if which == 1:  # the spawner follows its zygote, and every sandbox the spawner
            until(lambda pid=str(first): not _lives(pid), "the spawner's end")
        assert own_jail.said(own_jail.sh("echo next")) == "next"
        assert own_jail.runtime.python("2 + 2").output == 4
        assert _spawner(own_jail) != first


def _lower_layers(jail: Jail) -> list[Path]:
    return list(jail.root.glob(".actum/transactions/*/*/lower"))


@pytest.mark.skipif(os.geteuid() != 0, reason="an ordinary user may not trace the opener")
def test_the_opener_survives_layers_that_are_removed_while_it_mounts_them(own_jail: Jail) -> None:
    """The host gives an execution up when its sandbox dies, and removes its layers. The kernel then
    detaches what the opener has mounted there."""
    assert own_jail.said(own_jail.sh("echo first")) == "first"
    opener = _helpers(_spawner(own_jail))[0]
    words = ["strace", "-qq", "-o", "/dev/null", "-p", str(opener)]
    tracer = subprocess.Popen([*words, "-e", "inject=umount2:delay_enter=2000000"])
    try:
        status = Path(f"/proc/{opener}/status")
        until(lambda: f"TracerPid:\t{tracer.pid}\n" in status.read_text())
        before = set(_lower_layers(own_jail))
        with ThreadPoolExecutor(1) as running:
            answer = running.submit(own_jail.sh, "echo second")
            # The mount is there as long as the opener waits to detach it.
            mounts = Path(f"/proc/{opener}/mountinfo")
            until(
                lambda: any(f" {each} " in mounts.read_text() for each in _lower_layers(own_jail))
            )
            for layer in {*_lower_layers(own_jail)} - before:
                layer.rmdir()
            assert own_jail.said(answer.result()) == "second"
    finally:
        tracer.terminate()
        tracer.wait()
    assert own_jail.said(own_jail.sh("echo third")) == "third"
    assert _helpers(_spawner(own_jail))[0] == opener


def test_signals_that_a_terminal_sends_end_none_of_them(own_jail: Jail) -> None:
    assert own_jail.runtime.python("1 + 1").output == 2
    first = _spawner(own_jail)
    for pid in (first, *_helpers(first)):
        _strike(pid, signal.SIGINT)
    assert own_jail.runtime.python("2 + 2").output == 4
    assert own_jail.said(own_jail.sh("echo next")) == "next"
    assert _spawner(own_jail) == first


def test_with_the_spawner_everybody_goes(own_jail: Jail) -> None:
    assert own_jail.runtime.python("1 + 1").output == 2
    spawner = _spawner(own_jail)
    below = Path(f"/proc/{spawner}/task/{spawner}/children").read_text().split()
    zygote = _helpers(spawner)[1]
    below += Path(f"/proc/{zygote}/task/{zygote}/children").read_text().split()
    assert len(below) > 2
    _strike(spawner, signal.SIGKILL)
    until(lambda: not any(_lives(pid) for pid in below), "the end of everybody")
    assert own_jail.said(own_jail.sh("echo next")) == "next"


@contextlib.contextmanager
def _without_clones(pid: int) -> Iterator[str]:
    """The kernel refuses every clone of `pid`; what it says. Root has no limit of processes, and an
    ordinary user may not trace: so there are two ways."""
    if os.geteuid() != 0:
        before = resource.prlimit(pid, resource.RLIMIT_NPROC)
        resource.prlimit(pid, resource.RLIMIT_NPROC, (0, before[1]))
        yield "Resource temporarily unavailable"
        resource.prlimit(pid, resource.RLIMIT_NPROC, before)
        return
    words = ["strace", "-qq", "-o", "/dev/null", "-p", str(pid)]
    tracer = subprocess.Popen([*words, "-e", "inject=clone:error=ENOSPC"])
    try:
        until(lambda: f"TracerPid:\t{tracer.pid}\n" in Path(f"/proc/{pid}/status").read_text())
        yield "No space left on device"
    finally:
        tracer.terminate()
        tracer.wait()


def test_where_no_more_sandboxes_can_be_cloned_those_that_run_go_on(own_jail: Jail) -> None:
    assert own_jail.runtime.python("1 + 1").output == 2
    first = _spawner(own_jail)
    with ThreadPoolExecutor(1) as running:
        refused = own_jail.told / "refused"
        script = f"echo running >&2; until [ -e {refused} ]; do sleep 0.01; done; echo ran on"
        answer = running.submit(own_jail.sh, script, on_output=own_jail.relay)
        appears(own_jail.told / "running")
        with (
            _without_clones(_helpers(first)[1]) as reason,
            pytest.raises(SandboxUnavailable, match=f"clone: {reason}"),
        ):
            for number in range(50):  # some were waiting
                own_jail.runtime.python(f"{number}").check()
        refused.touch()
        assert own_jail.said(answer.result()) == "ran on"
    assert own_jail.runtime.python("2 + 2").output == 4
    assert _spawner(own_jail) == first


def _lives(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
