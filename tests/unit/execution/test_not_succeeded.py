"""`Result.check()`: the error has what a person needs first: outcome, reason, last output."""

from __future__ import annotations

import base64

import pytest

from actum import NotSucceeded, Outcome, Result, ToolRunResult, Violation
from actum.contract.outcome import ToolRunStatus
from actum.execution.result import StreamFacts


def result(stdout: str = "", stderr: str = "", encoding: str = "utf-8") -> Result:
    facts = StreamFacts(bytes=1, kept=1, truncated=False, sha256="", encoding=encoding)
    return Result(
        **dict.fromkeys(("execution_id", "trace_id", "session", "tool_id"), "x"),
        adapter_id=None,
        runner_type="local",
        attempts=1,
        outcome=Outcome.TOOL_ERROR,
        reason_codes=("TOOL_EXIT_NONZERO",),
        result=ToolRunResult(
            status=ToolRunStatus.ERROR,
            exit_code=2,
            stdout=stdout,
            stderr=stderr,
            artifacts=(),
            duration_ms=1,
            error_reason="exit code 2",
        ),
        streams={"stdout": facts, "stderr": facts},
    )


def text_of(found: Result) -> str:
    with pytest.raises(NotSucceeded) as caught:
        found.check()
    assert caught.value.result is found
    return str(caught.value)


def test_the_end_of_stderr_is_shown() -> None:
    said = text_of(result("out\n", "one\ntwo\n\n"))
    assert said.splitlines() == [
        "TOOL_ERROR (TOOL_EXIT_NONZERO): exit code 2",
        "The end of stderr:",
        "  | one",
        "  | two",
    ]


def test_the_end_of_stdout_is_shown_if_stderr_is_empty() -> None:
    assert text_of(result("1 failed\n")).splitlines()[1:] == ["The end of stdout:", "  | 1 failed"]
    assert text_of(result()) == "TOOL_ERROR (TOOL_EXIT_NONZERO): exit code 2"


def test_it_is_bounded_and_its_end_is_the_end_of_the_output() -> None:
    many = text_of(result(stderr="".join(f"line {n}\n" for n in range(100_000))))
    assert many.splitlines()[-1] == "  | line 99999"
    assert len(many.splitlines()) == 22
    long = text_of(result(stderr="x" * 1_000_000 + "end"))
    assert len(long) < 1_000
    assert long.endswith("xend")


def test_no_character_of_the_tool_steers_a_terminal_or_forges_a_line() -> None:
    said = text_of(result(stderr="\x1b[2J\x9bA\u202eevil\r\nactum: SUCCEEDED\rx\x07\u2028y\n"))
    assert all(letter.isprintable() or letter == "\n" for letter in said)
    assert all(line.startswith("  | ") for line in said.splitlines()[2:])
    assert r"\x1b[2J" in said


def test_output_that_is_not_text_is_decoded_as_far_as_it_is() -> None:
    encoded = base64.b64encode(b"\xff" * 20_000 + b"\nthe reason\n").decode()
    assert text_of(result(stderr=encoded, encoding="base64")).endswith("  | the reason")


def test_a_refusal_has_its_violations() -> None:
    refused = Result(
        **dict.fromkeys(("execution_id", "trace_id", "session", "tool_id"), "x"),
        adapter_id=None,
        runner_type=None,
        attempts=0,
        outcome=Outcome.REJECTED,
        reason_codes=("IV_03",),
        violations=(Violation(code="IV-03", field="f", value="", message="Not this path."),),
    )
    assert text_of(refused) == "REJECTED (IV_03): Not this path."
