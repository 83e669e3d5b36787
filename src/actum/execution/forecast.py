"""`actum check`: the stages before the start, with nothing recorded and nothing run."""

from __future__ import annotations

from actum.capture.model import Enforced
from actum.contract.call import Check, EffectivePolicy
from actum.contract.model import Contract
from actum.errors import Refused, Violation
from actum.execution.execution import Execution
from actum.execution.preparation import prepare
from actum.execution.services import Services
from actum.value import value


@value
class Forecast:
    """Whether a contract would run, and what would enforce its limits."""

    contract: Contract
    violations: tuple[Violation, ...]  #: empty: it would run
    policy: EffectivePolicy | None
    checks: tuple[Check, ...]
    enforcement: tuple[Enforced, ...]


def forecast(contract: Contract, services: Services) -> Forecast:
    execution = Execution(contract, services)
    violations: tuple[Violation, ...] = ()
    try:
        prepare(execution, contract, None)
    except Refused as refusal:
        violations = refusal.violations
    finally:
        execution.sealed_inputs.close()
    intent = execution.intent
    return Forecast(
        contract=contract,
        violations=violations,
        policy=intent.policy,
        checks=intent.checks,
        enforcement=intent.foreseen,
    )
