"""The three checklists of seed 000 as verdicts, each drawn from the fact that proves it.

`pass` and `fail` apply only to stages that the execution reached; the others are `not_reached`.
No verdict is derived from the outcome alone, and none is assumed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from enum import StrEnum

from actum.capture.endings import Verdict as Interpretation
from actum.capture.endings import check_outputs, interpret
from actum.capture.model import Capture, DeadlinePassed, Enforced
from actum.capture.streams import SILENCE
from actum.contract.call import CheckResult
from actum.contract.limits import TERM_GRACE_S
from actum.contract.model import Json
from actum.contract.outcome import Outcome
from actum.evidence.records.facts import ExecutionFacts, Intent, Stage
from actum.evidence.records.trace import missing_events
from actum.value import value

_RESOURCES = ("memory_mb", "cpu_cores", "max_children")
_SANITISING = ("IV-02", "IV-03", "IV-04", "IV-05")
#: How late the end of a stopped tree may be seen: the grace, and a busy host.
_LATE_MS = int(TERM_GRACE_S * 1000) + 5_000


class Verdict(StrEnum):
    PASS = "pass"  # noqa: S105
    FAIL = "fail"
    NOT_REACHED = "not_reached"


#: One line of a list, as it is recorded.
Line = dict[str, Json]


def before_the_start(intent: Intent) -> tuple[Line, ...]:
    """The pre-execution list without its last line, which states that it was recorded."""
    return (
        _tool(intent),
        _adapter(intent),
        _inputs(intent),
        _limits(intent),
        _allowlist(intent),
    )


def checklists(
    facts: ExecutionFacts,
    stored: Collection[str],
    leftovers: tuple[str, ...] | None,
    pre: tuple[Line, ...] | None = None,
) -> dict[str, Json]:
    """Judge one execution; `stored` holds the BLAKE3 of every file in the evidence store.

    `leftovers` are the final ones (see `facts`), and `pre` is the result of `before_the_start` for
    the same intent.
    """
    ran = _ran(facts, stored, leftovers)
    return {
        "pre_execution": [
            *(before_the_start(facts) if pre is None else pre),
            _evidence_open(facts),
        ],
        "during_execution": _judge(_DURING, ran),
        "post_execution": _judge(_POST, ran),
    }


def unreached(pre: list[Json], pending_seq: int) -> dict[str, Json]:
    """The lists of an execution that was about to start and whose end was not seen."""
    return {
        "pre_execution": [*pre, _line(_OPENED, Verdict.PASS, f"audit record {pending_seq}")],
        "during_execution": _judge(_DURING, None),
        "post_execution": _judge(_POST, None),
    }


_Judged = tuple[bool, str]


def _line(item: str, verdict: Verdict, detail: str) -> Line:
    return {"item": item, "verdict": verdict, "detail": detail}


def _item(item: str, judged: _Judged) -> Line:
    return _line(item, Verdict.PASS if judged[0] else Verdict.FAIL, judged[1])


def _before(item: str, intent: Intent, stage: Stage) -> Line:
    """For a missing fact: its own stage failed, or an earlier stage ended the execution."""
    if not isinstance(intent, ExecutionFacts):
        return _line(item, Verdict.FAIL, "not established")
    if intent.refused_at is None or intent.refused_at is stage:
        return _line(item, Verdict.FAIL, ", ".join(intent.reason_codes) or "not established")
    return _line(item, Verdict.NOT_REACHED, "")


def _ran(
    facts: ExecutionFacts, stored: Collection[str], leftovers: tuple[str, ...] | None
) -> _Ran | None:
    capture = facts.capture
    if capture is None:
        return None
    return _Ran(
        facts=facts,
        capture=capture,
        meaning=interpret(capture.ending),
        enforced={row.limit: row for row in capture.enforcement},
        stored=stored,
        leftovers=leftovers,
    )


def _judge(lines: _Lines, ran: _Ran | None) -> list[Line]:
    if ran is None:
        return [_line(name, Verdict.NOT_REACHED, "") for name, _ in lines]
    passed, failed = Verdict.PASS, Verdict.FAIL
    return [
        {
            "item": name,
            "verdict": passed if (judged := judge(ran))[0] else failed,
            "detail": judged[1],
        }
        for name, judge in lines
    ]


def _tool(facts: Intent) -> Line:
    item = "Tool is in registry and active"
    if facts.tool is None:
        return _before(item, facts, Stage.REGISTRY)
    return _item(item, (True, f"{facts.tool.tool_id} {facts.tool.version}, pinned"))


def _adapter(facts: Intent) -> Line:
    item = "Adapter exists and matches tool version"
    if facts.adapter is None:
        if facts.tool is None:
            return _line(item, Verdict.NOT_REACHED, "")
        return _before(item, facts, Stage.REGISTRY)
    # An experimental adapter gets here only if the request named it.
    usable = facts.adapter.status != "deprecated"
    return _item(item, (usable, f"{facts.adapter.adapter_id} {facts.adapter.version}"))


def _inputs(facts: Intent) -> Line:
    item = "Inputs validated and sanitized"
    results = {check.code: check.result for check in facts.checks if check.code in _SANITISING}
    if not results:
        return _before(item, facts, Stage.VALIDATION)
    held = set(results) == set(_SANITISING) and CheckResult.BLOCKED not in results.values()
    return _item(item, (held, ", ".join(f"{code} {result}" for code, result in results.items())))


def _limits(facts: Intent) -> Line:
    item = "Sandbox limits set appropriately"
    if facts.policy is None or not facts.foreseen:
        return _before(item, facts, Stage.POLICY)
    limits = facts.policy.limits
    unmet = [row.limit for row in facts.foreseen if not row.enforced]
    values = (
        f"timeout_ms {limits.timeout_ms}, memory_mb {limits.memory_mb},"
        f" cpu_cores {limits.cpu_cores}, max_children {limits.children}"
    )
    return _item(item, (not unmet, f"not enforceable: {', '.join(unmet)}" if unmet else values))


def _allowlist(facts: Intent) -> Line:
    item = "Allowlist permits the operation"
    found = [check.result for check in facts.checks if check.code == "IV-01"]
    if found:
        return _item(item, (found == [CheckResult.PASSED], f"IV-01 {found[0]}"))
    violations = facts.violations if isinstance(facts, ExecutionFacts) else ()
    if any(violation.code == "IV-01" for violation in violations):
        return _line(item, Verdict.FAIL, "IV-01")
    return _line(item, Verdict.NOT_REACHED, "")


def _evidence_open(facts: ExecutionFacts) -> Line:
    item = _OPENED
    if facts.opened is None:
        if facts.capture is None:
            return _before(item, facts, Stage.WRITE_AHEAD)
        return _line(item, Verdict.FAIL, "ran without a PENDING record")
    return _line(item, Verdict.PASS, f"audit record {facts.opened.pending_seq}")


@value
class _Ran:
    """The facts for the verdicts about a tool that ran."""

    facts: ExecutionFacts
    capture: Capture
    meaning: Interpretation  #: of its ending
    enforced: Mapping[str, Enforced]  #: by limit
    stored: Collection[str]
    leftovers: tuple[str, ...] | None


def _timeout(ran: _Ran) -> _Judged:
    facts, capture, row = ran.facts, ran.capture, ran.enforced.get("timeout_ms")
    if row is None or not row.enforced or facts.policy is None:
        return False, "no mechanism enforced it"
    in_time = capture.duration_ms <= facts.policy.limits.timeout_ms + _LATE_MS
    stopped = ", stopped at the deadline" if isinstance(capture.ending, DeadlinePassed) else ""
    return in_time, f"{row.mechanism}: {capture.duration_ms} ms of {row.requested}{stopped}"


def _resources(ran: _Ran) -> _Judged:
    blind, peaks = [], []
    for limit in _RESOURCES:
        row = ran.enforced.get(limit)
        if row is None or not row.enforced:
            blind.append(limit)
        elif row.peak is not None:
            peaks.append(f"{limit} peak {row.peak}")
    if blind:
        return False, f"not enforced: {', '.join(blind)}"
    return bool(peaks), ", ".join(peaks) or "no usage figure was reported"


def _streams(ran: _Ran) -> _Judged:
    stdout, stderr = ran.capture.stdout, ran.capture.stderr
    whole = all(stream is SILENCE or stream.consistent for stream in (stdout, stderr))
    return whole, f"stdout {stdout.total_bytes}, stderr {stderr.total_bytes} bytes"


def _errors(ran: _Ran) -> _Judged:
    facts = ran.facts
    missing = missing_events(facts.events, facts.attempt)
    if missing:
        return False, f"missing from the trace: {', '.join(missing)}"
    if facts.outcome is not Outcome.SUCCEEDED and not facts.reason_codes:
        return False, "the failure has no reason code"
    return True, ", ".join(facts.reason_codes) or "no errors; trace is whole"


def _exit_code(ran: _Ran) -> _Judged:
    facts = ran.facts
    return facts.exit_code == ran.meaning.exit_code, f"{facts.exit_code} as {facts.outcome}"


def _outputs(ran: _Ran) -> _Judged:
    problems = check_outputs(ran.facts.contract.outputs, ran.meaning, ran.capture)
    if problems:
        return False, "; ".join(problems)
    if ran.facts.outcome is Outcome.OUTPUT_INVALID:
        return False, "not what was expected"
    return True, f"{len(ran.capture.collected)} files"


def _artifacts(ran: _Ran) -> _Judged:
    collected = ran.capture.collected
    lost = [file.name for file in collected if file.blake3 not in ran.stored]
    if lost:
        return False, f"not stored: {', '.join(lost)}"
    return True, f"{len(collected)} files"


def _evidence(ran: _Ran) -> _Judged:
    facts = ran.facts
    if facts.plan is None or not facts.plan.argv:
        return False, "the command is not known"
    if facts.exit_code != ran.meaning.exit_code:
        return False, "the exit code is not known"
    return True, f"evidence:{facts.evidence_id}"


def _cleanup(ran: _Ran) -> _Judged:
    left = ran.leftovers
    if left is None:
        return False, "the runner did not say what was left"
    if left:
        return False, f"left behind: {', '.join(left)}"
    return True, "nothing left behind"


_Lines = tuple[tuple[str, Callable[[_Ran], _Judged]], ...]

_OPENED = "Evidence capture initialized"
_DURING: _Lines = (
    ("Timeout enforced", _timeout),
    ("Resource limits monitored", _resources),
    ("Output streams captured", _streams),
    ("Errors logged with context", _errors),
)
_POST: _Lines = (
    ("Exit code interpreted", _exit_code),
    ("Outputs collected and validated", _outputs),
    ("Artifacts stored", _artifacts),
    ("Evidence captured", _evidence),
    ("Cleanup performed", _cleanup),
)
