from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actum.capture.collection import ARTIFACT, OUTPUT_FILE
from actum.capture.endings import Verdict, check_outputs, conclude, interpret
from actum.capture.model import (
    Cancelled,
    Capture,
    Collected,
    DeadlinePassed,
    Ending,
    Exited,
    LimitKilled,
    NotCollected,
    PolicyBroken,
    Signalled,
    Stream,
)
from actum.contract.model import ArtifactSpec, ExpectedOutputs
from actum.contract.outcome import PROJECTIONS, Outcome, ToolRunStatus
from actum.value import FrozenError

SILENT = Stream(kept=b"", total_bytes=0, sha256="")
OOM = LimitKilled("memory_mb", "memory.events oom_kill 0 -> 1")

ENDINGS: st.SearchStrategy[Ending] = st.one_of(
    st.integers(0, 255).map(Exited),
    st.integers(1, 64).map(Signalled),
    st.sampled_from([0, 9, 15]).map(DeadlinePassed),
    st.sampled_from([0, 9, 15]).map(Cancelled),
    st.sampled_from([OOM, LimitKilled("scratch", "1048576 of 1048576 bytes")]),
    st.just(PolicyBroken("system call mount")),
)


def capture(ending: Ending, **parts: tuple[object, ...]) -> Capture:
    return Capture(ending=ending, stdout=SILENT, stderr=SILENT, duration_ms=1, **parts)


def collected(path: str, kind: str) -> Collected:
    return Collected(name=path, path=path, kind=kind, content=b"", sha256="", blake3="")


def judged(outputs: ExpectedOutputs, captured: Capture) -> tuple[Outcome, tuple[str, ...]]:
    problems = check_outputs(outputs, interpret(captured.ending), captured)
    return conclude(outputs, captured, problems).outcome, problems


@pytest.mark.req("000-81", "000-183")
def test_zero_is_success_and_the_workflow_continues():
    assert interpret(Exited(0)) == Verdict(
        outcome=Outcome.SUCCEEDED,
        exit_code=0,
        signal=None,
        reason_codes=(),
        action="Continue workflow",
        error_reason=None,
    )


@pytest.mark.req("000-82", "000-183")
@pytest.mark.parametrize("code", range(1, 126))
def test_codes_1_to_125_are_the_tools_own_errors(code: int):
    assert interpret(Exited(code)) == Verdict(
        outcome=Outcome.TOOL_ERROR,
        exit_code=code,
        signal=None,
        reason_codes=("TOOL_EXIT_NONZERO",),
        action="Log and handle",
        error_reason=f"exit code {code}",
    )


@pytest.mark.req("000-183")
def test_126_is_permission_denied_and_escalates():
    verdict = interpret(Exited(126))
    assert (verdict.outcome, verdict.exit_code, verdict.action, verdict.reason_codes) == (
        Outcome.PERMISSION_DENIED,
        126,
        "Escalate",
        ("TOOL_PERMISSION_DENIED",),
    )


@pytest.mark.req("000-183")
def test_127_is_command_not_found_and_leads_to_the_allowlist():
    verdict = interpret(Exited(127))
    assert (verdict.outcome, verdict.exit_code, verdict.action, verdict.reason_codes) == (
        Outcome.COMMAND_NOT_FOUND,
        127,
        "Check allowlist",
        ("TOOL_NOT_FOUND",),
    )


@pytest.mark.req("000-85", "000-183")
@pytest.mark.parametrize("code", range(128, 256))
def test_codes_from_128_name_the_signal(code: int):
    verdict = interpret(Exited(code))
    assert (verdict.outcome, verdict.exit_code, verdict.signal, verdict.action) == (
        Outcome.TOOL_ERROR,
        code,
        code - 128,
        "Log signal number",
    )


@pytest.mark.req("000-86", "000-183")
def test_137_is_out_of_memory_only_with_the_kernels_proof():
    proven = interpret(OOM)
    assert (proven.outcome, proven.exit_code, proven.action, proven.reason_codes) == (
        Outcome.RESOURCE_KILLED,
        137,
        "Increase memory or fail",
        ("LIMIT_EXCEEDED",),
    )
    assert proven.error_reason == "killed at the limit memory_mb: memory.events oom_kill 0 -> 1"

    killed = interpret(Signalled(9))
    assert (killed.outcome, killed.exit_code, killed.signal) == (Outcome.TOOL_ERROR, 137, 9)
    assert killed.error_reason == "killed by SIGKILL, not by a limit"

    claimed = interpret(Exited(137))
    assert (claimed.outcome, claimed.exit_code, claimed.signal) == (Outcome.TOOL_ERROR, 137, 9)
    assert claimed.error_reason == "exit code 137: reports SIGKILL"


def test_a_full_scratch_is_no_reason_to_ask_for_memory():
    verdict = interpret(LimitKilled("scratch", "full"))
    assert (verdict.outcome, verdict.exit_code) == (Outcome.RESOURCE_KILLED, 137)
    assert verdict.action != "Increase memory or fail"


@pytest.mark.req("000-87", "000-183")
@pytest.mark.parametrize(("signal", "recorded"), [(15, 15), (9, 9), (0, None)])
def test_a_passed_deadline_is_143_whatever_finally_ended_it(signal: int, recorded: int | None):
    verdict = interpret(DeadlinePassed(signal))
    assert (verdict.outcome, verdict.exit_code, verdict.signal, verdict.action) == (
        Outcome.TIMED_OUT,
        143,
        recorded,
        "Extend timeout or fail",
    )


def test_a_tool_that_exits_with_143_itself_did_not_time_out():
    for ending in (Exited(143), Signalled(15)):
        verdict = interpret(ending)
        assert (verdict.outcome, verdict.exit_code, verdict.signal) == (Outcome.TOOL_ERROR, 143, 15)


@pytest.mark.req("000-88")
@pytest.mark.parametrize("number", range(1, 65))
def test_a_signal_is_reported_as_128_plus_its_number(number: int):
    verdict = interpret(Signalled(number))
    assert (verdict.exit_code, verdict.signal) == (128 + number, number)


@pytest.mark.parametrize(("signal", "code"), [(15, 143), (9, 137), (0, 143)])
def test_a_cancelled_tool_says_by_which_signal(signal: int, code: int):
    verdict = interpret(Cancelled(signal))
    assert (verdict.outcome, verdict.exit_code, verdict.reason_codes) == (
        Outcome.CANCELLED,
        code,
        ("CANCELLED",),
    )


def test_a_broken_policy_is_a_violation_that_names_the_attempt():
    verdict = interpret(PolicyBroken("system call mount"))
    assert (verdict.outcome, verdict.exit_code, verdict.action) == (
        Outcome.POLICY_VIOLATION,
        137,
        "Escalate",
    )
    assert "system call mount" in (verdict.error_reason or "")


@pytest.mark.req("004-42")
@given(
    ending=ENDINGS,
    expected=st.none() | st.integers(0, 255),
    problems=st.lists(st.just("outputs.x: y"), max_size=1).map(tuple),
)
def test_only_a_successful_tool_has_no_error_reason(
    ending: Ending, expected: int | None, problems: tuple[str, ...]
):
    verdict = conclude(ExpectedOutputs(exit_code=expected), capture(ending), problems)
    succeeded = PROJECTIONS[verdict.outcome].tool_run is ToolRunStatus.SUCCESS
    assert (verdict.error_reason is None) == succeeded
    assert verdict.error_reason != ""
    assert (verdict.reason_codes == ()) == (verdict.outcome is Outcome.SUCCEEDED)
    assert verdict.exit_code is not None
    assert 0 <= verdict.exit_code <= 255


@pytest.mark.req("000-24")
@pytest.mark.parametrize(
    ("expected", "ending", "outcome", "problem_count"),
    [
        (None, Exited(0), Outcome.SUCCEEDED, 0),
        (None, Exited(1), Outcome.TOOL_ERROR, 0),
        (0, Exited(0), Outcome.SUCCEEDED, 0),
        (0, Exited(1), Outcome.TOOL_ERROR, 1),
        (1, Exited(1), Outcome.SUCCEEDED, 0),
        (1, Exited(0), Outcome.OUTPUT_INVALID, 1),
        (1, Exited(2), Outcome.TOOL_ERROR, 1),
        (127, Exited(127), Outcome.SUCCEEDED, 0),
        (137, Exited(137), Outcome.SUCCEEDED, 0),
        (137, Signalled(9), Outcome.TOOL_ERROR, 0),
        (137, OOM, Outcome.RESOURCE_KILLED, 0),
        (143, DeadlinePassed(15), Outcome.TIMED_OUT, 0),
        (0, DeadlinePassed(15), Outcome.TIMED_OUT, 1),
    ],
)
def test_the_declared_exit_code_is_what_the_tool_must_exit_with(
    expected: int | None, ending: Ending, outcome: Outcome, problem_count: int
):
    got, problems = judged(ExpectedOutputs(exit_code=expected), capture(ending))
    assert got is outcome
    assert len(problems) == problem_count
    assert all(problem.startswith("outputs.exit_code: ") for problem in problems)


def test_an_expected_code_keeps_its_number():
    verdict = conclude(ExpectedOutputs(exit_code=1), capture(Exited(1)))
    assert (verdict.exit_code, verdict.action) == (1, "Continue workflow")


def test_the_problems_of_a_failed_tool_join_its_own_reason():
    verdict = conclude(
        ExpectedOutputs(), capture(Exited(3)), ("outputs.output_files: out.txt is missing",)
    )
    assert verdict.outcome is Outcome.TOOL_ERROR
    assert verdict.error_reason == "exit code 3; outputs.output_files: out.txt is missing"


@pytest.mark.req("000-25", "000-184")
def test_a_declared_output_file_that_is_absent_makes_the_output_invalid():
    outputs = ExpectedOutputs(output_files=("here.txt", "gone.txt"))
    absent = NotCollected(path="gone.txt", kind=OUTPUT_FILE, reason="missing")
    got, problems = judged(
        outputs,
        capture(
            Exited(0), collected=(collected("here.txt", OUTPUT_FILE),), not_collected=(absent,)
        ),
    )
    assert got is Outcome.OUTPUT_INVALID
    (problem,) = problems
    assert problem == (
        "outputs.output_files: gone.txt was not collected: missing; "
        "have the tool write it, or do not declare it"
    )


def test_a_declared_output_file_that_nobody_looked_for_is_a_problem_too():
    got, problems = judged(ExpectedOutputs(output_files=("out.txt",)), capture(Exited(0)))
    assert got is Outcome.OUTPUT_INVALID
    assert problems == (
        "outputs.output_files: out.txt is missing; have the tool write it, or do not declare it",
    )


@pytest.mark.parametrize(
    ("declared", "found"),
    [
        ("out.txt", "out.txt"),
        ("./sub/../out.txt", "out.txt"),
        ("/work/out.txt", "work/out.txt"),
        ("/work/out.txt", "out.txt"),
        ("out.txt", "work/out.txt"),
        ("100%.txt", "100%25.txt"),
    ],
)
def test_a_collected_file_is_recognised_from_any_granted_root(declared: str, found: str):
    outputs = ExpectedOutputs(output_files=(declared,))
    got, _ = judged(outputs, capture(Exited(0), collected=(collected(found, OUTPUT_FILE),)))
    assert got is Outcome.SUCCEEDED


def test_a_file_whose_name_merely_ends_alike_is_another_file():
    outputs = ExpectedOutputs(output_files=("out.txt",))
    other = collected("about.txt", OUTPUT_FILE)
    same_name_of_other_kind = collected("out.txt", ARTIFACT)
    got, _ = judged(outputs, capture(Exited(0), collected=(other, same_name_of_other_kind)))
    assert got is Outcome.OUTPUT_INVALID


@pytest.mark.req("000-184")
def test_a_declared_artifact_must_have_been_left():
    outputs = ExpectedOutputs(artifacts=(ArtifactSpec(name="report", path="./r/report.json"),))
    assert judged(outputs, capture(Exited(0)))[0] is Outcome.OUTPUT_INVALID
    left = capture(Exited(0), collected=(collected("r/report.json", ARTIFACT),))
    assert judged(outputs, left) == (Outcome.SUCCEEDED, ())


@pytest.mark.req("000-79")
@pytest.mark.parametrize("kind", [OUTPUT_FILE, ARTIFACT])
def test_a_file_over_the_total_fails_the_collection_by_name_and_size(kind: str):
    over = NotCollected(path="big", kind=kind, reason="over the total of 10 bytes", size=11)
    got, problems = judged(ExpectedOutputs(), capture(Exited(0), not_collected=(over,)))
    assert got is Outcome.OUTPUT_INVALID
    assert len(problems) == 1
    assert "big (11 bytes) was not collected: over the total of 10 bytes" in problems[0]


@pytest.mark.parametrize("reason", ["symbolic link", "FIFO", "socket or device"])
def test_a_stray_link_is_a_problem_only_where_a_file_was_declared(reason: str):
    stray = NotCollected(path="latest", kind=ARTIFACT, reason=reason)
    captured = capture(Exited(0), not_collected=(stray,))
    assert judged(ExpectedOutputs(), captured)[0] is Outcome.SUCCEEDED
    declared = ExpectedOutputs(artifacts=(ArtifactSpec(name="latest", path="latest"),))
    assert judged(declared, captured)[0] is Outcome.OUTPUT_INVALID


def test_a_verdict_cannot_be_changed_afterwards():
    with pytest.raises(FrozenError):
        interpret(Exited(1)).outcome = Outcome.SUCCEEDED  # type: ignore[misc]
