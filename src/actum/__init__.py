"""Actum runs tools and code for agents under a written contract.

This is the front door: re-exports only, resolved on first use so that `import actum` stays light.
"""

from __future__ import annotations

TYPE_CHECKING = False  # spelt out: importing typing would cost more than this module
if TYPE_CHECKING:
    from actum.contract.model import Contract
    from actum.contract.outcome import Outcome
    from actum.engine.result import Result
    from actum.errors import ActumError, ContractInvalid, Fault, Refused
    from actum.executors.model import ActionRequest, ActionResult
    from actum.wiring import Runtime

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
    "Result": "actum.engine.result",
    "Runtime": "actum.wiring",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'actum' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
