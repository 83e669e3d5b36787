"""Actum runs tools and code for agents under a written contract.

This module only re-exports. Names are resolved on first use, so that `import actum` stays light.
"""

from __future__ import annotations

TYPE_CHECKING = False  # literal: importing typing costs more than this whole module
if TYPE_CHECKING:
    from actum.contract.call import TraceContext
    from actum.contract.model import Contract
    from actum.contract.outcome import Outcome
    from actum.contract.request import ExecRequest
    from actum.errors import ActumError, ContractInvalid, Fault, Problem, Refused, Violation
    from actum.execution.artifact import ArtifactRef
    from actum.execution.result import NotSucceeded, Result, ToolRunResult
    from actum.executors.model import ActionRequest, ActionResult
    from actum.runners.base import Cancel
    from actum.runtime import Runtime
    from actum.work.model import RunResult, WorkItem

__all__ = [
    "ActionRequest",
    "ActionResult",
    "ActumError",
    "ArtifactRef",
    "Cancel",
    "Contract",
    "ContractInvalid",
    "ExecRequest",
    "Fault",
    "NotSucceeded",
    "Outcome",
    "Problem",
    "Refused",
    "Result",
    "RunResult",
    "Runtime",
    "ToolRunResult",
    "TraceContext",
    "Violation",
    "WorkItem",
    "__version__",
]

__version__ = "0.1.0"

_HOMES = {
    "ActionRequest": "actum.executors.model",
    "ActionResult": "actum.executors.model",
    "ActumError": "actum.errors",
    "ArtifactRef": "actum.execution.artifact",
    "Cancel": "actum.runners.base",
    "Contract": "actum.contract.model",
    "ContractInvalid": "actum.errors",
    "ExecRequest": "actum.contract.request",
    "Fault": "actum.errors",
    "NotSucceeded": "actum.execution.result",
    "Outcome": "actum.contract.outcome",
    "Problem": "actum.errors",
    "Refused": "actum.errors",
    "Result": "actum.execution.result",
    "RunResult": "actum.work.model",
    "Runtime": "actum.runtime",
    "ToolRunResult": "actum.execution.result",
    "TraceContext": "actum.contract.call",
    "Violation": "actum.errors",
    "WorkItem": "actum.work.model",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'actum' has no attribute {name!r}")
    import importlib

    from actum.platforms import unsupported

    if sentence := unsupported():
        raise ImportError(sentence, name="actum")

    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({name for name in globals() if name.startswith("__")} | {*__all__})
