"""Retries of HTTP calls: when, how often, how long after; and what is on record of each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from actum import Outcome
from actum.evidence.traces import Traces
from actum.runners.base import Cancel

from .service import Project, Service, in_turn, said

pytestmark = pytest.mark.sandbox
GOOD = said({"data": "done"})


@pytest.mark.req("000-114", "000-115", "000-116", "000-145")
@pytest.mark.parametrize("status", [429, 500, 502, 503])
def test_a_listed_status_is_tried_again_and_the_wait_doubles(
    project: Project, service: Service, status: int
) -> None:
    service.answer = lambda _request: said({"error": 1}, status)
    result = project.call("get_resource", parameters={"id": 1})
    assert (result.outcome, result.attempts) == (Outcome.TOOL_ERROR, 3)
    assert (len(service.seen), project.waits.waited) == (3, [1.0, 2.0])
    assert [(a.attempt, a.code) for a in result.history] == [(n, status) for n in (1, 2, 3)]
    assert "max_attempts 3 reached" in result.history[-1].why


@pytest.mark.req("000-116", "000-145")
@pytest.mark.parametrize("headers", [{}, {"Retry_After": "1"}], ids=["", "with a delay"])
@pytest.mark.parametrize("status", [400, 404, 501, 504])
def test_a_status_that_is_not_listed_never_is(
    project: Project, service: Service, status: int, headers: dict[str, str]
) -> None:
    service.answer = lambda _request: said({"error": 1}, status, **headers)
    result = project.call("get_resource", parameters={"id": 1})
    assert (result.attempts, len(service.seen), project.waits.waited) == (1, 1, [])
    assert result.history[0].why == f"code {status} is not retryable"


@pytest.mark.req("000-114")
def test_a_success_ends_it_and_every_attempt_is_on_record(
    project: Project, service: Service
) -> None:
    service.answer = in_turn(said({}, 503), GOOD)
    result = project.call("get_resource", parameters={"id": 1}).check()
    assert (result.output, result.attempts, len(service.seen)) == ("done", 2, 2)
    assert [(a.code, a.outcome) for a in result.history] == [
        (503, "TOOL_ERROR"),
        (200, "SUCCEEDED"),
    ]
    assert result.history[0].output_digest != result.history[1].output_digest
    events = Traces(project.runtime.database).of_execution(result.execution_id)
    starts = [e["attempt"] for e in events if e["event_type"] == "tool_run_start"]
    ends = [e["attempt"] for e in events if e["event_type"] == "tool_run_end"]
    assert (starts, ends) == ([1, 2], [1, 2])
    again = project.runtime.services.executions.get(result.execution_id)
    assert again is not None
    assert again.result is not None
    assert [item["code"] for item in again.result["history"]] == [503, 200]


@pytest.mark.parametrize(
    ("text", "waited"),
    [("7", [7.0]), ("0", [1.0]), ("soon", [1.0]), ("Mon, 16 Nov 2026 00:00:09 GMT", [9.0])],
)
def test_a_service_may_ask_for_a_longer_wait(
    project: Project, service: Service, text: str, waited: list[float]
) -> None:
    asked = {"Retry_After": text, "Date": "Mon, 16 Nov 2026 00:00:00 GMT"}
    status, headers, body = said({}, 429, **asked)
    service.answer = in_turn((status, headers, body), GOOD)
    assert project.call("get_resource", parameters={"id": 1}).ok
    assert project.waits.waited == waited


def test_a_wait_beyond_the_time_left_is_not_begun(project: Project, service: Service) -> None:
    service.answer = in_turn(said({}, 503, Retry_After="31"), GOOD)
    result = project.call("get_resource", parameters={"id": 1})
    assert (result.attempts, result.history[0].why) == (1, "no time left")
    assert project.waits.waited == []


def test_a_connection_that_breaks_off_is_tried_again(project: Project, service: Service) -> None:
    service.answer = in_turn((0, {}, b""), GOOD)
    result = project.call("get_resource", parameters={"id": 1}).check()
    assert (result.attempts, result.history[0].transport_failure) == (2, True)
    assert result.history[0].code is None


def test_what_may_not_be_done_twice_is_tried_once(project: Project, service: Service) -> None:
    service.answer = in_turn(said({}, 503), GOOD)
    result = project.call("create_resource", parameters={"name": "x"})
    assert (result.outcome, result.attempts, len(service.seen)) == (Outcome.TOOL_ERROR, 1, 1)
    assert "not declared idempotent" in result.history[0].why


def test_with_a_key_it_may_and_the_key_is_the_same(project: Project, service: Service) -> None:
    service.answer = in_turn(said({}, 503), (0, {}, b""), GOOD)
    parameters = {"name": "x", "request_key": "k-1"}
    result = project.call("create_resource", parameters=parameters).check()
    assert result.attempts == 3
    assert [r.headers["idempotency-key"] for r in service.seen] == ["k-1"] * 3
    assert {r.body for r in service.seen} == {b'{"name": "x"}'}


def test_an_operation_that_is_declared_idempotent_may(
    changed: Callable[..., Project], service: Service
) -> None:
    def declare(tool: dict[str, Any], _adapter: dict[str, Any]) -> None:
        tool["operations"] = {"create_resource": {"idempotent": True}}

    service.answer = in_turn(said({}, 500), GOOD)
    result = changed(declare).call("create_resource", parameters={"name": "x"}).check()
    assert (result.attempts, len(service.seen)) == (2, 2)


def test_whoever_was_never_reached_may_be_asked_again(
    changed: Callable[..., Project], service: Service
) -> None:
    """The certificate is not trusted, so the connection is never made: nothing was sent."""
    result = changed(trusted=False).call("create_resource", parameters={"name": "x"})
    assert (result.outcome, result.attempts) == (Outcome.TOOL_ERROR, 3)
    assert all(attempt.transport_failure for attempt in result.history)
    assert result.result is not None
    assert "CERTIFICATE_VERIFY_FAILED" in (result.result.error_reason or "")
    assert service.seen == []


def test_cancelled_while_it_waits(project: Project, service: Service) -> None:
    service.answer = in_turn(said({}, 503), GOOD)
    project.waits.cancelled = True
    result = project.call("get_resource", parameters={"id": 1})
    assert (result.outcome, result.attempts, len(service.seen)) == (Outcome.CANCELLED, 1, 1)


def test_a_real_wait_ends_when_it_is_cancelled() -> None:
    from actum.execution.retry_clock import wait

    cancel = Cancel()
    assert wait(0.001, cancel)
    cancel.cancel()
    assert not wait(60.0, cancel)
    cancel.close()


def test_an_approval_is_used_once_for_all_attempts(project: Project, service: Service) -> None:
    service.answer = in_turn(said({}, 503), GOOD)
    result = project.call("get_resource", parameters={"id": "approved once"}).check()
    assert result.attempts == 2
    events = Traces(project.runtime.database).of_execution(result.execution_id)
    assert [e["attempt"] for e in events if e["event_type"] == "approval"] == [1]
    again = project.ask("get_resource", parameters={"id": "approved once"})
    assert again.reason_codes == ("APPROVAL_REQUIRED",)


def test_what_was_led_elsewhere_may_have_been_done(project: Project, service: Service) -> None:
    """The service takes the call and leads to a port at which nobody answers."""
    nowhere = "https://api.example.com:1/elsewhere"
    service.answer = lambda _request: said({}, 307, Location=nowhere)
    result = project.call("create_resource", parameters={"name": "x"})
    assert (result.outcome, result.attempts, len(service.seen)) == (Outcome.TOOL_ERROR, 1, 1)
