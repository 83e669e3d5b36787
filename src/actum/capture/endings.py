"""Interprets how a tool ended: the exit-code table, and the declared outputs.

An ending is a fact from the enforcing layer; only this module interprets it. No text that the
tool printed and no code that it chose can pass for a limit: 137 is "out of memory" only with the
kernel's own count, 143 is "timed out" only if the deadline really passed.
"""

from __future__ import annotations

import os
import posixpath
import signal
from typing import assert_never

from actum.capture.collection import ARTIFACT, MISSING, OUTPUT_FILE, WITHOUT_CONTENT, shown
from actum.capture.model import (
    Cancelled,
    Capture,
    Closed,
    CoverLost,
    DeadlinePassed,
    Ending,
    Exited,
    Failed,
    GoverningChanged,
    LimitKilled,
    NotCollected,
    PolicyBroken,
    SealLost,
    Signalled,
)
from actum.contract.model import NOTHING_EXPECTED, ExpectedOutputs
from actum.contract.outcome import PROJECTIONS, Outcome
from actum.value import replace, value

CONTINUE = "Continue workflow"
LOG_AND_HANDLE = "Log and handle"
ESCALATE = "Escalate"
CHECK_ALLOWLIST = "Check allowlist"
LOG_SIGNAL = "Log signal number"
MORE_MEMORY = "Increase memory or fail"
MORE_TIME = "Extend timeout or fail"

#: The host replaced a name that was covered inside.
COVER_LOST = "COVER_LOST"
_MOST_NAMED = 5
_KILLED = 128 + signal.SIGKILL
_TERMINATED = 128 + signal.SIGTERM


@value
class Verdict:
    """What an ending means (seed 000's table) and what to do about it."""

    outcome: Outcome
    exit_code: int | None
    signal: int | None  #: the signal that ended it; `exit_code` is the canonical code
    reason_codes: tuple[str, ...]  #: empty exactly on success
    action: str
    error_reason: str | None  #: ``None`` exactly when seed 004's status is success


def interpret(ending: Ending) -> Verdict:
    """Apply the table. `conclude` checks the declared outputs later."""
    match ending:
        case Exited(code):
            return _exited(code)
        case Signalled(number):
            by = "SIGKILL, not by a limit" if number == signal.SIGKILL else _name(number)
            verdict = _verdict(Outcome.TOOL_ERROR, 128 + number, LOG_SIGNAL, f"killed by {by}")
            return replace(verdict, signal=number)
        case DeadlinePassed(number):
            verdict = _verdict(
                Outcome.TIMED_OUT, _TERMINATED, MORE_TIME, "stopped at sandbox.timeout_ms"
            )
            return replace(verdict, signal=number or None)
        case LimitKilled(limit, evidence):
            action = MORE_MEMORY if limit == "memory_mb" else LOG_SIGNAL
            reason = f"killed at the limit {limit}: {evidence}"
            verdict = _verdict(Outcome.RESOURCE_KILLED, _KILLED, action, reason)
            return replace(verdict, signal=int(signal.SIGKILL))
        case PolicyBroken(attempt):
            reason = f"killed for breaking policy: {attempt}"
            verdict = _verdict(Outcome.POLICY_VIOLATION, _KILLED, ESCALATE, reason)
            return replace(verdict, signal=int(signal.SIGKILL))
        case CoverLost(paths):
            reason = f"ended because the host replaced {_some(paths)}, which was covered inside"
            verdict = _verdict(Outcome.POLICY_VIOLATION, _KILLED, ESCALATE, reason)
            return replace(verdict, signal=int(signal.SIGKILL), reason_codes=(COVER_LOST,))
        case GoverningChanged(paths, code, number, lost):
            reason = f"changed what is executed later: {_some(paths)}"
            verdict = _verdict(Outcome.POLICY_VIOLATION, code, ESCALATE, reason)
            codes = (*verdict.reason_codes, COVER_LOST) if lost else verdict.reason_codes
            return replace(verdict, signal=number, reason_codes=codes)
        case Cancelled(_, started=False):
            reason = "cancelled by its caller before it was started"
            return _verdict(Outcome.CANCELLED, None, LOG_AND_HANDLE, reason)
        case Cancelled(number):
            code = _KILLED if number == signal.SIGKILL else _TERMINATED
            verdict = _verdict(Outcome.CANCELLED, code, LOG_SIGNAL, "cancelled by its caller")
            return replace(verdict, signal=number or None)
        case Closed(number):
            return replace(_verdict(Outcome.SUCCEEDED, 0, CONTINUE), signal=number or None)
        case Failed(reason):
            return _verdict(Outcome.TOOL_ERROR, 1, LOG_AND_HANDLE, reason)
        case SealLost(path):
            verdict = _verdict(
                Outcome.EXCEPTION, None, LOG_AND_HANDLE, f"input replaced on the host: {path}"
            )
            return replace(verdict, reason_codes=(*verdict.reason_codes, "INPUT_SEAL_LOST"))
        case _:
            assert_never(ending)


def _some(paths: tuple[str, ...]) -> str:
    """The first few of them."""
    more = f" and {len(paths) - _MOST_NAMED} more" if len(paths) > _MOST_NAMED else ""
    return ", ".join(paths[:_MOST_NAMED]) + more


def _exited(code: int) -> Verdict:
    if code == 0:
        return _SUCCEEDED
    if code == 126:
        return _verdict(Outcome.PERMISSION_DENIED, code, ESCALATE, "exit code 126: not permitted")
    if code == 127:
        return _verdict(
            Outcome.COMMAND_NOT_FOUND, code, CHECK_ALLOWLIST, "exit code 127: command not found"
        )
    if code < 128:
        return _verdict(Outcome.TOOL_ERROR, code, LOG_AND_HANDLE, f"exit code {code}")
    # The tool's own choice, as a shell reports a dead child: no proof that a limit was hit.
    number = code - 128
    reason = f"exit code {code}: reports {_name(number)}" if number else f"exit code {code}"
    return replace(_verdict(Outcome.TOOL_ERROR, code, LOG_SIGNAL, reason), signal=number)


def _verdict(
    outcome: Outcome, exit_code: int | None, action: str, error_reason: str | None = None
) -> Verdict:
    reason = PROJECTIONS[outcome].reason
    return Verdict(
        outcome=outcome,
        exit_code=exit_code,
        signal=None,
        reason_codes=() if reason is None else (reason,),
        action=action,
        error_reason=error_reason,
    )


#: The verdict of most executions.
_SUCCEEDED = _verdict(Outcome.SUCCEEDED, 0, CONTINUE)


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # real-time signals between the first and the last have no name
        return f"signal {number}"


def check_outputs(outputs: ExpectedOutputs, verdict: Verdict, capture: Capture) -> tuple[str, ...]:
    """All differences between the outputs and the contract's declaration; empty if none.

    Golden streams are compared elsewhere; `conclude` joins their problems with these.
    """
    if outputs is NOTHING_EXPECTED and not capture.not_collected:
        return ()
    problems: list[str] = []
    if outputs.exit_code is not None and outputs.exit_code != verdict.exit_code:
        problems.append(
            f"outputs.exit_code: expected {outputs.exit_code}, got {verdict.exit_code}; "
            "fix the tool's input or declare that code"
        )
    declared = {declared_path(spec.path): spec.name for spec in outputs.artifacts}
    accounted = [(it.kind, it.path) for it in capture.collected]
    accounted += [(it.kind, it.path) for it in capture.not_collected]
    problems += [
        _absent("outputs.output_files", path)
        for path in outputs.output_files
        if not any(kind == OUTPUT_FILE and _same_file(path, it) for kind, it in accounted)
    ]
    problems += [
        _absent("outputs.artifacts", f"{name} ({path})")
        for path, name in declared.items()
        if (ARTIFACT, path) not in accounted
    ]
    problems += [
        _lost(item)
        for item in capture.not_collected
        if item.kind != ARTIFACT
        or item.path in declared
        or item.reason not in WITHOUT_CONTENT  # a stray link or pipe has no content to lose
    ]
    return tuple(problems)


def declared_path(path: str) -> str:
    """A declared path in the form of collected ones."""
    return shown(os.fsencode(posixpath.normpath(path)))


def _same_file(declared: str, found: str) -> bool:
    """Whether `found`, relative to some granted root, can be the declared file.

    Only decides whether the runner searched for it: a file that it did not find is in
    `not_collected` and is a problem of its own.
    """
    first = "/" + declared_path(declared).lstrip("/")
    second = "/" + found.lstrip("/")
    return first.endswith(second) or second.endswith(first)


def _absent(field: str, what: str) -> str:
    return f"{field}: {what} is {MISSING}; have the tool write it, or do not declare it"


def _lost(item: NotCollected) -> str:
    field = "outputs.artifacts" if item.kind == ARTIFACT else "outputs.output_files"
    size = "" if item.size is None else f" ({item.size} bytes)"
    remedy = (
        "have the tool write it, or do not declare it"
        if item.reason == MISSING
        else "leave fewer, smaller, regular files"
    )
    return f"{field}: {item.path}{size} was not collected: {item.reason}; {remedy}"


def conclude(outputs: ExpectedOutputs, capture: Capture, problems: tuple[str, ...] = ()) -> Verdict:
    """The final verdict of one attempt, given the problems of its outputs.

    A tool that exits with exactly the code that the contract declares has succeeded, whatever
    the code. Only a real exit counts; a killed tool meets no expectation. Problems turn a
    success into OUTPUT_INVALID and are added to any other reason.
    """
    verdict = interpret(capture.ending)
    declared = outputs.exit_code
    if declared is not None and capture.ending == Exited(declared):
        verdict = _verdict(Outcome.SUCCEEDED, declared, CONTINUE)
    if not problems:
        return verdict
    if verdict.outcome is Outcome.SUCCEEDED:
        return _verdict(Outcome.OUTPUT_INVALID, verdict.exit_code, LOG_AND_HANDLE)
    return replace(verdict, error_reason="; ".join((verdict.error_reason or "", *problems)))
