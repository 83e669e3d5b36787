"""What the pipeline works with: one frozen value, put together by wiring."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime

from actum.contract.model import RunnerKind
from actum.engine.approvals import Approvals
from actum.engine.mcp.kept import KeptServers
from actum.engine.pace import Pace
from actum.engine.precedents import Precedents
from actum.engine.results import ResultCache
from actum.engine.transactions import Settlement
from actum.errors import Refused
from actum.evidence.executions import Executions
from actum.evidence.ledger import Ledger
from actum.evidence.receipts import Receipts
from actum.policy.effective import PolicySettings
from actum.registry.pinned_settings import ApprovedSettings
from actum.registry.registry import Registry
from actum.runners.base import Runner
from actum.runners.places import Places
from actum.secrets.given import Secrets
from actum.store.golden import GoldenOutputs
from actum.store.session import SessionStore
from actum.value import field, value

_PACE = Pace()
#: The one clock. Decisions see only the time a contract was created; records see when.
Clock = Callable[[], datetime]


@value
class Rooms:
    registry: Registry
    settings: ApprovedSettings
    policy: PolicySettings
    runners: Mapping[RunnerKind, Runner]  #: enabled here; any other kind is refused by name
    ledger: Ledger
    approvals: Approvals
    executions: Executions
    receipts: Receipts
    sessions: SessionStore
    places: Places
    servers: KeptServers
    wait_s: float  #: how long a request may wait for a place
    session: str  #: for contracts that name none
    clock: Clock
    secrets: Secrets
    golden: GoldenOutputs
    results: ResultCache
    settlement: Settlement  #: what becomes of changes to writable folders
    #: Whether all calls go to one tool that is kept running, whose transaction has their changes.
    kept: bool = False
    pace: Pace = _PACE
    precedents: Precedents = field(default_factory=Precedents)

    def runner(self, kind: RunnerKind) -> Runner:
        """The runner the ToolSpec names, or a refusal: never another one in its place."""
        found = self.runners.get(kind)
        if found is not None:
            return found
        remedy = {
            RunnerKind.LOCAL: "Set `local = true` under [runners] in actum.toml.",
            RunnerKind.DOCKER: "This version has no docker runner. To use the local one, set"
            " permissions.execution.runner to local in tool.yaml and approve the tool again.",
            RunnerKind.REMOTE: "No remote runner is configured.",
        }[kind]
        raise Refused(
            "RUNNER_UNAVAILABLE", f"The {kind} runner is not available here.", remedy=remedy
        )
