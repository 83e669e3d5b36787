"""Settings to services: the only place that chooses implementations."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING

from actum.approvals.requests import Approvals
from actum.approvals.standing_approvals import StandingApprovals
from actum.contract.approvers import Approvers
from actum.contract.encoder import hasten
from actum.contract.ids import new_id
from actum.contract.model import Contract, RunnerKind
from actum.evidence.executions import Executions
from actum.evidence.ledger import Ledger
from actum.evidence.receipts import Receipts
from actum.evidence.retrieval import EvidenceStore
from actum.execution.result_cache import ResultCache
from actum.execution.services import Clock, Services
from actum.execution.transactions import Settlement, Transactions
from actum.images.image_store import ImageStore
from actum.mcp.pins import ServerPins
from actum.mcp.server_pool import ServerPool
from actum.own_code import own_code
from actum.policy.effective import PolicySettings
from actum.policy.paths import outermost
from actum.registry.approval_workflow import approvers_in
from actum.registry.disk_cache import DiskCache
from actum.registry.pinned_settings import ApprovedSettings
from actum.registry.registry import Registry
from actum.runners.base import Cancel, Runner
from actum.runners.concurrency import ConcurrencyLimit
from actum.secrets.given import Secrets
from actum.settings import Settings
from actum.store.blobs import BlobStore
from actum.store.database import Database
from actum.store.golden_outputs import GoldenOutputs
from actum.store.inbox import Inbox
from actum.store.keys import Keyring
from actum.store.session_memory import ProcessSessions
from actum.store.session_streams import SessionStore
from actum.workspace.copies import Bounds
from actum.workspace.layer_folders import LayerFolders
from actum.workspace.retention import Keep

if TYPE_CHECKING:
    import socket

    from actum.contract.request import ExecRequest
    from actum.evidence.verify.receipt_verifier import Verifier
    from actum.execution.execution import Execution
    from actum.execution.mcp_runner import McpRunner
    from actum.execution.result import Result
    from actum.executors.plane import Executors
    from actum.registry.model import Entry
    from actum.runners.spawner_start import Spawner
    from actum.runs.durable_runs import Runs
    from actum.runs.perform import OnEvent, Performer
    from actum.work.work_items import WorkItems


def now() -> datetime:
    return datetime.now(UTC)


def build(
    settings: Settings,
    *,
    runners: Mapping[RunnerKind, Runner] | None = None,
    session: str | None = None,
    clock: Clock = now,
    pool: bool = True,
    spawner: Spawner | None = None,
) -> Services:
    """All that a project's executions work with. `runners` replaces those of actum.toml."""
    home, root = settings.home, settings.root
    own_session = f"s-{new_id()}"
    keyring = Keyring.open(home, trust=settings.trusted_keys)
    database = Database.open(home)
    blobs = BlobStore(home, database)
    ledger = Ledger(
        database=database, blobs=blobs, signer=keyring.signer, redact=bytes, behind=pool
    )
    registry = Registry(
        root,
        keyring.approving,
        images=ImageStore(home),
        kept=DiskCache(home / "cache", time.time if clock is now else lambda: clock().timestamp()),
    )
    sessions = SessionStore(home) if session else ProcessSessions(home, own_session)
    secrets = Secrets(
        settings.secrets, project=str(root), writable=lambda: registry.lock().writable(root)
    )
    if runners is None:
        governed = (str(root), settings.protected_names)
        runners = enabled_runners(settings, secrets, pool=pool, spawner=spawner, governed=governed)
    approved = ApprovedSettings(settings.file, home, registry.lock)
    policy = _policy(settings, lambda: registry.lock().writable(root))

    def approvers() -> Approvers:
        return approvers_in(registry.lock())

    services = Services(
        keyring=keyring,
        database=database,
        blobs=blobs,
        registry=registry,
        settings=approved,
        policy=policy,
        settlement=_settlement(settings),
        layer_folders=LayerFolders(home, ahead=pool),
        runners=runners,
        secrets=secrets,
        golden=GoldenOutputs(home),
        results=ResultCache(home, own_session),
        ledger=ledger,
        approvals=Approvals(
            database,
            ledger.log,
            clock,
            Inbox(home),
            approvers=approvers,
        ),
        standing_approvals=StandingApprovals(
            database, ledger.log, clock, registry, approved, policy, approvers
        ),
        executions=Executions(database),
        receipts=Receipts(database, home),
        evidence=EvidenceStore(database, blobs, sessions),
        sessions=sessions,
        concurrency=ConcurrencyLimit(settings.max_concurrent, queued=settings.max_queued),
        mcp_runner=_mcp_runner,
        servers=ServerPool(ServerPins(database, ledger.log), websocket=settings.mcp_websocket),
        wait_s=settings.max_wait_s,
        session=session or own_session,
        clock=clock,
    )
    if pool:
        hasten()
        database.open_background_connection()
        ledger.background_writer.start()
    return services


def _mcp_runner(
    runner: Runner, contract: Contract, entry: Entry, execution: Execution
) -> McpRunner:
    from actum.execution.mcp_runner import McpRunner  # few executions need it

    return McpRunner(runner, contract, entry, execution)


def _policy(settings: Settings, writable: Callable[[], tuple[str, ...]]) -> PolicySettings:
    return PolicySettings(
        repo_root=str(settings.root),
        home=str(settings.home),
        dependencies=settings.dependencies,
        interpreters=settings.interpreters,
        registries=cache(lambda: settings.registries(writable())),
        api_hosts=settings.apis,
        resolve=settings.resolve,
        own_authorities=settings.file.authorities is not None,
        transactions=settings.transactions,
        own_code=outermost(map(os.path.realpath, own_code())),
    )


def _settlement(settings: Settings) -> Settlement:
    return Settlement(
        home=str(settings.home),
        root=str(settings.root),
        protected_names=settings.protected_names,
        commit_when_stopped=settings.commit_when_stopped,
        engine=settings.workspace_engine,
        copied=Bounds(mib=settings.copy_max_mb, names=settings.copy_max_files),
        last_wins=settings.last_wins,
        keep=Keep(count=settings.keep_changes, size_bytes=settings.keep_changes_mb << 20),
    )


def enabled_runners(
    settings: Settings,
    secrets: Secrets,
    *,
    pool: bool,
    spawner: Spawner | None = None,
    governed: tuple[str, tuple[str, ...]] | None = None,
    host_folders: Mapping[str, str] | None = None,
) -> dict[RunnerKind, Runner]:
    """The runners that actum.toml enables; a tool that needs another kind is refused by name.
    `host_folders`: those of a work item's engine."""
    runners: dict[RunnerKind, Runner] = {}
    if RunnerKind.LOCAL in settings.runners:
        from actum.runners.local import LocalRunner

        runners[RunnerKind.LOCAL] = LocalRunner(
            resolve=settings.resolve,
            authorities=settings.file.authorities,
            max_kept=settings.max_sessions,
            egress={
                "connections": settings.egress_connections,
                "at_once": settings.egress_at_once,
                "bytes": settings.egress_mb << 20,
            },
            secrets=secrets,
            pool=pool,
            spawner=spawner,
            governed=governed,
        )
    if RunnerKind.DOCKER in settings.runners:
        from actum.runners.container.container_runner import ContainerRunner

        runners[RunnerKind.DOCKER] = ContainerRunner(
            host=settings.docker_host,
            runtime=settings.docker_runtime,
            resolve=settings.resolve,
            authorities=settings.file.authorities,
            max_kept=settings.max_sessions,
            egress={
                "connections": settings.egress_connections,
                "at_once": settings.egress_at_once,
                "bytes": settings.egress_mb << 20,
            },
            secrets=secrets,
            pool=pool,
            governed=governed,
            host_folders=host_folders,
        )
    return runners


def executors(settings: Settings, services: Services) -> Executors:
    from actum.executors.plane import Executors

    return Executors(
        root=settings.root,
        database=services.database,
        log=services.ledger.log,
        trusted=services.keyring.trusted,
        clock=services.clock,
    )


def verifier(services: Services) -> Verifier:
    from actum.evidence.verify.receipt_verifier import Verifier

    return Verifier(
        database=services.database,
        blobs=services.blobs,
        receipts=services.receipts,
        trusted=services.keyring.trusted,
    )


def work_items(
    settings: Settings, services: Services, contract: Callable[..., Contract]
) -> WorkItems:
    from actum.work.work_items import WorkItems
    from actum.work.work_records import WorkRecords

    def runners(
        source: socket.socket | None, host_folders: Mapping[str, str]
    ) -> Mapping[RunnerKind, Runner]:
        from actum.runners.spawner_start import Spawner

        return enabled_runners(
            settings,
            services.secrets,
            pool=False,
            spawner=Spawner(source=source),
            host_folders=host_folders,
        )

    return WorkItems(
        root=settings.root,
        home=settings.home,
        services=services,
        runners=runners,
        contract=contract,
        records=WorkRecords(services.database, services.ledger.log, settings.home),
        signer=services.keyring.signer,
        trusted=services.keyring.trusted,
        clock=services.clock,
        exclusive=settings.work_exclusive,
        engine=settings.work_engine,
        containers=RunnerKind.DOCKER in settings.runners,
        ignored=settings.work_ignore,
    )


def runs(
    settings: Settings,
    services: Services,
    *,
    work_items: Callable[[], WorkItems],
    execute: Callable[[ExecRequest, Cancel], Result],
) -> Runs:
    """Durable runs. `execute` carries out a validator and discards its changes."""
    from actum.run_queue import runs_of

    def performer(on_event: OnEvent) -> Performer:
        from actum.runs.perform import Performer

        return Performer(
            ledger=made.ledger,
            work_items=work_items(),
            execute=execute,
            clock=services.clock,
            at_once=2 * (os.cpu_count() or 1),
            on_event=on_event,
        )

    made = runs_of(
        settings,
        services.database,
        services.ledger.log,
        services.keyring,
        services.clock,
        work_items=work_items,
        performer=performer,
    )
    return made


def transactions(services: Services) -> Transactions:
    return Transactions(
        services.settlement,
        services.approvals,
        services.executions,
        services.ledger.log,
        services.clock,
    )
