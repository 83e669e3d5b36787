"""Whatever a server does, the call ends in time and is reported as what it was."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from actum import Outcome, Result, Runtime
from actum.contract.limits import STDERR_BYTES
from actum.runners.base import Cancel
from actum.testing.conformance import processes_with

from .project import small

pytestmark = pytest.mark.sandbox

#: how it misbehaves -> (outcome, part of the reason)
ENDINGS = {
    "big": (Outcome.RESOURCE_KILLED, "message_bytes"),
    "hang": (Outcome.TIMED_OUT, "timeout_ms"),
    "die": (Outcome.TOOL_ERROR, "exit code 3"),
    "leave": (Outcome.TOOL_ERROR, "gone before it answered"),
    "memory": (Outcome.RESOURCE_KILLED, "memory_mb"),
    "garbage": (Outcome.TOOL_ERROR, "not JSON"),
    "deep": (Outcome.TOOL_ERROR, "not JSON"),
    "batch": (Outcome.TOOL_ERROR, "not a JSON-RPC"),
    "wrong id": (Outcome.TOOL_ERROR, "that was not sent"),
    "no id": (Outcome.TOOL_ERROR, "that was not sent"),
    "half": (Outcome.TIMED_OUT, "timeout_ms"),
    "half and die": (Outcome.TOOL_ERROR, "exit code 3"),
    "notify": (Outcome.RESOURCE_KILLED, "messages"),
    "drip": (Outcome.TIMED_OUT, "timeout_ms"),
    "schema": (Outcome.TOOL_ERROR, "broke the protocol"),
}


@pytest.fixture(scope="module", params=[False, True], ids=["one call", "kept"])
def rt(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Runtime]:
    root = tmp_path_factory.mktemp("hostile") / "project"
    with small(root, stateful=request.param) as runtime:
        yield runtime


def ask(rt: Runtime, how: str, **more: object) -> Result:
    return rt.exec(
        "small:misbehave",
        cwd=rt.settings.root / "work",
        parameters={"text": how},
        # What is not meant to time out has time enough on a busy machine.
        timeout="3s" if ENDINGS.get(how, (None,))[0] is Outcome.TIMED_OUT else "30s",
        **more,  # type: ignore[arg-type]
    )


def alive(rt: Runtime) -> list[int]:
    return processes_with(str(rt.settings.root / "tools" / "small" / "server.py"))


@pytest.mark.parametrize("how", ENDINGS)
def test_a_server_that_does(rt: Runtime, how: str) -> None:
    outcome, reason = ENDINGS[how]
    began = time.monotonic()
    result = ask(rt, how)
    assert time.monotonic() - began < 60, "far beyond its deadline"
    assert result.outcome is outcome, result.result
    assert result.result is not None
    assert reason in (result.result.error_reason or "")
    assert alive(rt) == [], "a server that misbehaved is still there"
    after = rt.exec("small:count", cwd=rt.settings.root / "work")
    assert after.ok, "the next call gets another server"


def test_an_answer_that_comes_twice_is_found_before_the_next_question(rt: Runtime) -> None:
    first = ask(rt, "twice")
    assert first.outcome is Outcome.SUCCEEDED
    if "server kept open" not in first.enforcement[1].mechanism:
        return
    work = rt.settings.root / "work"
    second = rt.exec("small:count", cwd=work)
    assert second.outcome is Outcome.TOOL_ERROR
    assert second.result is not None
    assert "that was not sent" in (second.result.error_reason or "")
    assert alive(rt) == []
    assert rt.exec("small:count", cwd=work).ok, "another server answers"


def test_complaints_are_drained_and_counted(rt: Runtime) -> None:
    result = ask(rt, "complain")
    assert result.outcome is Outcome.SUCCEEDED
    kept = "server kept open" in result.enforcement[1].mechanism
    if not kept:
        assert result.streams is not None
        facts = result.streams["stderr"]
        assert (facts.bytes, facts.kept) == (64 * 65_536, STDERR_BYTES)


def test_what_a_server_asks_for_is_declined(rt: Runtime) -> None:
    result = ask(rt, "ask")
    assert result.result is not None
    content = json.loads(result.result.stdout)["content"]
    assert json.loads(content[0]["text"]) == [-32601, -32601]


def test_a_call_can_be_cancelled(rt: Runtime) -> None:
    cancel = Cancel()
    threading.Timer(1.0, cancel.cancel).start()
    result = rt.exec(
        "small:misbehave",
        cwd=rt.settings.root / "work",
        parameters={"text": "hang"},
        cancel=cancel,
    )
    cancel.close()
    assert result.outcome is Outcome.CANCELLED
    assert alive(rt) == []


def test_what_a_server_left_running_ends_with_it(tmp_path: Path) -> None:
    with small(tmp_path / "project") as rt:
        assert ask(rt, "fork").ok
        assert alive(rt) == []


@pytest.mark.parametrize(
    ("when", "outcome"),
    [
        ("hang", Outcome.TIMED_OUT),
        ("die", Outcome.TOOL_ERROR),
        ("garbage", Outcome.TOOL_ERROR),
        ("big", Outcome.RESOURCE_KILLED),
        ("notify", Outcome.RESOURCE_KILLED),
    ],
)
def test_a_server_that_misbehaves_before_anything_is_asked(
    tmp_path: Path, when: str, outcome: Outcome
) -> None:
    with small(tmp_path / "project", when=when) as rt:
        result = rt.exec(
            "small:echo",
            cwd=rt.settings.root / "work",
            parameters={"text": "x"},
            timeout="3s" if outcome is Outcome.TIMED_OUT else "30s",
        )
        assert result.outcome is outcome, result.result
        assert alive(rt) == []
        lost = rt.database.rows("SELECT execution_id FROM executions WHERE state = 'PENDING'")
        assert lost == []
