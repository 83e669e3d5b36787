"""However a caller goes away or changes its mind: CANCELLED, on record, and nobody survives."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from actum import Runtime
from actum.contract.outcome import Outcome
from actum.runners.base import Cancel
from actum.runners.local import LocalRunner
from hostile.jail import alive, marker, until

from .matrix import make_template

pytestmark = pytest.mark.sandbox

_ACTUM = (sys.executable, "-m", "actum.doors.cli.main")
#: Ignores the polite request, so that grace and kill are part of it.
_STUBBORN = "trap '' TERM; echo half; sleep {nap} & sleep {nap}; echo whole"
_POLITE = "echo half; sleep {nap}; echo whole"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cancel")
    make_template(folder)
    return folder


@pytest.fixture
def runtime(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runtime]:
    monkeypatch.chdir(folder / "template")
    with Runtime.open(folder / "template") as runtime:
        yield runtime


def _outcomes(runtime: Runtime) -> list[tuple[str, str | None]]:
    rows = runtime.database.rows("SELECT state, outcome FROM executions ORDER BY started_at")
    return [(row[0], row[1]) for row in rows]


def _verifies(runtime: Runtime) -> bool:
    return all(finding.passed for finding in runtime.verifier.verify_all())


@pytest.mark.req("004-60", "000-187")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("script", [_POLITE, _STUBBORN], ids=["polite", "stubborn"])
def test_a_signal_to_the_command_is_130_with_half_the_output_and_no_survivors(
    folder: Path, number: int, script: str
):
    nap = marker()
    process = subprocess.Popen(
        [*_ACTUM, "exec", "--json", "shell", "--stdin", "-"],
        cwd=folder / "template",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        # Under nohup it would be ignored, and a command that was told to ignore it does.
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
    )
    assert process.stdin
    process.stdin.write(script.format(nap=nap).encode())
    process.stdin.close()
    until(lambda: alive(nap))
    process.send_signal(number)
    assert process.stdout and process.stderr
    answer = json.loads(process.stdout.read())
    process.stderr.close()
    process.stdout.close()
    assert process.wait() == 130
    assert answer["outcome"] == "CANCELLED"
    assert answer["result"]["status"] == "killed"
    assert answer["result"]["stdout"] == "half\n"
    assert alive(nap) == []


def test_ctrl_c_at_a_terminal_reaches_the_command_alone(folder: Path):
    """The whole foreground group gets it; the spawner must not die of it first."""
    nap = marker()
    process = subprocess.Popen(
        [*_ACTUM, "exec", "--json", "shell", "--stdin", "-"],
        cwd=folder / "template",
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        process_group=0,
    )
    assert process.stdin and process.stdout
    process.stdin.write(_POLITE.format(nap=nap).encode())
    process.stdin.close()
    until(lambda: alive(nap))
    os.killpg(process.pid, signal.SIGINT)
    answer = json.loads(process.stdout.read())
    process.stdout.close()
    assert (process.wait(), answer["outcome"]) == (130, "CANCELLED")
    assert alive(nap) == []


@pytest.mark.req("004-60")
def test_another_thread_can_cancel(runtime: Runtime):
    nap, cancel, heard = marker(), Cancel(), []

    def cancel_once_it_speaks(stream: str, chunk: bytes) -> None:
        heard.append((stream, chunk))
        threading.Thread(target=cancel.cancel).start()

    result = runtime.exec(
        "shell", stdin=_POLITE.format(nap=nap), cancel=cancel, on_output=cancel_once_it_speaks
    )
    cancel.close()
    assert result.outcome is Outcome.CANCELLED
    assert result.result and result.result.stdout == "half\n"
    assert heard == [("stdout", b"half\n")]
    assert alive(nap) == []


@pytest.mark.parametrize("times", [1, 3])
def test_cancelling_a_task_cancels_the_execution_and_waits_for_its_end(
    runtime: Runtime, times: int
):
    nap = marker()

    async def change_ones_mind() -> None:
        task = asyncio.ensure_future(
            runtime.aio.exec("shell", stdin=_STUBBORN.format(nap=nap), timeout="60s")
        )
        while not alive(nap):
            await asyncio.sleep(0.01)
        for _ in range(times):
            task.cancel()
            await asyncio.sleep(0.05)
        with pytest.raises(asyncio.CancelledError):
            await task
        assert alive(nap) == []

    asyncio.run(change_ones_mind())
    assert _outcomes(runtime)[-1] == ("FINAL", "CANCELLED")


def test_ctrl_c_in_a_library_call_is_raised_and_closed_as_cancelled(runtime: Runtime):
    nap = marker()

    def interrupt() -> None:
        until(lambda: alive(nap))
        signal.pthread_kill(main, signal.SIGINT)

    main = threading.main_thread().ident or 0
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    thread = threading.Thread(target=interrupt)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            runtime.exec("shell", stdin=_POLITE.format(nap=nap))
    finally:
        signal.signal(signal.SIGINT, before)
        thread.join()
    until(lambda: not alive(nap))
    assert _outcomes(runtime)[-1] == ("FINAL", "CANCELLED")
    assert _verifies(runtime)
    assert runtime.exec("shell", stdin=b"echo next").ok


def test_a_listener_that_fails_ends_the_tool_and_the_record(runtime: Runtime):
    nap = marker()

    def fail(_stream: str, _chunk: bytes) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        runtime.exec("shell", stdin=_POLITE.format(nap=nap), on_output=fail)
    until(lambda: not alive(nap))
    assert _outcomes(runtime)[-1] == ("FINAL", "EXCEPTION")
    assert _verifies(runtime)
    assert runtime.exec("shell", stdin=b"echo next").ok


def test_who_is_cancelled_while_waiting_for_a_place_never_starts(folder: Path):
    from actum import settings as project
    from actum.contract.model import RunnerKind

    settings = project.load(folder / "template" / ".actum", os.environ)
    settings = dataclasses.replace(settings, max_concurrent=1)
    with Runtime(settings, runners={RunnerKind.LOCAL: LocalRunner()}) as runtime:
        nap, other = marker(), marker()
        first, second = Cancel(), Cancel()
        document = {"set": {"inputs.working_directory": str(settings.root)}}
        holder = threading.Thread(
            target=lambda: runtime.exec(
                "shell", stdin=_POLITE.format(nap=nap), cancel=first, **document
            )
        )
        holder.start()
        until(lambda: alive(nap))
        threading.Timer(0.3, second.cancel).start()
        result = runtime.exec("shell", stdin=_POLITE.format(nap=other), cancel=second, **document)
        assert result.outcome is Outcome.CANCELLED
        assert result.result and result.result.stdout == ""
        assert alive(nap), "the one that holds the place goes on"
        first.cancel()
        holder.join()
        assert runtime.exec("shell", stdin=b"echo next", **document).ok
        assert _verifies(runtime)
        first.close()
        second.close()
