"""The fakes keep the port's promises, and the suite tells a runner that does not."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from actum import Outcome, Runtime
from actum.capture.model import Capture, Closed, DeadlinePassed, Exited
from actum.contract.call import Plan
from actum.contract.model import RunnerKind
from actum.errors import Refused, SandboxUnavailable
from actum.evidence.records.trace import LIFECYCLE, Emit
from actum.project import create
from actum.runners.base import Cancel, OnOutput, Permit
from actum.settings import load
from actum.testing import FakeRunner, FixedClock, RunnerConformance, captured


def _runtime(folder: Path, runner: FakeRunner, clock: FixedClock | None = None) -> Runtime:
    root = folder / "project"
    create(root, RunnerKind.LOCAL, by="user:test", date="2026-11-15")
    settings = load(root / ".actum", {"LOGNAME": "test"})
    return Runtime(settings, runners={RunnerKind.LOCAL: runner}, clock=clock or FixedClock())


def test_a_stopped_tool_keeps_what_it_already_said(tmp_path: Path) -> None:
    runner = FakeRunner(captured(b"half", ending=DeadlinePassed(15)))
    with _runtime(tmp_path, runner) as runtime:
        result = runtime.exec("shell", stdin="true", cwd=runtime.settings.root)
    assert result.outcome is Outcome.TIMED_OUT
    assert result.result is not None
    assert result.result.stdout == "half"
    assert runner.closed


def test_the_answer_may_depend_on_the_plan(tmp_path: Path) -> None:
    runner = FakeRunner(lambda plan: captured(plan.stdin[::-1]))
    with _runtime(tmp_path, runner) as runtime:
        result = runtime.exec("shell", stdin="abc", cwd=runtime.settings.root)
    assert result.result is not None
    assert result.result.stdout == "cba"
    assert [plan.stdin for plan in runner.plans] == [b"abc"]


def test_a_fake_demands_the_proof_too(tmp_path: Path) -> None:
    runner = FakeRunner(captured())
    with _runtime(tmp_path, runner) as runtime:
        runtime.exec("shell", stdin="abc", cwd=runtime.settings.root)
    with pytest.raises(Refused):
        runner.run(dataclasses.replace(runner.plans[0], stdin=b"other"), lambda _event: None)


def test_a_fault_in_the_middle_leaves_four_events(tmp_path: Path) -> None:
    def fail(_plan: Plan) -> Capture:
        raise SandboxUnavailable("out of order", remedy="none")

    good, bad = FakeRunner(captured()), FakeRunner(fail)
    with _runtime(tmp_path, good) as runtime:
        runtime.exec("shell", stdin="abc", cwd=runtime.settings.root)
    events = []
    with pytest.raises(SandboxUnavailable):
        bad.run(good.plans[0], events.append)
    assert tuple(event.event_type for event in events) == LIFECYCLE
    assert [event.data.get("aborted", False) for event in events] == [False, True, True, True]


def test_a_fake_is_spoken_with(tmp_path: Path) -> None:
    runner = FakeRunner(captured(), reply=lambda line: (line.upper(), b"more"))
    with _runtime(tmp_path, runner) as runtime:
        (runtime.settings.root / "script").write_text("true")
        runtime.exec("shell", "script", cwd=runtime.settings.root)  # a channel takes no stdin
    events = []
    channel = runner.open(runner.plans[0], events.append)
    assert channel.send(b"hello")
    assert [channel.receive(0.0) for _ in range(3)] == [b"HELLO", b"more", None]
    assert channel.close().stdout.kept == b"HELLO\nmore\n"
    assert channel.close().ending == Closed(0)
    assert not channel.send(b"again")
    assert tuple(event.event_type for event in events) == LIFECYCLE
    with pytest.raises(Refused):
        runner.open(dataclasses.replace(runner.plans[0], stdin=b"other"), lambda _event: None)


def test_a_fixed_clock_dates_the_contract(tmp_path: Path) -> None:
    clock = FixedClock(datetime(2030, 1, 2, tzinfo=UTC))
    clock.advance(3_600)
    with _runtime(tmp_path, FakeRunner(captured()), clock) as runtime:
        contract = runtime.contract({"tool_id": "TL-010", "inputs": {"command": "sh"}})
    assert contract.metadata.requested_at == datetime(2030, 1, 2, 1, tzinfo=UTC)


def test_a_clock_without_a_zone_is_refused() -> None:
    with pytest.raises(ValueError, match="zone"):
        FixedClock(datetime(2030, 1, 2))  # noqa: DTZ001


class _Bold(FakeRunner):
    """Starts whether it may or not."""

    def run(
        self,
        plan: Plan,
        emit: Emit,
        on_output: OnOutput | None = None,
        cancel: Cancel | None = None,
        permit: Permit | None = None,
    ) -> Capture:
        return super().run(plan, emit, on_output, cancel)


def test_a_runner_that_does_not_ask_is_a_fault_on_record(tmp_path: Path) -> None:
    with _runtime(tmp_path, _Bold(captured())) as runtime:
        asked = runtime.contract(
            {
                "tool_id": "TL-010",
                "inputs": {
                    "command": "sh",
                    "working_directory": str(runtime.settings.root),
                    "stdin": "true",
                },
            }
        )
        with pytest.raises(SandboxUnavailable, match="asked"):
            runtime.execute(asked)
        known = runtime.services.executions.get(asked.execution_id)
    assert known is not None
    assert known.outcome is Outcome.EXCEPTION


class _Twice(FakeRunner):
    """Says everything a second time, and takes any plan."""

    def run(
        self,
        plan: Plan,
        emit: Emit,
        on_output: OnOutput | None = None,
        cancel: Cancel | None = None,
        permit: Permit | None = None,
    ) -> Capture:
        assert permit is not None
        permit()
        fresh = FakeRunner(captured(b"said before the end"))
        fresh.run(self.plans[0] if self.plans else plan, emit)
        self.plans.append(plan)
        return fresh.run(plan, lambda _event: None)


def _writes_started(plan: Plan) -> Capture:
    with (Path(plan.working_directory) / "started").open("a") as file:
        file.write("x\n")
    return captured()


_LIES: dict[str, tuple[str, Callable[[], FakeRunner]]] = {
    "starts before it may": ("nothing starts before it may", lambda: _Bold(_writes_started)),
    "enforces nothing": ("limits are enforced or refused", lambda: FakeRunner(captured())),
    "starts nothing": ("ends as success", lambda: FakeRunner(captured(b"said before the end"))),
    "hides a timeout": ("ends as timeout", lambda: FakeRunner(captured(ending=Exited(0)))),
    "loses output": ("ends as error", lambda: FakeRunner(captured(ending=Exited(3)))),
    "forgets arguments": ("input arrives exactly", lambda: FakeRunner(captured())),
    "runs twice": ("ends as success", lambda: _Twice(captured(b"said before the end"))),
    "cuts nothing": ("output is bounded and counted", lambda: FakeRunner(captured(b"x"))),
    "lets children in": ("children are limited exactly", lambda: FakeRunner(captured())),
    "keeps nothing running": (
        "a kept tool is spoken with line by line",
        lambda: FakeRunner(captured()),
    ),
    "is not repeatable": (
        "the same input gives the same result",
        lambda: FakeRunner(lambda plan: captured(plan.trace.trace_id.encode())),
    ),
}


@pytest.mark.parametrize("lie", _LIES)
def test_the_suite_finds_a_runner_that(tmp_path: Path, lie: str) -> None:
    check, make = _LIES[lie]
    suite = RunnerConformance(make, tmp_path)
    with pytest.raises((AssertionError, FileNotFoundError, SandboxUnavailable)):
        suite.check(check)
    suite.close()
