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


def interpreted(
    contract: Contract, adapter: Adapter, capture: Capture
) -> tuple[Json, tuple[str, ...]]:
    """(output, everything in which the outputs are not what was asked for)."""
    problems = check_outputs(contract.outputs, interpret(capture.ending), capture)
    output, transform_problem = _transformed(adapter, capture)
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
    ended = told_by(adapter, capture).reason or verdict.error_reason
    reason = ended or "; ".join(problems) or None
    if reason and verdict.outcome is not Outcome.OUTPUT_INVALID and output is not None:
        reason = f"{reason}; {output['error']['type']}: {output['error']['message']}"
    return {
        "result": ToolRunResult(
            status=status,
            exit_code=verdict.exit_code,
            stdout=stdout,
            stderr=stderr,
            artifacts=_artifacts(capture, trace_id),
            duration_ms=capture.duration_ms,
            error_reason=None if status is ToolRunStatus.SUCCESS else reason,
        ),
        "streams": {"stdout": stdout_facts, "stderr": stderr_facts},
        "enforcement": capture.enforcement,
        "denials": capture.denials,
        "egress": capture.connections,
    }


def _transformed(adapter: Adapter, capture: Capture) -> tuple[Json, str]:
    """(output, problem). A tool that failed has no output to transform."""
    try:
        said = said_by(adapter, capture)
        if interpret(capture.ending).outcome is not Outcome.SUCCEEDED:
            return None if said.failure is None else {"error": dict(said.failure)}, ""
        return apply_output_transforms(adapter.output_transforms, said), ""
    except OutputInvalid as error:
        return None, f"output: {error}"


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
    return sha256_json(
        {
            "stdout": capture.stdout.sha256,
            "stderr": capture.stderr.sha256,
            "exit_code": exit_code,
            "files": [[item.kind, item.path, item.sha256] for item in capture.collected],
        }
    )
