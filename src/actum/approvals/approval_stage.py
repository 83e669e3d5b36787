"""Approvals in an execution: requests filed for it and decisions used by it, each in its trace."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime

from actum.approvals.requests import ApprovalRequired, Approvals
from actum.approvals.standing_approvals import StandingApprovals
from actum.errors import Refused
from actum.evidence.log import Page
from actum.evidence.records.execution_event import execution_event
from actum.evidence.records.facts import Intent
from actum.evidence.records.trace import EventType, Trace
from actum.policy.gates import FIRST_USE, GOVERNING_CHANGES, SCOPE, ApprovalNeeded, Granted


def request_approval(
    approvals: Approvals, refusal: Refused, intent: Intent, trace: Trace
) -> Refused:
    """`refusal`; or, if people may permit the call, the refusal that names the filed requests."""
    if not isinstance(refusal, ApprovalRequired):
        _ask_for_tool(approvals, refusal, intent, trace)
        return refusal
    filed = approvals.ask(refusal, intent.contract, intent.session, intent.started_at)
    for violation in filed.violations:
        _emit(violation.field, violation.value, "", "requested", intent, trace)
    return filed


#: Refusals that the approval of a tool would prevent: the gate, and what is asked for.
_BY_TOOL = {
    "TOOL_NOT_APPROVED": (FIRST_USE, "approve"),
    "SCOPE_EXCEEDED": (SCOPE, "widen the scope for"),
}


def _ask_for_tool(approvals: Approvals, refusal: Refused, intent: Intent, trace: Trace) -> None:
    """File that a tool needs an approval, or a wider one."""
    for violation in refusal.violations:
        if violation.code in _BY_TOOL:
            gate, operation = _BY_TOOL[violation.code]
            target = f"{intent.contract.tool_id} {violation.value}".strip()
            need = ApprovalNeeded(gate=gate, target=target, operation=operation)
            at = intent.started_at
            request_id = approvals.ask_for_tool(need, intent.contract, intent.session, at)
            _emit(gate, request_id, "", "requested", intent, trace)


def request_commit(
    approvals: Approvals, name: str, diff_sha256: str, intent: Intent, trace: Trace, at: datetime
) -> str:
    """File that the changes of the transaction `name` wait for a decision; the request's id."""
    request_id = approvals.ask_to_commit(name, diff_sha256, intent.contract, intent.session, at)
    _emit(GOVERNING_CHANGES, request_id, "", "requested", intent, trace)
    return request_id


def using(
    approvals: Approvals,
    standing: StandingApprovals,
    granted: tuple[Granted, ...],
    used: tuple[Granted, ...],
    intent: Intent,
) -> Callable[[Page], None]:
    """For the transaction that lets an execution start: use the decisions up, or raise.

    An execution uses a standing approval once, for all its needs and attempts; `used` are the
    decisions of earlier attempts.
    """
    at, execution_id = intent.started_at, intent.execution_id
    once = tuple(grant for grant in granted if not grant.is_standing)
    use_once = approvals.using(once, execution_id, at)
    before = {grant.request_id for grant in used}
    counted = {grant.request_id: grant for grant in granted if grant.is_standing}

    def use(page: Page) -> None:
        use_once(page)
        for approval_id, grant in counted.items():
            if approval_id not in before:
                standing.use(page, grant, execution_id, intent.trace_id, at)

    return use


def trace_use(granted: tuple[Granted, ...], intent: Intent, trace: Trace) -> None:
    """The start of the execution has used these decisions (`using`)."""
    for grant in granted:
        _emit(grant.need.gate, grant.request_id, grant.decided_by, "used", intent, trace)


def _emit(
    gate: str, request_id: str, decided_by: str, state: str, intent: Intent, trace: Trace
) -> None:
    data = {"gate": gate, "request_id": request_id, "decided_by": decided_by, "state": state}
    trace.emit(execution_event(intent, EventType.APPROVAL, data))
