"""Every outcome has one legal word in each contract's vocabulary, and the table says which."""

from __future__ import annotations

import typing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actum.contract.outcome import (
    PROJECTIONS,
    ActionStatus,
    Outcome,
    Projection,
    RunStatus,
    ToolRunStatus,
    TraceOutcome,
    WorkStatus,
)

outcomes = st.sampled_from(Outcome)


@given(outcomes)
def test_every_outcome_has_a_legal_word_in_every_vocabulary(outcome):
    projection = PROJECTIONS[outcome]
    legal = typing.get_type_hints(Projection)
    for name in ("tool_run", "work", "action", "trace", "run"):
        assert isinstance(getattr(projection, name), legal[name])


def test_the_table_names_every_outcome_and_nothing_else():
    assert set(PROJECTIONS) == set(Outcome)


@given(outcomes)
def test_a_reason_is_given_unless_there_is_none_or_the_refusal_has_its_own(outcome):
    without = {Outcome.SUCCEEDED, Outcome.WAITING, Outcome.REJECTED}
    assert (PROJECTIONS[outcome].reason is None) == (outcome in without)


@given(outcomes)
def test_success_is_said_by_the_successful_outcome_alone(outcome):
    projection = PROJECTIONS[outcome]
    succeeded = outcome is Outcome.SUCCEEDED
    assert (projection.work is WorkStatus.SUCCESS) == succeeded
    assert (projection.action is ActionStatus.SUCCESS) == succeeded
    assert (projection.trace is TraceOutcome.SUCCESS) == succeeded
    assert (projection.run is RunStatus.COMPLETE) == succeeded


@given(outcomes)
def test_a_denial_is_one_in_every_vocabulary_that_has_the_word(outcome):
    projection = PROJECTIONS[outcome]
    denied = projection.work is WorkStatus.DENIED
    assert (projection.trace is TraceOutcome.DENIED) == denied
    if denied:
        assert projection.action is ActionStatus.BLOCKED
        assert projection.run is RunStatus.FAILED


@pytest.mark.parametrize(
    ("outcome", "words"),
    [
        ("SUCCEEDED", "success success SUCCESS None success complete"),
        ("TOOL_ERROR", "error failure FAILED TOOL_EXIT_NONZERO error failed"),
        ("PERMISSION_DENIED", "error failure FAILED TOOL_PERMISSION_DENIED error failed"),
        ("COMMAND_NOT_FOUND", "error failure FAILED TOOL_NOT_FOUND error failed"),
        ("EXCEPTION", "error failure FAILED EXECUTOR_EXCEPTION error failed"),
        ("TIMED_OUT", "timeout timeout BLOCKED EXECUTOR_TIMEOUT timeout failed"),
        ("RESOURCE_KILLED", "killed failure BLOCKED LIMIT_EXCEEDED error failed"),
        ("CANCELLED", "killed failure BLOCKED CANCELLED error cancelled"),
        ("POLICY_VIOLATION", "error denied BLOCKED POLICY_VIOLATION denied failed"),
        ("REJECTED", "None denied BLOCKED None denied failed"),
        ("ADMISSION_DENIED", "success denied BLOCKED ADMISSION_DENIED denied failed"),
        ("TESTS_FAILED", "success failure FAILED TESTS_FAILED error failed"),
        ("OUTPUT_INVALID", "success failure FAILED OUTPUT_INVALID error failed"),
        ("CONTRACT_MISMATCH", "None denied BLOCKED CONTRACT_MISMATCH denied failed"),
        ("UNSUPPORTED_CONTRACT", "None denied BLOCKED UNSUPPORTED_CONTRACT denied failed"),
        ("AUDIT_LOG_FAILED", "None failure BLOCKED AUDIT_LOG_FAILED error failed"),
        ("WAITING", "None None PENDING None None queued"),
    ],
)
def test_each_outcome_is_projected_as_the_table_of_vocabularies_says(outcome, words):
    one = PROJECTIONS[Outcome(outcome)]
    said = (one.tool_run, one.work, one.action, one.reason, one.trace, one.run)
    assert " ".join(str(word) for word in said) == words


def test_each_vocabulary_is_its_contracts_own():
    assert {status.value for status in ToolRunStatus} == {"success", "error", "timeout", "killed"}
    assert {status.value for status in ActionStatus} == {"SUCCESS", "FAILED", "BLOCKED", "PENDING"}
    assert {status.value for status in WorkStatus} == {"success", "failure", "denied", "timeout"}
