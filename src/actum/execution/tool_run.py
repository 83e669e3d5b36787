"""`run_tool` of seed 004: a door to the pipeline with the words of that contract.

It translates and decides nothing: `effective_permissions` become fields of the contract and a
ceiling (`policy.ceiling`), and the outcome becomes a `ToolRunResult`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from actum.contract.call import TraceContext
from actum.contract.contract_json import schema
from actum.contract.model import Json
from actum.contract.outcome import PROJECTIONS, ToolRunStatus
from actum.contract.request import ExecRequest
from actum.documents.document import document_of
from actum.documents.json_schema import check
from actum.errors import ContractInvalid
from actum.execution.result import Result, ToolRunResult
from actum.registry.given_permissions import GivenPermissions

#: Names in `args` that are no parameters: the raw arguments, and the tool's stdin.
_NO_PARAMETERS = ("arguments", "stdin")
_TRACE = "trace_context"


def request_of(
    tool_id: str, args: Mapping[str, Any], given: GivenPermissions, trace: TraceContext
) -> ExecRequest:
    """The request that a call of `run_tool` means."""
    fields: dict[str, Json] = {
        "execution_id": trace.execution_id,
        "sandbox.network.enabled": bool(given.outbound),
    }
    limits = {
        "timeout_ms": None if given.max_duration_s is None else given.max_duration_s * 1_000,
        "memory_mb": given.max_memory_mb,
        "cpu_cores": given.max_cpu_cores,
        "filesystem.read": None if given.read is None else list(given.read),
        "filesystem.write": None if given.write is None else list(given.write),
    }
    fields |= {f"sandbox.{name}": value for name, value in limits.items() if value is not None}
    # As fields of the contract, which the strict parser checks.
    fields |= {f"inputs.{name}": args[name] for name in _NO_PARAMETERS if name in args}
    return ExecRequest(
        tool=tool_id,
        parameters={name: value for name, value in args.items() if name not in _NO_PARAMETERS},
        secrets=given.secrets,
        set=fields,
    )


def checked(trace: TraceContext) -> TraceContext:
    """`trace`, whose ids have the form of every id: they go into signed records unchanged."""
    names = {"trace_id": trace.trace_id, "execution_id": trace.execution_id}
    if trace.parent is not None:
        names["parent"] = trace.parent
    if problems := check(document_of({_TRACE: names}), _trace_schema()):
        raise ContractInvalid(problems)
    return trace


@cache
def _trace_schema() -> Mapping[str, Any]:
    form = schema("execution-contract")["$defs"]["id"]
    ids = dict.fromkeys(("trace_id", "execution_id", "parent"), form)
    return {"properties": {_TRACE: {"type": "object", "properties": ids}}}


def tool_run_of(result: Result) -> ToolRunResult:
    """The `ToolRunResult` of any outcome; a refusal is an error of a tool that never started."""
    if result.result is not None:
        return result.result
    status = PROJECTIONS[result.outcome].tool_run or ToolRunStatus.ERROR
    reasons = "; ".join(
        each.message if each.field in each.message else f"{each.field}: {each.message}"
        for each in result.violations
    )
    return ToolRunResult(
        status=status,
        exit_code=None,
        stdout="",
        stderr="",
        artifacts=(),
        duration_ms=0,
        error_reason=reasons or ", ".join(result.reason_codes) or str(result.outcome),
    )
