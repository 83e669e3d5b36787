"""The table of exit codes.

0  success
1  the tool failed, an output is invalid, a verification failed
2  wrong usage, or a malformed contract
3  refused after parsing: nothing ran, or what ran was stopped for breaking its policy
4  timed out
5  killed by a limit
70 a fault of Actum
130 cancelled
"""

from __future__ import annotations

from actum.contract.outcome import Outcome
from actum.errors import ActumError, ContractInvalid, Fault, Refused

SUCCESS = 0
FAILED = 1
USAGE = 2
REFUSED = 3
TIMED_OUT = 4
LIMIT = 5
FAULT = 70
CANCELLED = 130

OF_OUTCOME = {
    Outcome.SUCCEEDED: SUCCESS,
    Outcome.TOOL_ERROR: FAILED,
    Outcome.PERMISSION_DENIED: FAILED,
    Outcome.COMMAND_NOT_FOUND: FAILED,
    Outcome.TESTS_FAILED: FAILED,
    Outcome.OUTPUT_INVALID: FAILED,
    Outcome.POLICY_VIOLATION: REFUSED,
    Outcome.REJECTED: REFUSED,
    Outcome.ADMISSION_DENIED: REFUSED,
    Outcome.CONTRACT_MISMATCH: REFUSED,
    Outcome.UNSUPPORTED_CONTRACT: REFUSED,
    Outcome.WAITING: REFUSED,
    Outcome.TIMED_OUT: TIMED_OUT,
    Outcome.RESOURCE_KILLED: LIMIT,
    Outcome.CANCELLED: CANCELLED,
    Outcome.EXCEPTION: FAULT,
    Outcome.AUDIT_LOG_FAILED: FAULT,
}


def of_error(error: ActumError) -> int:
    if isinstance(error, ContractInvalid):
        return USAGE
    if isinstance(error, Refused):
        return REFUSED
    return FAULT if isinstance(error, Fault) else FAILED
