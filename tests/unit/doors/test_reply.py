"""The one line about an execution says what its reader needs to go on."""

from __future__ import annotations

from actum import Outcome, Result
from actum.capture.model import Enforced
from actum.contract.outcome import ToolRunStatus
from actum.doors.cli.reply import summary_lines
from actum.execution.result import ToolRunResult


def _failed(*tripped: str) -> Result:
    limits = ("memory_mb", "max_children", "cpu_cores")
    return Result(
        execution_id="e",
        trace_id="t",
        session="s",
        tool_id="TL-010",
        adapter_id="ADP-011",
        runner_type="local",
        attempts=1,
        outcome=Outcome.TOOL_ERROR,
        reason_codes=("TOOL_EXIT_NONZERO",),
        result=ToolRunResult(
            status=ToolRunStatus.ERROR,
            exit_code=2,
            stdout="",
            stderr="sh: 0: Cannot fork\n",
            artifacts=(),
            duration_ms=7,
            error_reason="exit code 2",
        ),
        enforcement=tuple(
            Enforced(
                limit=limit, requested="2", mechanism="m", enforced=True, tripped=limit in tripped
            )
            for limit in limits
        ),
        receipt_id="r",
    )


def test_a_tool_that_failed_at_a_limit_is_told_with_it() -> None:
    assert list(summary_lines(_failed("max_children"))) == [
        "actum: TOOL_ERROR · exit code 2 · 7 ms · max_children reached · receipt r"
    ]


def test_a_limit_that_only_slows_is_no_reason() -> None:
    assert list(summary_lines(_failed("cpu_cores"))) == [
        "actum: TOOL_ERROR · exit code 2 · 7 ms · receipt r"
    ]
