"""From a capture to what it means: outputs checked and transformed, the run told as a result."""

from __future__ import annotations

from typing import Any

from actum.adapters.kinds import said_by, told_by
from actum.adapters.output import apply_output_transforms
from actum.adapters.parsers import OutputInvalid
from actum.capture.interpret import Verdict, check_outputs, interpret
from actum.capture.model import Capture
from actum.contract.canonical import sha256_json
from actum.contract.model import Contract, Json
from actum.contract.outcome import PROJECTIONS, Outcome, ToolRunStatus
from actum.engine.result import ArtifactRef, ToolRunResult, encoded
from actum.registry.model import Adapter

#: A file that a result keeps at hand; it lives as long as whoever asked keeps the result.
SMALL_BYTES = 16_384


def interpreted(
    contract: Contract, adapter: Adapter, capture: Capture
) -> tuple[Json, tuple[str, ...]]:
    """(output, everything in which the outputs are not what was asked for)."""
    verdict = interpret(capture.ending)
    problems = check_outputs(contract.outputs, verdict, capture)
    output, transform_problem = _transformed(adapter, capture, verdict)
    return output, (*problems, transform_problem) if transform_problem else problems


def told(
    adapter: Adapter,
    capture: Capture,
    verdict: Verdict,
    problems: tuple[str, ...],
    trace_id: str,
    output: Json,
) -> dict[str, Any]:
    """The part of a `Result` that tells of the tool's run."""
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
            artifacts=_artifacts(capture, trace_id) if capture.collected else (),
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
    ended = told_by(adapter, capture).reason or verdict.error_reason
    reason = ended or "; ".join(problems) or None
    if reason and verdict.outcome is not Outcome.OUTPUT_INVALID and output is not None:
        reason = f"{reason}; {output['error']['type']}: {output['error']['message']}"
    return reason


def _transformed(adapter: Adapter, capture: Capture, verdict: Verdict) -> tuple[Json, str]:
    """(output, problem). A tool that failed has no output to transform."""
    if adapter.cli is not None and not adapter.output_transforms:
        return None, ""  # a program prints; it answers nothing unless that is parsed
    try:
        said = said_by(adapter, capture)
        if verdict.outcome is not Outcome.SUCCEEDED:
            return None if said.failure is None else {"error": dict(said.failure)}, ""
        return apply_output_transforms(adapter.output_transforms, said), ""
    except OutputInvalid as error:
        return None, f"output: {error}"


def _small(capture: Capture) -> dict[str, bytes]:
    return {item.blake3: item.content for item in capture.collected if item.size <= SMALL_BYTES}


def _artifacts(capture: Capture, trace_id: str) -> tuple[ArtifactRef, ...]:
    return tuple(
        ArtifactRef(
            name=item.name,
            path=item.path,
            type=item.kind,
            size=item.size,
            sha256=item.sha256,
            blake3=item.blake3,
            trace_id=trace_id,
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
