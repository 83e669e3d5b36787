"""Formats results, refusals and errors for the command line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from actum.capture.model import ADDRESS_LITERAL, NO_NETWORK
from actum.contract.model import Json
from actum.contract.outcome import Outcome
from actum.errors import ActumError, ContractInvalid, Refused, Violation
from actum.policy.environment import is_never_passed
from actum.value import as_dict

if TYPE_CHECKING:
    from actum.capture.model import Workspace
    from actum.contract.call import Narrowed
    from actum.execution.result import NetworkRefusal, Result


#: Limits that make a tool fail by itself, with an error that does not name them.
_FAILED_BY = ("max_children", "allow_fork", "scratch_bytes", "artifacts_bytes", "network")
#: A longer value of a snippet is cut in the summary.
_VALUE_LETTERS = 200


def error_document(error: ActumError) -> dict[str, Json]:
    problems = error.problems if isinstance(error, ContractInvalid) else ()
    violations = error.violations if isinstance(error, Refused) else ()
    return {
        "error": {
            "code": error.code,
            "message": error.message,
            "remedy": error.remedy,
            "problems": [as_dict(problem) for problem in problems],
            "violations": [as_dict(violation) for violation in violations],
        }
    }


def error_lines(error: ActumError) -> Iterator[str]:
    if isinstance(error, ContractInvalid):
        # One problem per line, in the form that editors can jump to.
        for problem in error.problems:
            whole_file = problem.file and not problem.line
            yield f"{problem.file}: {problem}" if whole_file else str(problem)
        return
    yield f"actum: {error.code}: {error.message}"
    if error.remedy:
        yield f"  {error.remedy}"


def summary_lines(result: Result) -> Iterator[str]:
    """One line, and one more for each violation."""
    facts = [result.outcome.value]
    if result.result is None:
        facts.append("nothing ran")
    else:
        code = result.result.exit_code
        if code is not None:
            facts.append(f"exit code {code}")
        facts.append(f"{result.result.duration_ms} ms")
        reason = result.result.error_reason
        if reason and reason != f"exit code {code}" and not result.violations:
            facts.append(reason)
        if result.outcome is Outcome.TOOL_ERROR:
            tripped = [row.limit for row in result.enforcement if row.tripped]
            facts += [f"{limit} reached" for limit in tripped if limit in _FAILED_BY]
    if refused := result.network_refused:
        facts.append(f"network refused: {_refused_text(refused)}")
    facts += [
        f"{name} truncated" for name, kept in (result.streams or {}).items() if kept.truncated
    ]
    if result.stripped:
        facts.append(f"env {_few(result.stripped)} not passed")
    if result.replayed:
        facts.append("recorded before, not run again")
    if result.adapter_status in ("deprecated", "experimental"):
        facts.append(f"{result.adapter_status} adapter {result.adapter_id}")
    if result.cached:
        facts.append(f"cached from {result.cached}, not run again")
    facts.append(f"receipt {result.receipt_id}")
    yield "actum: " + " · ".join(facts)
    if result.is_value:
        yield _value_line(result.output)
    if result.workspace is not None and result.workspace.state != "unchanged":
        yield from _workspace_lines(result.execution_id, result.workspace)
    yield from map(narrowed_line, result.narrowed)
    yield from stripped_lines(result.stripped)
    yield from (violation_line(violation) for violation in result.violations)


def _value_line(value: Json) -> str:
    text = json.dumps(value)
    if len(text) <= _VALUE_LETTERS:
        return f"  value: {text}"
    return f"  value: {text[:_VALUE_LETTERS]}… (all of it: --json)"


#: Refused hosts that a summary names; `--json` has all.
_MOST_REFUSED = 3
_WITHOUT_HOST = {
    ADDRESS_LITERAL: "addresses without a route",
    NO_NETWORK: "the tool has no network",
}


def _refused_text(refused: tuple[NetworkRefusal, ...]) -> str:
    shown = [_one_refused(each) for each in refused[:_MOST_REFUSED]]
    more = len(refused) - len(shown)
    return ", ".join([*shown, f"{more} more"] if more else shown)


def _one_refused(refusal: NetworkRefusal) -> str:
    name = refusal.host or _WITHOUT_HOST.get(refusal.why, refusal.why)
    if refusal.port:
        name = f"[{name}]:{refusal.port}" if ":" in name else f"{name}:{refusal.port}"
    return name if refusal.count == 1 else f"{name} ({refusal.count}×)"


def narrowed_line(found: Narrowed) -> str:
    to = found.given or "nothing"
    return f"  {found.field} is narrowed from {found.asked} to {to} by {found.by}."


def stripped_lines(names: tuple[str, ...]) -> Iterator[str]:
    never = tuple(name for name in names if is_never_passed(name))
    others = tuple(name for name in names if name not in never)
    if others:
        yield (
            f"  env {_few(others)}: the tool may not get it. Add the name to `environment` of its"
            " tool.yaml and approve the tool again."
        )
    if never:
        yield f"  env {_few(never)}: no tool may get it; it makes programs load or run more."


def _few(names: tuple[str, ...]) -> str:
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return ", ".join(name[:80] for name in names[:3]) + more


def _direct_lines(found: Workspace) -> Iterator[str]:
    if found.changed_by_host:
        yield f"  another program has changed {', '.join(found.changed_by_host[:3])} meanwhile."
    if not found.compared:
        yield "  not all names that decide what is executed later were compared."


def _workspace_lines(execution_id: str, found: Workspace) -> Iterator[str]:
    if found.mode == "direct":
        yield from _direct_lines(found)
        return
    counts = [(found.created, "created"), (found.modified, "modified"), (found.deleted, "deleted")]
    counted = ", ".join(f"{count} {word}" for count, word in counts if count)
    shows = "" if found.state == "discarded" else f" `actum diff {execution_id}` shows them."
    why = " ".join(found.why) if found.state == "discarded" else ""
    yield f"  changes {found.state}: {why or f'{counted}.'}{shows}"
    if found.state == "conflict":
        yield f"  another program has changed {', '.join(found.why[:3])} meanwhile."
        yield f"  `actum diff {execution_id} --commit --over` or `--discard` decides."
    elif found.state == "held" and found.request_id:
        yield f"  {', '.join(found.why[:3])} can decide what is executed later."
        yield f"  `actum approvals approve {found.request_id} --by WHO --why TEXT` commits it."
    elif found.state == "held":
        yield f"  `actum diff {execution_id} --commit` or `--discard` decides."
    if found.left_out:
        yield f"  left out, being no files: {', '.join(found.left_out[:3])}."


def violation_line(violation: Violation) -> str:
    field = violation.field
    named = not field or violation.message.startswith(field)
    return f"  {violation.code} {'' if named else f'{field}: '}{violation.message}"
