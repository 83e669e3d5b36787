"""Actum runs tools and code for agents under a written contract.

This module only re-exports. Names are resolved on first use, so that `import actum` stays light.
"""

from __future__ import annotations

TYPE_CHECKING = False  # literal: importing typing costs more than this whole module
if TYPE_CHECKING:
    from actum.contract.call import TraceContext
    from actum.contract.model import Contract
    from actum.contract.outcome import Outcome
    from actum.errors import ActumError, ContractInvalid, Fault, Refused
    from actum.execution.result import Result, ToolRunResult
    from actum.executors.model import ActionRequest, ActionResult
    from actum.runtime import Runtime

__all__ = [
    "ActionRequest",
    "ActionResult",
    "ActumError",
    "Contract",
    "ContractInvalid",
    "Fault",
    "Outcome",
    "Refused",
    "Result",
    "Runtime",
    "ToolRunResult",
    "TraceContext",
    "__version__",
]

__version__ = "0.1.0"

_HOMES = {
    "ActionRequest": "actum.executors.model",
    "ActionResult": "actum.executors.model",
    "ActumError": "actum.errors",
    "Contract": "actum.contract.model",
    "ContractInvalid": "actum.errors",
    "Fault": "actum.errors",
    "Outcome": "actum.contract.outcome",
    "Refused": "actum.errors",
    "Result": "actum.execution.result",
    "Runtime": "actum.runtime",
    "ToolRunResult": "actum.execution.result",
    "TraceContext": "actum.contract.call",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'actum' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
