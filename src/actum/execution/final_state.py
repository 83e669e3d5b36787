"""The final state of an execution, which its record states: refused, failed, or a tool ran."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from actum.adapters.kinds import build_call
from actum.capture.endings import CHECK_ALLOWLIST, conclude
from actum.capture.model import Capture
from actum.contract.outcome import PROJECTIONS, Outcome
from actum.errors import EvidenceUnavailable, Fault, Refused, Violation
from actum.evidence.records.facts import Stage
from actum.execution import snippet
from actum.execution.artifact import contents_of
from actum.execution.execution import Execution
from actum.execution.interpret import Interpretation, output_digest, run_fields
from actum.execution.plan import output_problem
from actum.execution.snippet import LeftOut
from actum.policy.allowlist import AllowlistCheck, check_allowlist
from actum.registry.model import Adapter
from actum.value import replace, value


@value
class FinalState:
    """How an execution ended, as its record and its result state it."""

    outcome: Outcome
    reasons: tuple[str, ...]
    violations: tuple[Violation, ...] = ()
    refused_at: Stage | None = None  #: ``None``: it was not refused
    capture: Capture | None = None
    exit_code: int | None = None
    output_digest: str | None = None
    allowlist: AllowlistCheck | None = None  #: after exit code 127
    run: Mapping[str, Any] | None = None  #: the fields of `Result` that describe the tool's run


def refused(execution: Execution, refusal: Refused) -> FinalState:
    """Nothing ran, and that is evidence too."""
    violations = refusal.violations
    codes = dict.fromkeys(violation.code.replace("-", "_") for violation in violations)
    return FinalState(
        outcome=Outcome.REJECTED,
        reasons=tuple(codes),
        violations=violations,
        refused_at=execution.stage,
    )


def failed(execution: Execution, error: BaseException) -> FinalState | None:
    """A fault of ours, an error that we did not foresee, or an interrupt: the sandbox is gone, and
    the PENDING record must not stay open. ``None``: there is no record to close."""
    outcome = Outcome.EXCEPTION
    more: tuple[str, ...] = ()
    if isinstance(error, Fault):
        # A store that could not open the record cannot close it either.
        if execution.opened is None and isinstance(error, EvidenceUnavailable):
            return None
        more = (error.code,)
    elif execution.opened is None:
        return None
    elif not isinstance(error, Exception):
        outcome = Outcome.CANCELLED
    return FinalState(outcome=outcome, reasons=(PROJECTIONS[outcome].reason or "", *more))


def ended(
    execution: Execution, adapter: Adapter, capture: Capture, meaning: Interpretation
) -> FinalState:
    """A tool ran, or was cancelled before it could."""
    intent, output, problems = execution.intent, meaning.output, meaning.problems
    verdict = conclude(execution.contract.outputs, capture, problems)
    left_out: LeftOut = ()
    if output is None:
        output, left_out = snippet.answer_in(capture)
    determination = execution.determination
    allowlist = None
    # The request names no operation of a fallback adapter that is not a program.
    is_its_command = adapter.cli is not None or execution.fell_back is None
    if verdict.action == CHECK_ALLOWLIST and is_its_command:
        allowlist = _allowlist(execution, adapter)
        verdict = replace(verdict, error_reason=f"{verdict.error_reason}; {allowlist.text}")
    contents = contents_of(execution.services.blobs)
    run = run_fields(adapter, capture, verdict, problems, intent.trace_id, meaning.output, contents)
    return FinalState(
        outcome=verdict.outcome,
        reasons=verdict.reason_codes,
        violations=tuple(map(output_problem, problems)),
        capture=capture,
        exit_code=verdict.exit_code,
        output_digest=output_digest(capture, verdict.exit_code),
        allowlist=allowlist,
        run={
            **run,
            "allowlist": allowlist,
            "output": output,
            "left_out": left_out,
            "determinism": determination.document() if determination else None,
        },
    )


def _allowlist(execution: Execution, adapter: Adapter) -> AllowlistCheck:
    """Check the command against the allowlist as it is now, after exit code 127.

    It was on the list before the start. An entry that was taken back since is the reason to look.
    """
    contract, command = execution.contract, execution.contract.inputs.command
    try:
        entry = execution.services.registry.entry(contract.tool_id, adapter.adapter_id)
        return check_allowlist(build_call(contract, entry), entry)
    except Refused as refusal:
        return AllowlistCheck(command=command, allowed=False, why=refusal.message)
