"""Errors are on record with their context: tool, adapter, attempt, phase and code."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from actum import Outcome, Result, Runtime
from actum.runners.base import Cancel
from common.made_tools import MadeTools, cli_adapter, made_tools

pytestmark = [pytest.mark.sandbox, pytest.mark.req("000-182")]

RETRY = {"max_attempts": 2, "backoff_ms": 1, "retryable_codes": [75]}
TOOL = "TL-several"


@pytest.fixture(scope="module")
def made() -> Iterator[MadeTools]:
    with made_tools() as opened:
        fallback = {"adapter_id": "ADP-bash", "condition": "on_error"}
        missing = {"adapter_id": "ADP-bash", "condition": "on_not_found"}
        opened.add(
            "several",
            [
                cli_adapter("ADP-sh"),
                cli_adapter("ADP-bash", "bash", status="experimental"),
                cli_adapter(
                    "ADP-again", status="experimental", errors={"retry": RETRY, "fallback": None}
                ),
                cli_adapter(
                    "ADP-instead",
                    status="experimental",
                    errors={"retry": RETRY, "fallback": fallback},
                ),
                cli_adapter(
                    "ADP-absent",
                    "no-such-shell",
                    status="experimental",
                    errors={"retry": {**RETRY, "max_attempts": 1}, "fallback": missing},
                ),
                cli_adapter(
                    "ADP-parse",
                    status="experimental",
                    transforms={"input": [], "output": [{"type": "parse", "spec": "json"}]},
                ),
            ],
            operations={"sh": {"idempotent": True}},
        )
        yield opened


def errors(made: MadeTools, result: Result) -> list[tuple[str, str | None, int, str, str]]:
    """As the trace has them; the evidence record must list the same."""
    events = made.events(result, "error")
    assert all(event["execution_id"] == result.execution_id for event in events)
    listed = [
        {
            "tool_id": event["tool_id"],
            "adapter_id": event["data"]["adapter_id"],
            "attempt": event["attempt"],
            "phase": event["data"]["phase"],
            "code": event["data"]["code"],
        }
        for event in events
    ]
    assert made.evidence(result)["errors"] == listed
    return [tuple(each.values()) for each in listed]  # type: ignore[misc]


def run(made: MadeTools, script: str, adapter_id: str = "ADP-sh", **words: Any) -> Result:
    return made.rt.exec("several", stdin=script, adapter_id=adapter_id, **words)


@pytest.mark.parametrize(
    ("script", "outcome", "code"),
    [
        ("exit 3", Outcome.TOOL_ERROR, "TOOL_EXIT_NONZERO"),
        ("exit 126", Outcome.PERMISSION_DENIED, "TOOL_PERMISSION_DENIED"),
        ("exit 127", Outcome.COMMAND_NOT_FOUND, "TOOL_NOT_FOUND"),
        ("sleep 30", Outcome.TIMED_OUT, "EXECUTOR_TIMEOUT"),
        ("head -c 400000000 /dev/zero | tail", Outcome.RESOURCE_KILLED, "LIMIT_EXCEEDED"),
        ("mount -t tmpfs none /tmp", Outcome.POLICY_VIOLATION, "POLICY_VIOLATION"),
    ],
)
def test_each_failing_ending_is_on_record(
    made: MadeTools, script: str, outcome: Outcome, code: str
) -> None:
    result = run(made, script, timeout="2s", memory="64M")
    assert result.outcome is outcome
    assert errors(made, result) == [(TOOL, "ADP-sh", 1, "runner", code)]


def test_a_success_has_no_error(made: MadeTools) -> None:
    assert errors(made, run(made, "true").check()) == []


def test_outputs_that_are_not_as_expected_have_a_phase_of_their_own(made: MadeTools) -> None:
    result = run(made, "echo no json", "ADP-parse")
    assert result.outcome is Outcome.OUTPUT_INVALID
    assert errors(made, result) == [(TOOL, "ADP-parse", 1, "outputs", "OUTPUT_INVALID")]


def test_a_cancelled_execution_is_on_record(made: MadeTools) -> None:
    cancel = Cancel()
    cancel.cancel()
    result = run(made, "true", cancel=cancel)
    assert result.outcome is Outcome.CANCELLED
    ((tool, adapter, attempt, _phase, code),) = errors(made, result)
    assert (tool, adapter, attempt, code) == (TOOL, "ADP-sh", 1, "CANCELLED")


@pytest.mark.parametrize(
    ("words", "adapter", "phase", "code"),
    [
        ({"adapter_id": "ADP-999"}, "ADP-999", "registry", "ADAPTER_UNKNOWN"),
        ({"parameters": {"x": 1}}, "ADP-sh", "validation", "ARGS_INVALID"),
        ({"cwd": "/etc"}, "ADP-sh", "validation", "IV_03"),
    ],
)
def test_a_refusal_says_in_which_phase(
    made: MadeTools, words: dict[str, Any], adapter: str, phase: str, code: str
) -> None:
    result = made.rt.exec("several", stdin="true", **{"adapter_id": "ADP-sh", **words})
    assert result.outcome is Outcome.REJECTED
    assert errors(made, result) == [(TOOL, adapter, 1, phase, code)]


def test_an_unknown_tool_is_on_record(made: MadeTools) -> None:
    result = made.rt.exec("TL-999", stdin="true", set={"inputs.command": "sh"})
    assert errors(made, result) == [("TL-999", None, 1, "registry", "TOOL_UNKNOWN")]


def test_every_attempt_has_its_own_error(made: MadeTools) -> None:
    result = run(made, "exit 75", "ADP-again")
    assert result.attempts == 2
    code = "TOOL_EXIT_NONZERO"
    assert errors(made, result) == [
        (TOOL, "ADP-again", 1, "runner", code),
        (TOOL, "ADP-again", 2, "runner", code),
    ]


def test_an_attempt_that_failed_is_on_record_although_the_next_succeeded(made: MadeTools) -> None:
    script = "test -e tried && exit 0; touch tried; exit 75"
    result = run(made, script, "ADP-again").check()
    assert result.attempts == 2
    assert errors(made, result) == [(TOOL, "ADP-again", 1, "runner", "TOOL_EXIT_NONZERO")]


def test_a_fallback_has_the_errors_of_both_adapters(made: MadeTools) -> None:
    result = run(made, "exit 4", "ADP-instead")
    assert result.adapter_id == "ADP-bash"
    code = "TOOL_EXIT_NONZERO"
    assert errors(made, result) == [
        (TOOL, "ADP-instead", 1, "runner", code),
        (TOOL, "ADP-bash", 2, "runner", code),
    ]


def test_a_program_that_is_not_installed_is_on_record_before_its_fallback(made: MadeTools) -> None:
    result = run(made, "true", "ADP-absent").check()
    assert result.adapter_id == "ADP-bash"
    ((tool, adapter, attempt, phase, code),) = errors(made, result)
    assert (tool, adapter, attempt, code) == (TOOL, "ADP-absent", 1, "EXECUTABLE_MISSING")
    assert phase == "policy"


def test_an_execution_whose_process_died_is_on_record(made: MadeTools) -> None:
    program = (
        "import os, sys\n"
        "from actum import Runtime\n"
        f"rt = Runtime.open({str(made.root)!r}, pool=False)\n"
        "rt.exec('several', stdin='echo on; sleep 30', adapter_id='ADP-sh',"
        f" cwd={str(made.root)!r}, set={{'execution_id': sys.argv[1]}},"
        " on_output=lambda _name, _chunk: os._exit(9))\n"
    )
    execution_id = "4f3b2a10-0000-4000-8000-000000000182"
    dead = subprocess.run([sys.executable, "-c", program, execution_id], check=False)
    assert dead.returncode == 9
    with Runtime.open(made.root, pool=False) as other:
        row = other.database.row(
            "SELECT document FROM evidence_records WHERE execution_id = ?", (execution_id,)
        )
    assert row is not None
    assert json.loads(row[0])["errors"] == [
        {
            "tool_id": TOOL,
            "adapter_id": "ADP-sh",
            "attempt": 1,
            "phase": "runner",
            "code": "INTERRUPTED",
        }
    ]


def test_all_of_it_verifies(made: MadeTools) -> None:
    run(made, "exit 75", "ADP-instead")
    assert made.broken() == []
