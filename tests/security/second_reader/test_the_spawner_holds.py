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
from actum.sandbox.system_calls import NUMBERS
from hostile.jail import Jail, appears, name_of, until

pytestmark = pytest.mark.sandbox


def _spawner(jail: Jail) -> int:
    runner = jail.runtime.services.runners[RunnerKind.LOCAL]
    assert isinstance(runner, LocalRunner)
    process = runner._spawner._process
    assert process is not None
    return process.pid


def _helpers(spawner: int) -> list[int]:
    """The opener and the zygote, by name: numbers begin again at the kernel's pid_max, so the
    lowest may be those of inits."""
    children = Path(f"/proc/{spawner}/task/{spawner}/children").read_text().split()
    names = {int(pid): name_of(pid) for pid in children}
    (opener,) = [pid for pid, name in names.items() if name == "opener\n"]
    (zygote,) = [pid for pid, name in names.items() if name.startswith("python")]
    return [opener, zygote]


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
        with ThreadPoolExecutor(1) as running:
            answer = running.submit(own_jail.sh, "echo second")
            # The tracer holds the opener at the call that is to detach the layer. Before it, the
            # overlay is not there yet, and without the layer it could not be made.
            call = Path(f"/proc/{opener}/syscall")
            until(lambda: call.read_text().split()[0] == str(NUMBERS["umount2"]))
            mounts = Path(f"/proc/{opener}/mountinfo").read_text()
            # Others wait for the next request.
            mounted = [each for each in _lower_layers(own_jail) if f" {each} " in mounts]
            assert mounted
            for layer in mounted:
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


def test_the_first_message_of_a_new_spawner_is_no_member(own_jail: Jail) -> None:
    """The thread that receives members ahead may run before any execution has waited for a new
    spawner: it left that spawner's next execution waiting for ever."""
    assert own_jail.said(own_jail.sh("echo first")) == "first"
    first = _spawner(own_jail)
    runner = own_jail.runtime.services.runners[RunnerKind.LOCAL]
    assert isinstance(runner, LocalRunner)
    _strike(first, signal.SIGKILL)
    until(lambda: not _lives(str(first)))
    runner._spawner.start()
    assert _spawner(own_jail) != first
    server = runner._spawner._socket
    assert server is not None
    until(lambda: select.select([server], [], [], 0)[0])
    runner._spawner.take_in()
    assert own_jail.said(own_jail.sh("echo next")) == "next"


@contextlib.contextmanager
def _without_clones(pid: int) -> Iterator[str]:
    """The kernel refuses every clone of `pid`; what it says. Root has no limit of processes, and an
    ordinary user may not trace: so there are two ways."""
    if os.geteuid() != 0:
        before = resource.prlimit(pid, resource.RLIMIT_NPROC)
        resource.prlimit(pid, resource.RLIMIT_NPROC, (0, before[1]))
        try:
            yield "Resource temporarily unavailable"
        finally:
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
