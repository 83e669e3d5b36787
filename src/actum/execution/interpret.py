"""From a capture to what it means: outputs checked and transformed, the run as a result."""

from __future__ import annotations

from typing import Any

from actum.adapters.kinds import answer_of, report_of
from actum.adapters.output_transforms import apply_output_transforms
from actum.adapters.parsers import OutputInvalid
from actum.capture.collection import ARTIFACT
from actum.capture.endings import Verdict, check_outputs, declared_path, interpret
from actum.capture.model import Capture, Collected
from actum.contract.canonical import sha256_json
from actum.contract.model import Contract, ExpectedOutputs, Json
from actum.contract.outcome import PROJECTIONS, Outcome, ToolRunStatus
from actum.execution.artifact import ArtifactRef, Contents
from actum.execution.result import ToolRunResult, encoded
from actum.registry.model import Adapter
from actum.value import replace, value

#: The largest file that a `Result` holds in memory.
SMALL_BYTES = 16_384


@value(kw_only=False)
class Interpretation:
    """What a capture means, before it is compared with a golden output."""

    output: Json
    problems: tuple[str, ...]  #: everything in which the outputs differ from the contract


def interpreted(contract: Contract, adapter: Adapter, capture: Capture) -> Interpretation:
    verdict = interpret(capture.ending)
    problems = check_outputs(contract.outputs, verdict, capture)
    output, transform_problem = _transformed(adapter, capture, verdict)
    if transform_problem:
        problems = (*problems, transform_problem)
    return Interpretation(output, problems)


def run_fields(
    adapter: Adapter,
    capture: Capture,
    verdict: Verdict,
    problems: tuple[str, ...],
    trace_id: str,
    output: Json,
    contents: Contents,
) -> dict[str, Any]:
    """The fields of `Result` that describe the tool's run."""
    status = PROJECTIONS[verdict.outcome].tool_run or ToolRunStatus.ERROR
    stdout, stdout_facts = encoded(capture.stdout)
    stderr, stderr_facts = encoded(capture.stderr)
    reason = None
    if status is not ToolRunStatus.SUCCESS:
        reason = _reason(adapter, capture, verdict, problems, output)
    return {
        "result": ToolRunResult(
            status=status,
            exit_code=verdict.exit_code,
            stdout=stdout,
            stderr=stderr,
            artifacts=_artifacts(capture, trace_id, contents) if capture.collected else (),
            duration_ms=capture.duration_ms,
            error_reason=reason,
        ),
        "streams": {"stdout": stdout_facts, "stderr": stderr_facts},
        "small_files": _small(capture) if capture.collected else None,
        "enforcement": capture.enforcement,
        "denials": capture.denials,
        "egress": capture.connections,
        "workspace": capture.workspace,
    }


def _reason(
    adapter: Adapter, capture: Capture, verdict: Verdict, problems: tuple[str, ...], output: Json
) -> str | None:
    ended = report_of(adapter, capture).reason or verdict.error_reason
    reason = ended or "; ".join(problems) or None
    if reason and verdict.outcome is not Outcome.OUTPUT_INVALID and output is not None:
        reason = f"{reason}; {output['error']['type']}: {output['error']['message']}"
    return reason


def _transformed(adapter: Adapter, capture: Capture, verdict: Verdict) -> tuple[Json, str]:
    """(output, problem). A tool that failed has no output to transform."""
    if adapter.cli is not None and not adapter.output_transforms:
        return None, ""  # a program prints; it answers nothing unless that is parsed
    try:
        answer = answer_of(adapter, capture)
        if verdict.outcome is not Outcome.SUCCEEDED:
            return None if answer.failure is None else {"error": dict(answer.failure)}, ""
        return apply_output_transforms(adapter.output_transforms, answer), ""
    except OutputInvalid as error:
        return None, f"output: {error}"


def _small(capture: Capture) -> dict[str, bytes]:
    return {item.blake3: item.content for item in capture.collected if item.size <= SMALL_BYTES}


def with_declared(outputs: ExpectedOutputs, capture: Capture) -> Capture:
    """The capture with its artifacts called as the contract declares them."""
    if not outputs.artifacts or not capture.collected:
        return capture
    declared = {declared_path(spec.path): spec for spec in outputs.artifacts}

    def called(item: Collected) -> Collected:
        spec = declared.get(item.path) if item.kind == ARTIFACT else None
        return item if spec is None else replace(item, name=spec.name, type=spec.type)

    return replace(capture, collected=tuple(map(called, capture.collected)))


def _artifacts(capture: Capture, trace_id: str, contents: Contents) -> tuple[ArtifactRef, ...]:
    return tuple(
        ArtifactRef(
            name=item.name,
            path=item.path,
            type=item.type,
            kind=item.kind,
            size=item.size,
            sha256=item.sha256,
            blake3=item.blake3,
            trace_id=trace_id,
            contents=contents,
        )
        for item in capture.collected
    )


def output_digest(capture: Capture, exit_code: int | None) -> str:
    files = [(item.kind, item.path, item.sha256) for item in capture.collected]
    return sha256_json(
        {
            "stdout": capture.stdout.sha256,
            "stderr": capture.stderr.sha256,
            "exit_code": exit_code,
            "files": files,
        }
    )
