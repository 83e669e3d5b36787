"""Waits for a decision: an execution that needs an approval is repeated once there is one."""

from __future__ import annotations

import time
from collections.abc import Callable

from actum.approvals.requests import Approvals
from actum.execution.result import Result
from actum.runners.base import Cancel


def execute_when_approved(
    execute: Callable[[], Result],
    approvals: Approvals,
    *,
    wait_s: float | None,
    on_waiting: Callable[[Result], None] | None,
    cancel: Cancel | None,
) -> Result:
    """The result of `execute`. With `wait_s`, an APPROVAL_REQUIRED waits that long for a decision.

    `on_waiting` is called with the result that names the requests.
    """
    until = None if wait_s is None else time.monotonic() + wait_s
    while True:
        granted = None if until is None else approvals.granted_so_far()
        result = execute()
        if until is None or "APPROVAL_REQUIRED" not in result.reason_codes:
            return result
        if on_waiting is not None:
            on_waiting(result)
        requests = [violation.value for violation in result.violations]
        stop = None if cancel is None else (lambda: cancel.requested)
        if not approvals.wait(requests, until, stop, granted=granted):
            return result
