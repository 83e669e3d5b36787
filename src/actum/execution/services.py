"""What the pipeline works with: one frozen value, built by `wiring`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from actum.approvals.requests import Approvals
from actum.approvals.standing_approvals import StandingApprovals
from actum.contract.model import Contract, RunnerKind
from actum.errors import Refused
from actum.evidence.executions import Executions
from actum.evidence.ledger import Ledger
from actum.evidence.receipts import Receipts
from actum.evidence.retrieval import EvidenceStore
from actum.execution.decision_cache import DecisionCache
from actum.execution.result_cache import ResultCache
from actum.execution.retry_clock import RetryClock
from actum.execution.transactions import Settlement
from actum.mcp.server_pool import ServerPool
from actum.policy.effective import PolicySettings
from actum.registry.pinned_settings import ApprovedSettings
from actum.registry.registry import Registry
from actum.runners.base import Runner
from actum.runners.concurrency import ConcurrencyLimit
from actum.secrets.given import Secrets
from actum.store.blobs import BlobStore
from actum.store.database import Database
from actum.store.golden_outputs import GoldenOutputs
from actum.store.keys import Keyring
from actum.store.session_streams import SessionStore
from actum.value import field, value
from actum.workspace.layer_folders import LayerFolders

if TYPE_CHECKING:
    from actum.execution.execution import Execution
    from actum.execution.mcp_runner import McpRunner
    from actum.registry.model import Entry

_RETRY_CLOCK = RetryClock()
#: The clock of records. Decisions see only the time at which a contract was created.
Clock = Callable[[], datetime]


@value
class Services:
    keyring: Keyring
    database: Database
    blobs: BlobStore
    registry: Registry
    settings: ApprovedSettings
    policy: PolicySettings
    runners: Mapping[RunnerKind, Runner]  #: enabled here; any other kind is refused by name
    ledger: Ledger
    approvals: Approvals
    standing_approvals: StandingApprovals
    executions: Executions
    receipts: Receipts
    evidence: EvidenceStore
    sessions: SessionStore
    concurrency: ConcurrencyLimit
    servers: ServerPool
    #: Takes the place of a runner for one call of an MCP tool.
    mcp_runner: Callable[[Runner, Contract, Entry, Execution], McpRunner]
    wait_s: float  #: how long a request may wait for a slot
    session: str  #: for contracts that name none
    clock: Clock
    secrets: Secrets
    golden: GoldenOutputs
    results: ResultCache
    settlement: Settlement  #: what becomes of changes to writable folders
    layer_folders: LayerFolders | None = None  #: ``None``: they are made for each request
    #: Whether all calls go to one kept tool, whose transaction has their changes.
    kept: bool = False
    retry_clock: RetryClock = _RETRY_CLOCK
    decision_cache: DecisionCache = field(default_factory=DecisionCache)

    def end_session(self, session: str) -> None:
        """Remove a session's raw output and its cached results."""
        self.sessions.end(session)
        self.results.end(session)

    def runner(self, kind: RunnerKind) -> Runner:
        """The runner that the ToolSpec names, or a refusal: never a substitute."""
        found = self.runners.get(kind)
        if found is not None:
            return found
        remedy = {
            RunnerKind.LOCAL: "Set `local = true` under [runners] in actum.toml.",
            RunnerKind.DOCKER: "Set `docker = true` under [runners] in actum.toml. To use the local"
            " one, set permissions.execution.runner to local in tool.yaml and approve the tool"
            " again.",
            RunnerKind.REMOTE: "No remote runner is configured.",
        }[kind]
        raise Refused(
            "RUNNER_UNAVAILABLE", f"The {kind} runner is not available here.", remedy=remedy
        )
