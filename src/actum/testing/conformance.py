"""One suite for every runner: the same promises, checked from outside.

    suite = RunnerConformance(lambda: MyRunner(), folder)
    for check in CHECKS:
        suite.check(check)          # raises AssertionError
    suite.close()

The runner is used through a real `Runtime` with the shipped tools, so the checks see what a
caller sees. A limit is either enforced or refused; there is no third answer and nothing is skipped.
"""

# ruff: noqa: S101 -- a check is an assertion, and -O is refused below
from __future__ import annotations

import hashlib
import os
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from actum.capture.model import (
    Cancelled,
    Capture,
    Closed,
    DeadlinePassed,
    Enforced,
    Exited,
    LimitKilled,
)
from actum.contract.call import (
    Check,
    CheckResult,
    EffectivePolicy,
    Interpreter,
    Narrowed,
    Plan,
    SealedInput,
    SecretUse,
    bound,
)
from actum.contract.image_reference import RootImage
from actum.contract.limits import (
    IDLE_S,
    MESSAGE_BYTES,
    STDERR_BYTES,
    STDOUT_BYTES,
    TERM_GRACE_S,
)
from actum.contract.model import Json, RunnerKind
from actum.contract.os_user import os_user
from actum.contract.outcome import PROJECTIONS, Outcome, ToolRunStatus, TraceOutcome
from actum.errors import Refused
from actum.evidence.records.trace import LIFECYCLE, Emit, TraceEvent
from actum.evidence.traces import Traces
from actum.execution.result import Result
from actum.project import create
from actum.registry.pinned_settings import approve_settings
from actum.runners.base import Cancel, Capability, Channel, OnOutput, Permit, Runner
from actum.runtime import Runtime
from actum.settings import load
from actum.settings_file import FILE_NAME
from actum.testing.scenarios import MARK, READY, SAID, SAID_ASIDE, SCENARIOS, Scenario
from actum.value import fields, replace
from actum.workspace.copies import Bounds
from actum.workspace.transaction import Transaction

if not __debug__:
    raise RuntimeError("`python -O` removes assertions, so every check would pass; run without")

#: Changes of a tool that was ended are committed: they show how often it was started.
_SETTINGS = '\n[workspace]\non_stop = "commit"\n'

#: Every limit a contract can set; a runner's manifest has a line for each.
LIMITS = (
    "timeout_ms",
    "memory_mb",
    "cpu_cores",
    "max_children",
    "allow_fork",
    "filesystem",
    "network",
)


def processes_with(mark: str) -> list[int]:
    """Processes on this host whose command line holds `mark`."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                command = (entry / "cmdline").read_bytes()
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue
            if mark.encode() in command:
                found.append(int(entry.name))
    return found


class _Watched:
    """The runner under test; records every plan and event."""

    def __init__(self, inner: Runner) -> None:
        self._inner = inner
        self.plans: list[Plan] = []
        self.events: list[TraceEvent] = []

    @property
    def kind(self) -> RunnerKind:
        return self._inner.kind

    def capabilities(self) -> tuple[Capability, ...]:
        return self._inner.capabilities()

    def foresee(self, policy: EffectivePolicy) -> tuple[Enforced, ...]:
        return self._inner.foresee(policy)

    def takes_overlay(self, plan: Plan, grant: str) -> bool:
        return self._inner.takes_overlay(plan, grant)

    def run(
        self,
        plan: Plan,
        emit: Emit,
        on_output: OnOutput | None = None,
        cancel: Cancel | None = None,
        permit: Permit | None = None,
    ) -> Capture:
        def heard(event: TraceEvent) -> None:
            self.events.append(event)
            emit(event)

        self.plans.append(plan)
        return self._inner.run(plan, heard, on_output, cancel, permit)

    def open(
        self,
        plan: Plan,
        emit: Emit,
        cancel: Cancel | None = None,
        permit: Permit | None = None,
        *,
        idle_s: float = IDLE_S,
        message_bytes: int = MESSAGE_BYTES,
    ) -> Channel:
        def heard(event: TraceEvent) -> None:
            self.events.append(event)
            emit(event)

        return self._inner.open(
            plan, heard, cancel, permit, idle_s=idle_s, message_bytes=message_bytes
        )

    def rest(self) -> None:
        self._inner.rest()

    def close(self) -> None:
        self._inner.close()


class RunnerConformance:
    """`folder` is an empty directory on this host that the runner can give to a tool.

    `survivors` finds processes by a mark in their command line, for runners whose processes are
    not in this host's /proc. `prepare` changes the new project before it is opened: for an image as
    the root of its tools.
    """

    def __init__(
        self,
        make_runner: Callable[[], Runner],
        folder: Path,
        *,
        survivors: Callable[[str], list[int]] = processes_with,
        prepare: Callable[[Path], None] = lambda _project: None,
    ) -> None:
        self.runner = _Watched(make_runner())
        self._survivors = survivors
        self.root = folder.resolve() / "project"
        create(self.root, self.runner.kind, by="user:conformance", date="2026-01-01")
        with (self.root / FILE_NAME).open("a") as file:
            file.write(_SETTINGS)
        home = self.root / ".actum"
        approve_settings(self.root, home, by="user:conformance", user=os_user(), date="2026-01-01")
        prepare(self.root)
        settings = load(self.root / ".actum", {"LOGNAME": "conformance"})
        self.runtime = Runtime(settings, runners={self.runner.kind: self.runner})
        self.work = self.root
        self._begun: list[Transaction] = []

    def close(self) -> None:
        self.runtime.close()

    def check(self, name: str) -> None:
        """Run one of `CHECKS` in its own working directory."""
        self.work = self.root / f"work-{uuid.uuid4()}"
        self.work.mkdir()
        self.runner.plans.clear()
        self.runner.events.clear()
        try:
            CHECKS[name](self)
        finally:
            for begun in self._begun:
                begun.discard()
            self._begun.clear()

    # -- requests of the checks -------------------------------------------------------------

    def run(self, script: str, *arguments: str, **asked: Any) -> Result:
        limits: Mapping[str, Json] = asked.pop("limits", {})
        return self.runtime.exec(
            "shell", *arguments, stdin=script, cwd=self.work, set=limits, **asked
        )

    def said(self, script: str, *arguments: str, **asked: Any) -> str:
        result = self.run(script, *arguments, **asked)
        assert result.result is not None, f"refused: {result.violations}"
        return result.result.stdout

    def _anew(self, plan: Plan) -> tuple[Plan, Transaction]:
        """A plan that was already executed, with new layers for another run."""
        home, name = self.root / ".actum", f"again-{uuid.uuid4()}"
        begun = Transaction.begin(home, name, tuple(plan.layers))
        self._begun.append(begun)
        layers = {layer.grant: layer.folder for layer in begun.layers}
        again = bound(replace(plan, layers=layers))
        for layer in begun.layers:
            if not self.runner.takes_overlay(again, layer.grant):
                begun.copy(layer, plan.policy.deny, Bounds())
        begun.wait()
        return again, begun

    # -- checks -----------------------------------------------------------------------------

    def ends_as(self, scenario: Scenario) -> None:
        """Outcome, result, events, single start, partial output and survivors of one ending."""
        mark = f"4{uuid.uuid4().int % 10**9:09d}"
        cancel = Cancel()
        heard = bytearray()

        def hear(_name: str, chunk: bytes) -> None:
            heard.extend(chunk)
            if scenario.cancel and READY.encode() in heard:
                cancel.cancel()

        ending = scenario.script.replace(MARK, mark)
        script = f"echo x >> starts; echo '{SAID}'; echo '{SAID_ASIDE}' >&2; {ending}"
        result = self.run(script, limits=scenario.limits, on_output=hear, cancel=cancel)
        cancel.close()
        assert result.outcome is scenario.outcome, (result.outcome, result.result)
        self._result_is_whole(result, scenario)
        self._events_are_whole(result)
        assert (self.work / "starts").read_text() == "x\n", "the tool was not started exactly once"
        assert self._survivors(mark) == [], "a process of the tool is still alive"

    def _result_is_whole(self, result: Result, scenario: Scenario) -> None:
        tool_run = result.result
        assert tool_run is not None
        assert tool_run.status is scenario.status
        assert tool_run.status is PROJECTIONS[result.outcome].tool_run
        assert tool_run.exit_code == scenario.exit_code
        assert tool_run.stdout.startswith(SAID), "partial output was lost"
        assert "went on" not in tool_run.stdout, "the tool continued after a violation"
        assert tool_run.stderr.startswith(SAID_ASIDE), "partial output on stderr was lost"
        assert isinstance(tool_run.artifacts, tuple)
        assert type(tool_run.duration_ms) is int
        assert (tool_run.error_reason is None) == (tool_run.status is ToolRunStatus.SUCCESS)
        assert result.attempts == 1

    def _events_are_whole(self, result: Result) -> None:
        lifecycle = [event for event in self.runner.events if event.event_type in LIFECYCLE]
        assert [event.event_type for event in lifecycle] == list(LIFECYCLE)
        for event in lifecycle:
            assert event.tool_id == result.tool_id
            assert event.runner_type == self.runner.kind.value
            assert event.trace_id == result.trace_id
            assert event.execution_id == result.execution_id
            assert type(event.duration_ms) is int
        containers = {event.container_id for event in lifecycle}
        if self.runner.kind is RunnerKind.LOCAL:
            assert containers == {None}, "a runner without containers names one"
        else:
            assert len(containers) == 1, "container_id changed during one attempt"
            assert all(containers), "a container has no id"
        stored = Traces(self.runtime.database).of_execution(result.execution_id)
        recorded = {event["container_id"] for event in stored if event["event_type"] in LIFECYCLE}
        assert recorded == containers, "the records name another container"
        durations = [event.duration_ms for event in lifecycle]
        assert durations == sorted(durations)
        assert lifecycle[-1].outcome is PROJECTIONS[result.outcome].trace

    def a_tool_ends_at_its_deadline(self) -> None:
        """Not before it, and not later than the grace and the time that a busy host needs."""
        timeout_ms, most_ms = 4_000, 4_000 + int(TERM_GRACE_S * 1000) + 3_000
        stubborn = "trap '' TERM; (trap '' TERM; setsid sleep 600 &); sleep 600; sleep 600"
        began = time.monotonic()
        result = self.run(stubborn, limits={"sandbox.timeout_ms": timeout_ms})
        elapsed_ms = int((time.monotonic() - began) * 1000)
        assert result.outcome is Outcome.TIMED_OUT
        assert result.result is not None
        assert timeout_ms <= result.result.duration_ms <= most_ms, result.result.duration_ms
        assert result.result.duration_ms <= elapsed_ms, "longer than the caller waited"
        assert most_ms < 2 * timeout_ms

    def durations_are_measured(self) -> None:
        began = time.monotonic()
        result = self.run("sleep 1.5")
        elapsed_ms = int((time.monotonic() - began) * 1000)
        assert result.result is not None
        assert 1_500 <= result.result.duration_ms <= elapsed_ms
        lifecycle = [event for event in self.runner.events if event.event_type in LIFECYCLE]
        first, _applied, captured, last = (event.duration_ms for event in lifecycle)
        assert first == 0
        assert result.result.duration_ms <= captured <= last <= elapsed_ms

    def a_cancelled_invocation_never_starts(self) -> None:
        """Cancelled before its start: a result without an exit code, and all four events."""
        assert self.run("echo x > started").outcome is Outcome.SUCCEEDED
        started = self.work / "started"
        started.unlink()  # it was there: the control
        plan, begun = self._anew(self.runner.plans[-1])
        cancel = Cancel()
        cancel.cancel()
        result = self.run("echo x > started", cancel=cancel)
        assert result.outcome is Outcome.CANCELLED
        assert result.result is not None
        assert (result.result.status, result.result.exit_code) == (ToolRunStatus.KILLED, None)
        assert result.result.error_reason
        assert not started.exists()
        self.runner.events.clear()
        capture = self.runner.run(plan, lambda _event: None, cancel=cancel)
        cancel.close()
        assert capture.ending == Cancelled(0, started=False)
        assert not begun.look(), "a cancelled invocation wrote something"
        lifecycle = [event for event in self.runner.events if event.event_type in LIFECYCLE]
        assert [event.event_type for event in lifecycle] == list(LIFECYCLE)
        aborted = [event.data.get("aborted", False) for event in lifecycle]
        assert aborted == [False, True, True, False]

    def a_failing_listener_leaves_four_events(self) -> None:
        """The caller's `on_output` fails in the middle of a run: each later step is aborted."""

        def fail(_name: str, _chunk: bytes) -> None:
            raise _ListenerFailed

        mark = f"6{uuid.uuid4().int % 10**9:09d}"
        try:
            self.run(f"echo said; sleep 0.1; echo more; sleep {mark}", on_output=fail)
        except _ListenerFailed:
            lifecycle = [event for event in self.runner.events if event.event_type in LIFECYCLE]
            assert [event.event_type for event in lifecycle] == list(LIFECYCLE)
            aborted = [event.data.get("aborted", False) for event in lifecycle]
            assert aborted == [False, False, True, True], aborted
            assert lifecycle[-1].outcome is TraceOutcome.ERROR
            assert self._survivors(mark) == [], "a process of the tool is still alive"
            return
        raise AssertionError("the failure of the listener was swallowed")

    def limits_are_enforced_or_refused(self) -> None:
        result = self.run("true")
        if any(not row.enforceable for row in self.runner.capabilities()):
            assert result.outcome is Outcome.REJECTED, "ran without a limit it cannot enforce"
            assert "LIMIT_NOT_ENFORCEABLE" in result.reason_codes
            return
        rows = {row.limit: row for row in result.enforcement}
        assert set(LIMITS) <= set(rows), "the manifest has no line for a limit"
        assert all(row.enforced and row.mechanism for row in rows.values())

    def permissions_applied_are_those_given(self) -> None:
        limits = {"sandbox.memory_mb": 97, "sandbox.processes.max_children": 7}
        result = self.run("true", limits={**limits, "sandbox.timeout_ms": 9_123})
        plan = self.runner.plans[-1]
        rows = {row.limit: row.requested for row in result.enforcement}
        given = plan.policy.limits
        assert (given.memory_mb, given.max_children, given.timeout_ms) == (97, 7, 9_123)
        assert (rows["memory_mb"], rows["max_children"]) == ("97", "7")
        assert rows["timeout_ms"] == "9123"
        assert plan.proof.policy_sha256 == plan.policy.sha256, "the runner changed the policy"

    def another_plan_than_the_validated_one_is_refused(self) -> None:
        """Each field of the plan, of its proof and of the values in them, changed alone."""
        self.run("echo x > started")
        plan, begun = self._anew(self.runner.plans[-1])
        (self.work / "started").unlink()
        self.runner.events.clear()
        for field_name, other in _altered(plan):
            try:
                self.runner.run(other, lambda _event: None)
            except Refused as refusal:
                assert refusal.code == "PROOF_INVALID", f"{field_name}: {refusal}"
                continue
            raise AssertionError(f"a plan ran whose {field_name} was not the validated one")
        assert self.runner.events == [], "a refused plan emitted events"
        assert not (self.work / "started").exists()
        assert not begun.look(), "a refused plan wrote something"
        assert self.runner.run(plan, lambda _event: None).ending == Exited(0), "the plan itself"

    def nothing_starts_before_it_may(self) -> None:
        """Permission is requested once, before the start; no permission means no start."""
        mark = f"5{uuid.uuid4().int % 10**9:09d}"
        self.run(f"echo x >> started; sleep 0.{mark}")
        started = self.work / "started"
        plan = self.runner.plans[-1]
        found: list[str] = []
        again, begun = self._anew(plan)

        def permit() -> None:
            assert not begun.look(), "something ran before permission"
            found.append(started.read_text())

        self.runner.run(again, lambda _event: None, permit=permit).left()
        assert found == ["x\n"], "permission was not requested exactly once before the start"
        assert started.read_text() == "x\n", "it wrote to the project, not to its layers"
        self._begun.remove(begun)
        assert begun.commit(lambda _changes: ())[1] == "committed"
        assert started.read_text() == "x\nx\n", "it did not start in spite of permission"
        self.runner.events.clear()
        again, begun = self._anew(plan)
        try:
            self.runner.run(again, lambda _event: None, permit=_refuse)
        except _NotPermitted:
            assert started.read_text() == "x\nx\n", "it wrote without permission"
            assert not begun.look(), "it started without permission"
            assert self.runner.events == [], "an invocation without permission emitted events"
            assert self._survivors(mark) == [], "a process of it is still alive"
            return
        raise AssertionError("the runner continued without permission")

    def nothing_depends_on_its_rest(self) -> None:
        """`rest` may be omitted, or be called at any time, twice or in the middle of a run."""
        self.run("echo said")
        plan = self.runner.plans[-1]
        for rests in (0, 1, 2):
            for _ in range(2):
                again, _begun = self._anew(plan)
                capture = self.runner.run(
                    again,
                    lambda _event: None,
                    on_output=lambda _name, _chunk: self.runner.rest() if rests else None,  # noqa: B023
                )
                assert capture.stdout.kept == b"said\n", "a run was incomplete"
                assert capture.left() == (), capture.left()
                for _ in range(rests):
                    self.runner.rest()

    def the_same_input_gives_the_same_result(self) -> None:
        script = (
            'echo out; echo err >&2; ls -A; env | sort; printf a > "$ACTUM_ARTIFACTS/a"; exit 4'
        )
        first, second = self.run(script), self.run(script)
        assert first.result is not None
        assert second.result is not None
        for name in ("status", "exit_code", "stdout", "stderr"):
            assert getattr(first.result, name) == getattr(second.result, name), name
        hashes = [
            [it.sha256 for it in one.result.artifacts] for one in (first, second) if one.result
        ]
        assert hashes[0] == hashes[1]
        assert len(hashes[0]) == 1

    def nothing_is_kept_between_runs(self) -> None:
        self.run('echo x > /tmp/left; echo x > "$HOME/left2"; echo x > /dev/shm/left; sleep 77 &')
        seen = self.said(
            'ls -A /tmp "$HOME" /dev/shm | grep left; ps 2>/dev/null | grep "sleep 77"'
        )
        assert seen == ""

    def children_are_limited_exactly(self) -> None:
        script = "for i in 1 2 3 4 5 6; do sleep 1 & done; wait"
        enough = self.run(script, limits={"sandbox.processes.max_children": 6})
        assert enough.outcome is Outcome.SUCCEEDED, "six children of six were refused"
        few = self.run(script, limits={"sandbox.processes.max_children": 5})
        assert few.outcome is not Outcome.SUCCEEDED, "a sixth child of five was made"

    def forks_are_refused_where_they_are_forbidden(self) -> None:
        asked = {"sandbox.processes.allow_fork": False, "sandbox.processes.max_children": 9}
        assert "child" not in self.said("(echo child); true", limits=asked)
        assert self.said("echo alone", limits=asked) == "alone\n"

    def nothing_outside_can_be_read_or_written(self) -> None:
        outside = self.root.parent / f"outside-{uuid.uuid4()}"
        outside.write_text("SECRET")
        above = self.root / "above"
        script = 'cat "$1"; echo x >> "$1"; echo x > "$2"; ls -A ../.actum; true'
        assert self.said(script, str(outside), str(above)) == ""
        assert outside.read_text() == "SECRET"
        assert not above.exists()
        outside.unlink()

    def output_is_bounded_and_counted(self) -> None:
        total = 3 * STDOUT_BYTES + 7
        result = self.run(f"head -c {total} /dev/zero")
        assert result.streams is not None
        facts = result.streams["stdout"]
        assert (facts.bytes, facts.kept, facts.truncated) == (total, STDOUT_BYTES, True)
        assert facts.sha256 == hashlib.sha256(bytes(total)).hexdigest()

    def input_arrives_exactly(self) -> None:
        """The runner gets exactly the request, and the tool gets exactly that."""
        given = ("two words", "$HOME;`", "", "last")
        result = self.run('printf "%s\\n" "$@"; pwd; cat', *given)
        plan = self.runner.plans[-1]
        assert plan.tool.tool_id == result.tool_id
        assert plan.argv[-len(given) :] == given
        assert (plan.trace.trace_id, plan.trace.attempt) == (result.trace_id, 1)
        assert result.result is not None
        assert result.result.stdout == f"two words\n$HOME;`\n\nlast\n{self.work}\n"

    def only_declared_environment_arrives(self) -> None:
        os.environ["ACTUM_CONFORMANCE_UNDECLARED"] = "x"
        try:
            names = {line.partition("=")[0] for line in self.said("env").splitlines()}
        finally:
            del os.environ["ACTUM_CONFORMANCE_UNDECLARED"]
        shell_sets = {"PWD", "OLDPWD", "SHLVL", "_"}
        assert names - shell_sets == set(self.runner.plans[-1].environment) - shell_sets

    # -- tools with a session -------------------------------------------------------------

    def _shell(self, timeout_ms: int = 20_000, **bounds: Any) -> Channel:
        """A shell that reads its program line by line."""
        self.run("true", limits={"sandbox.timeout_ms": timeout_ms})
        spoken = replace(self.runner.plans[-1], stdin=b"")
        proof = replace(spoken.proof, call_sha256=spoken.call_sha256)
        plan, _begun = self._anew(replace(spoken, proof=proof))
        self.runner.events.clear()
        return self.runner.open(plan, lambda _event: None, **bounds)

    def nothing_is_kept_that_may_not_start(self) -> None:
        asked: list[None] = []
        self._shell(permit=lambda: asked.append(None)).close()
        assert asked == [None], "permission was not requested exactly once before the start"
        try:
            self._shell(permit=_refuse)
        except _NotPermitted:
            assert self.runner.events == [], "a start without permission emitted events"
            return
        raise AssertionError("it was opened without permission")

    def a_kept_tool_is_spoken_with_line_by_line(self) -> None:
        channel = self._shell()
        for number in (1, 2, 3):
            assert channel.send(f"x=$((x + {number})); echo said $x".encode())
            assert channel.receive(_soon()) == f"said {(1, 3, 6)[number - 1]}".encode()
        assert channel.over == ""
        assert channel.receive(time.monotonic() + 0.05) is None, "an unexpected line"
        assert channel.over == "", "the deadline of one line ended the session"
        capture = channel.close()
        assert capture.ending == Exited(0), "it does not exit at the end of its input"
        assert capture.stdout.kept == b"said 1\nsaid 3\nsaid 6\n"
        assert channel.close() == capture
        assert not channel.send(b"echo more")
        lifecycle = [event.event_type for event in self.runner.events]
        assert lifecycle == list(LIFECYCLE)

    def a_kept_tool_that_does_not_leave_is_ended(self) -> None:
        mark = f"4{uuid.uuid4().int % 10**9:09d}"
        channel = self._shell()
        channel.send(f"trap '' TERM; setsid sleep {mark} & echo there; sleep {mark}".encode())
        assert channel.receive(_soon()) == b"there"
        until = _soon()
        while not self._survivors(mark):
            assert time.monotonic() < until, "nothing to end"
        assert isinstance(channel.close().ending, Closed)
        assert self._survivors(mark) == [], "a process of the tool is still alive"

    def a_kept_tool_ends_at_its_deadline(self) -> None:
        channel = self._shell(timeout_ms=1_000)
        channel.send(b"trap '' TERM; sleep 600; sleep 600")
        assert channel.receive(_soon()) is None
        assert channel.over, "it was not ended at its deadline"
        assert isinstance(channel.close().ending, DeadlinePassed)

    def a_kept_tool_nobody_speaks_with_is_ended(self) -> None:
        channel = self._shell(idle_s=0.3)
        channel.send(b"sleep 0.6; echo busy")
        assert channel.receive(_soon()) == b"busy", "waiting for an answer is not idle"
        time.sleep(1.5)
        channel.send(b"echo more")
        assert channel.receive(_soon()) is None
        capture = channel.close()
        assert isinstance(capture.ending, Closed)
        rows = {row.limit: row.tripped for row in capture.enforcement}
        assert rows["idle_ms"]

    def a_message_is_bounded(self) -> None:
        channel = self._shell(message_bytes=1_000)
        channel.send(b"head -c 1000 /dev/zero | tr '\\0' x; echo; head -c 99999999 /dev/zero")
        assert channel.receive(_soon()) == b"x" * 1_000
        assert channel.receive(_soon()) is None
        assert "1000 bytes" in channel.over
        ending = channel.close().ending
        assert isinstance(ending, LimitKilled)
        assert ending.limit == "message_bytes"

    def what_a_kept_tool_complains_is_drained(self) -> None:
        channel = self._shell()
        total = 3 * STDERR_BYTES
        channel.send(f"head -c {total} /dev/zero >&2; echo after".encode())
        assert channel.receive(_soon()) == b"after", "a full stderr blocked the tool"
        stderr = channel.close().stderr
        assert (stderr.total_bytes, len(stderr.kept)) == (total, STDERR_BYTES)

    def a_kept_tool_that_is_not_read_waits(self) -> None:
        """And neither side blocks: earlier output is still there."""
        channel = self._shell()
        channel.send(b"yes | head -n 2000000 | tee /dev/stderr")
        big = b"#" * 3_000_000  # more than the capacity of a pipe
        sent = channel.send(big, time.monotonic() + 20)
        assert sent, "deadlock"
        assert channel.receive(_soon()) == b"y"
        channel.close()


def _soon() -> float:
    return time.monotonic() + 15


class _NotPermitted(Exception):
    pass


class _ListenerFailed(Exception):
    pass


def _altered(of: Any, at: str = "") -> Iterator[tuple[str, Any]]:
    """(field, a copy of the value that differs in this field alone), also for values inside."""
    for each in fields(of):
        now, where = getattr(of, each.name), f"{at}{each.name}"
        if hasattr(now, "__value__"):
            for inner, other in _altered(now, f"{where}."):
                yield inner, replace(of, **{each.name: other})
        else:
            other = _OTHERS[where] if where in _OTHERS else _other(now)
            yield where, replace(of, **{each.name: other})


#: Another value for fields whose elements are values themselves.
_OTHERS: dict[str, Any] = {
    "secrets": (SecretUse(name="OTHER", variable="OTHER"),),
    "sealed": (SealedInput(path="/etc/hostname", sha256="0" * 64, copy="/etc/hostname"),),
    "views": {"/usr": "/tmp/other"},
    "provided": {"other": b"other"},
    "image": RootImage(id="sha256:0", reference="other", folder="/", device=0, inode=0),
    "proof.checks": (Check(code="IV-01", result=CheckResult.STRIPPED, names=("other",)),),
    "policy.runner": RunnerKind.REMOTE,
    "policy.interpreters": (Interpreter(prefix="/opt/other"),),
    "policy.narrowed": (Narrowed(field="other", asked="2", given="1", by="other"),),
}


def _other(now: Any) -> Any:
    match now:
        case bool():
            return not now
        case int():
            return now + 1
        case str():
            return f"{now}x"
        case bytes():
            return now + b"x"
        case tuple():
            return (*now, "/etc/hostname")
        case Mapping():
            return {**now, "other": "other"}
        case None:
            return "other"
    raise AssertionError(f"no other value is known for {now!r}")


def _refuse() -> None:
    raise _NotPermitted


Checking = Callable[[RunnerConformance], None]


def _ending(scenario: Scenario) -> Checking:
    return lambda suite: suite.ends_as(scenario)


#: Every check, by the sentence that it proves.
CHECKS: dict[str, Checking] = {
    **{f"ends as {name}": _ending(scenario) for name, scenario in SCENARIOS.items()},
    **{
        name.replace("_", " "): getattr(RunnerConformance, name)
        for name in (
            "a_tool_ends_at_its_deadline",
            "durations_are_measured",
            "a_cancelled_invocation_never_starts",
            "a_failing_listener_leaves_four_events",
            "limits_are_enforced_or_refused",
            "permissions_applied_are_those_given",
            "another_plan_than_the_validated_one_is_refused",
            "nothing_starts_before_it_may",
            "nothing_depends_on_its_rest",
            "the_same_input_gives_the_same_result",
            "nothing_is_kept_between_runs",
            "children_are_limited_exactly",
            "forks_are_refused_where_they_are_forbidden",
            "nothing_outside_can_be_read_or_written",
            "output_is_bounded_and_counted",
            "input_arrives_exactly",
            "only_declared_environment_arrives",
            "nothing_is_kept_that_may_not_start",
            "a_kept_tool_is_spoken_with_line_by_line",
            "a_kept_tool_that_does_not_leave_is_ended",
            "a_kept_tool_ends_at_its_deadline",
            "a_kept_tool_nobody_speaks_with_is_ended",
            "a_message_is_bounded",
            "what_a_kept_tool_complains_is_drained",
            "a_kept_tool_that_is_not_read_waits",
        )
    },
}
