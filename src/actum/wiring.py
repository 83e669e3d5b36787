"""Settings to Runtime: the only place that chooses implementations."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from actum import settings as project
from actum.contract.complete import Fill, complete
from actum.contract.encoder import hasten
from actum.contract.ids import new_id
from actum.contract.limits import IDLE_S
from actum.contract.model import Contract, Json, RunnerKind
from actum.contract.parse import Draft, parse_contract
from actum.engine import snippet
from actum.engine.approvals import Approvals
from actum.engine.ask import Ask, contract_document
from actum.engine.mcp.kept import KeptServers
from actum.engine.mcp.pins import ServerPins
from actum.engine.pipeline import Forecast, execute, forecast
from actum.engine.recover import close_lost
from actum.engine.result import Result
from actum.engine.results import ResultCache
from actum.engine.rooms import Clock, Rooms
from actum.engine.transactions import Settlement, Transactions
from actum.errors import ContractInvalid, Refused
from actum.evidence.executions import Executions
from actum.evidence.ledger import Ledger
from actum.evidence.receipts import Receipts
from actum.policy.effective import PolicySettings
from actum.registry.kept import Kept
from actum.registry.pinned_settings import ApprovedSettings
from actum.registry.registry import Registry
from actum.runners.base import Cancel, OnOutput, Runner
from actum.runners.places import Places, Queueing, Turn
from actum.sandbox import sweep
from actum.secrets.given import Secrets
from actum.settings import Settings
from actum.store.blobs import BlobStore
from actum.store.database import Database
from actum.store.golden import GoldenOutputs
from actum.store.inbox import Inbox
from actum.store.keys import Keyring
from actum.store.session import SessionStore
from actum.store.session_memory import ProcessSessions
from actum.workspace.copies import Bounds
from actum.workspace.transaction import Keep

if TYPE_CHECKING:
    from actum.agents.workshop import Workshop
    from actum.aio import AsyncRuntime
    from actum.engine.discovery import Discovery
    from actum.engine.reenact import Replay
    from actum.engine.session import PythonSession
    from actum.engine.work.model import RunResult, WorkItem
    from actum.evidence.verify import Verifier
    from actum.executors.model import ActionRequest, ActionResult
    from actum.executors.plane import Executors
    from actum.runners.early import Spawner
    from actum.store.golden import Golden

#: A contract in any form a caller may have it.
AnyContract = Contract | Draft | Mapping[str, Any] | str | bytes | Path

#: How long a runtime in use may not have looked for what others left.
_SWEEP_EVERY_S = 60.0


def now() -> datetime:
    return datetime.now(UTC)


class Runtime:
    """An open project. Shared safely between threads; close it, or use it as a context."""

    def __init__(
        self,
        settings: Settings,
        *,
        runners: Mapping[RunnerKind, Runner] | None = None,
        session: str | None = None,
        clock: Clock = now,
        pool: bool = True,
        spawner: Spawner | None = None,
    ) -> None:
        self.settings = settings
        self._own_session = session is None
        self._temporary: Path | None = None
        home = settings.home
        own = f"s-{new_id()}"
        self.keyring = Keyring.open(home, trust=settings.trusted_keys)
        self.database = Database.open(home)
        self.blobs = BlobStore(home, self.database)
        ledger = Ledger(
            database=self.database,
            blobs=self.blobs,
            signer=self.keyring.signer,
            redact=bytes,
            behind=pool,
        )
        self.approvals = Approvals(self.database, ledger.log, clock, Inbox(home))
        registry = Registry(
            settings.root,
            self.keyring.approving,
            kept=Kept(home / "cache", time.time if clock is now else lambda: clock().timestamp()),
        )
        root = settings.root
        secrets = Secrets(
            settings.secrets, project=str(root), writable=lambda: registry.lock().writable(root)
        )
        self.rooms = Rooms(
            registry=registry,
            settings=ApprovedSettings(settings.file, home, registry.lock),
            policy=PolicySettings(
                repo_root=str(settings.root),
                home=str(home),
                dependencies=settings.dependencies,
                registry_hosts=settings.registries,
                api_hosts=settings.apis,
                resolve=settings.resolve,
                own_authorities=settings.file.authorities is not None,
                transactions=settings.transactions,
            ),
            settlement=Settlement(
                home=str(home),
                root=str(settings.root),
                protected_names=settings.protected_names,
                commit_when_stopped=settings.commit_when_stopped,
                engine=settings.workspace_engine,
                copied=Bounds(mib=settings.copy_max_mb, names=settings.copy_max_files),
                last_wins=settings.last_wins,
                keep=Keep(count=settings.keep_changes, size_bytes=settings.keep_changes_mb << 20),
            ),
            runners=_runners(
                settings,
                secrets,
                pool=pool,
                spawner=spawner,
                governed=(str(settings.root), settings.protected_names),
            )
            if runners is None
            else runners,
            secrets=secrets,
            golden=GoldenOutputs(home),
            results=ResultCache(home, own),
            ledger=ledger,
            approvals=self.approvals,
            executions=Executions(self.database),
            receipts=Receipts(self.database, home),
            sessions=SessionStore(home) if session else ProcessSessions(home, own),
            places=Places(settings.max_concurrent, queued=settings.max_queued),
            servers=KeptServers(
                ServerPins(self.database, ledger.log), websocket=settings.mcp_websocket
            ),
            wait_s=settings.max_wait_s,
            session=session or own,
            clock=clock,
        )
        if pool:
            hasten()
            self.database.stand_by()
            ledger.clerk.start()
        self._asker = f"user:{settings.login}"
        self._sessions: set[PythonSession] = set()
        self._warm = False
        self._swept = 0.0
        self.sweep()

    @classmethod
    def open(
        cls,
        path: str | os.PathLike[str] = ".",
        *,
        home: str | os.PathLike[str] | None = None,
        session: str | None = None,
        pool: bool = True,
    ) -> Self:
        """The project that `path` lies in: the nearest `.actum/` upwards.

        With `pool`, sandboxes and interpreters are prepared before they are asked for.
        """
        found = project.discover(Path(path).resolve(), Path(home) if home else None)
        return cls(project.load(found, os.environ), session=session, pool=pool)

    @classmethod
    def temporary(cls, *, pool: bool = True) -> Self:
        """A throwaway project with the shipped tools on the local runner; gone when closed."""
        from actum.engine.project import create

        home = sweep.make_home()
        try:
            folder = home / "project"
            folder.mkdir(mode=0o700)
            create(folder, RunnerKind.LOCAL, by="user:temporary", date=now().date().isoformat())
            runtime = cls.open(folder, pool=pool)
        except BaseException:
            sweep.remove_home(home)
            raise
        runtime._temporary = home
        return runtime

    def exec(
        self,
        tool: str,
        *arguments: str,
        parameters: Mapping[str, Json] | None = None,
        stdin: bytes | str | None = None,
        files: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        secrets: Mapping[str, str] | Sequence[str] = (),
        cwd: str | os.PathLike[str] | None = None,
        timeout: str | None = None,
        memory: str | None = None,
        allow_hosts: Sequence[str] = (),
        purpose: str | None = None,
        requested_by: str | None = None,
        adapter_id: str | None = None,
        set: Mapping[str, Json] | None = None,  # noqa: A002 -- the same word as --set
        on_output: OnOutput | None = None,
        cancel: Cancel | None = None,
        wait_s: float | None = None,
        queue_s: float | None = None,
        turn: Turn | None = None,
        changes: str = "commit",
    ) -> Result:
        """One execution, asked for by keywords: the same words as `actum exec`."""
        ask = Ask(
            tool=tool,
            parameters=parameters or {},
            arguments=arguments,
            stdin=stdin,
            files=files,
            env=env or {},
            secrets=secrets,
            cwd=None if cwd is None else os.fspath(cwd),
            timeout=timeout,
            memory=memory,
            allow_hosts=allow_hosts,
            purpose=purpose,
            requested_by=requested_by,
            adapter_id=adapter_id,
            set=set or {},
        )
        return self.execute(
            self.draft(ask),
            on_output=on_output,
            cancel=cancel,
            wait_s=wait_s,
            queue_s=queue_s,
            turn=turn,
            changes=changes,
        )

    def python(
        self,
        code: str,
        *,
        params: Mapping[str, Json] | None = None,
        files: Mapping[str, bytes | str] | None = None,
        preload: Sequence[str] = (),
        venv: str | os.PathLike[str] | None = None,
        **words: Any,
    ) -> Result:
        """Run a snippet in an interpreter of its own; `output` is the value it ends with.

        `params` become names of the snippet, `files` lie in its working directory, `preload` is
        imported before it is asked for, `venv` lends its packages. Other words as for `exec`.
        """
        arguments, fields = snippet.words(preload, None if venv is None else Path(venv))
        result = self.exec(
            snippet.TOOL,
            *arguments,
            stdin=snippet.order(code, params or {}, files or {}),
            set={**fields, **words.pop("set", {})},
            **words,
        )
        return self.with_value(result)

    def python_session(
        self,
        *,
        params: Mapping[str, Json] | None = None,
        files: Mapping[str, bytes | str] | None = None,
        preload: Sequence[str] = (),
        venv: str | os.PathLike[str] | None = None,
        idle_s: float = IDLE_S,
        timeout: str | None = None,
        lifetime: str = "600s",
        changes: str = "commit",
        **words: Any,
    ) -> PythonSession:
        """One interpreter for many snippets: `with rt.python_session() as s: s.run("x = 1")`.

        `timeout` is for each call, `idle_s` between two, `lifetime` for all of it. Other words as
        for `python`; they hold for the session and for each of its calls. What all calls change in
        writable folders is committed when the session has ended, or ``hold`` or ``discard``, as
        for `execute`. Raises `Refused` if it may not start; that has a receipt, too.
        """
        from actum.engine import session
        from actum.engine.server import open_server

        arguments, fields = snippet.words(preload, None if venv is None else Path(venv))
        fields |= words.pop("set", {})

        def contract_of(order: bytes | None, limit: str | None) -> Contract:
            ask = Ask(
                tool=snippet.TOOL,
                arguments=(session.KEEP, *arguments),
                stdin=order,
                timeout=limit or timeout,
                set=fields,
                **words,
            )
            return self.contract(self.draft(ask))

        self._look_after()
        opened = session.PythonSession(
            open_server(
                contract_of(None, lifetime),
                self.rooms,
                build=session.build,
                idle_s=idle_s,
                changes=changes,
            ),
            self.rooms,
            contract_of,
            self.with_value,
            {"params": params or {}, "files": files or {}},
            self._sessions.discard,
        )
        self._sessions.add(opened)
        return opened

    def with_value(self, result: Result) -> Result:
        """The result of a snippet, with its value as `output`."""
        return snippet.with_value(result, self.blobs)

    def draft(self, ask: Ask) -> dict[str, Any]:
        """The contract that `ask` means, not yet checked or filled."""
        return contract_document(ask, self.rooms.registry)

    def execute(
        self,
        contract: AnyContract,
        *,
        on_output: OnOutput | None = None,
        cancel: Cancel | None = None,
        wait_s: float | None = None,
        on_waiting: Callable[[Result], None] | None = None,
        queue_s: float | None = None,
        turn: Turn | None = None,
        changes: str = "commit",
    ) -> Result:
        """Carry out one contract. A Result for every outcome; only malformed ones raise.

        With `wait_s`, a call that needs an approval waits that long for the decision; `on_waiting`
        is told what is waited for. `queue_s` is how long it may wait for a place among those that
        run (limits.max_wait_s of actum.toml); `turn` is another way to wait, for `aio`.
        `changes` to writable folders are committed when the tool has ended by itself, or ``hold``
        until a person has decided, or ``discard``.
        """
        self._look_after()
        asked = self.contract(contract)
        if turn is None:
            patience = self.rooms.wait_s if queue_s is None else queue_s
            turn = Queueing(self.rooms.places, cancel, patience)
        until = None if wait_s is None else time.monotonic() + wait_s
        while True:
            result = execute(
                asked, self.rooms, on_output=on_output, cancel=cancel, turn=turn, changes=changes
            )
            if until is None or "APPROVAL_REQUIRED" not in result.reason_codes:
                return result
            if on_waiting is not None:
                on_waiting(result)
            requests = [violation.value for violation in result.violations]
            stop = None if cancel is None else (lambda: cancel.requested)
            if not self.approvals.wait(requests, until, stop):
                return result

    def record_golden(
        self, contract: AnyContract, *, by: str, why: str, replace: bool = False
    ) -> tuple[Result, Golden | None]:
        """Carry out `contract` at level D2 and keep what it says as what is expected.

        Raises `Refused` if it may not run, was not the same twice, or another one is kept.
        """
        from actum.engine.golden_record import record

        asked = self.contract(contract)
        return record(asked, self.rooms, self.execute, by=by, why=why, replace=replace)

    def replay(self, execution_id: str, contract: AnyContract) -> Replay:
        """Carry out once more what `execution_id` was asked, and compare with its record."""
        from actum.engine.reenact import replay

        known = self.rooms.executions.get(execution_id)
        if known is None:
            raise Refused(
                "EXECUTION_UNKNOWN",
                f"execution_id: there is no execution {execution_id[:80]!r} in this home.",
                remedy="`actum receipts list` shows those there are.",
            )
        found = replay(known, self.contract(contract), self.execute)
        if found.result is not None:
            self.rooms.sessions.end(found.result.session)
        return found

    def check(self, contract: AnyContract) -> Forecast:
        """Everything up to the start, unrecorded: would it run, and what would hold it?"""
        return forecast(self.contract(contract), self.rooms)

    def contract(self, source: AnyContract) -> Contract:
        """Parse strictly and fill what was left out. A malformed one is put on record."""
        if isinstance(source, Contract):
            return source
        if isinstance(source, Draft):
            return self._completed(source)
        return self._completed(self._parsed(source))

    def _parsed(self, source: Mapping[str, Any] | str | bytes | Path) -> Draft:
        try:
            return parse_contract(source)
        except ContractInvalid:
            self.rooms.ledger.malformed(_bytes_of(source), self.rooms.clock())
            raise

    def _completed(self, draft: Draft) -> Contract:
        fill = Fill(
            execution_id=new_id(),
            requested_at=self.rooms.clock(),
            requested_by=self._asker,
            purpose=f"actum exec {draft.document['tool_id']}",
            working_directory=self._base(),
        )
        return complete(draft, fill)

    def _base(self) -> str:
        """Where relative paths begin."""
        return os.getcwd() if self._temporary is None else str(self.settings.root)

    @cached_property
    def discovery(self) -> Discovery:
        """Which adapters may be called, told level by level."""
        from actum.engine.discovery import Discovery

        return Discovery(self.rooms)

    @cached_property
    def executors(self) -> Executors:
        """The pure plane: functions that compute and do nothing else."""
        from actum.executors.plane import Executors

        return Executors(
            root=self.settings.root,
            database=self.database,
            log=self.rooms.ledger.log,
            trusted=self.keyring.trusted,
            clock=self.rooms.clock,
        )

    def act(
        self, request: ActionRequest | Mapping[str, Any], *, profile: str = "default"
    ) -> ActionResult:
        """Carry out one action of the pure plane. The result holds digests, never a value."""
        clerk = self.rooms.ledger.clerk
        clerk.arrive()
        try:
            return self.executors.act(request, profile=profile)
        finally:
            clerk.leave()

    def act_value(self, result: ActionResult) -> Json:
        """The output behind a result of `act`, for as long as this runtime is open."""
        return self.executors.value(result)

    @property
    def verifier(self) -> Verifier:
        """Checks what this home holds."""
        from actum.evidence.verify import Verifier

        return Verifier(
            database=self.database,
            blobs=self.blobs,
            receipts=self.rooms.receipts,
            trusted=self.keyring.trusted,
        )

    @cached_property
    def workshop(self) -> Workshop:
        """Work items: an agent's work on this project, all of it or nothing."""
        from actum.agents.workshop import Workshop
        from actum.engine.work.records import WorkRecords

        home = self.settings.home
        return Workshop(
            root=self.settings.root,
            home=home,
            rooms=self.rooms,
            runners=lambda: _runners(self.settings, self.rooms.secrets, pool=False),
            contract=self.contract,
            records=WorkRecords(self.database, self.rooms.ledger.log, home),
            signer=self.keyring.signer,
            trusted=self.keyring.trusted,
            clock=self.rooms.clock,
            exclusive=self.settings.work_exclusive,
            engine=self.settings.work_engine,
        )

    @cached_property
    def transactions(self) -> Transactions:
        """Changes of executions that are over: `actum diff`, `actum undo`."""
        return Transactions(
            self.rooms.settlement,
            self.approvals,
            self.rooms.executions,
            self.rooms.ledger.log,
            self.rooms.clock,
        )

    def work(self, item: WorkItem | Mapping[str, Any] | str | bytes | Path) -> RunResult:
        """Carry out one work item. A RunResult for every outcome; only malformed ones raise."""
        return self.workshop.run(item)

    def state_hash(self) -> str:
        """BLAKE3 of the project's files as they are now: paths, types, modes and content."""
        return self.workshop.state_hash()

    def warm_up(self) -> None:
        """Start the local runner's spawner, so that it is ready when validation is through."""
        local = self.rooms.runners.get(RunnerKind.LOCAL)
        if local is not None and hasattr(local, "warm_up"):
            local.warm_up()

    @cached_property
    def aio(self) -> AsyncRuntime:
        """The same calls, awaitable; no thread waits with them."""
        from actum.aio import AsyncRuntime

        return AsyncRuntime(self)

    def _look_after(self) -> None:
        """What a request does for those to come."""
        if not self._warm:
            # Once: from then on the runner itself sees to it that its spawner lives.
            self._warm = True
            self.warm_up()
        if time.monotonic() - self._swept > _SWEEP_EVERY_S:
            self.sweep()

    def sweep(self) -> None:
        """Clean up after processes that are gone: at the start, and now and then while in use."""
        self._swept = time.monotonic()
        close_lost(self.rooms.executions, self.rooms.ledger)
        self.approvals.forget_closed()
        if self.database.row("SELECT 1 FROM open_actions LIMIT 1") is not None:
            from actum.executors.plane import close_orphans

            close_orphans(self.database, self.rooms.ledger.log)
        if (self.settings.home / "work").is_dir():
            self.workshop.recover()
        if (self.settings.home / "transactions").is_dir():
            self.transactions.recover()
        if (self.settings.home / "inputs").is_dir():
            from actum.workspace import sealed

            sealed.recover(self.settings.home)
        sweep.sweep_homes()
        if RunnerKind.LOCAL in self.rooms.runners:
            sweep.sweep_groups()

    def close(self) -> None:
        if "aio" in self.__dict__:
            self.aio.close()
        for session in tuple(self._sessions):
            session.close()
        if "executors" in self.__dict__:
            self.executors.close()
        self.rooms.servers.close()
        for runner in self.rooms.runners.values():
            runner.close()
        if self._own_session:
            self.rooms.sessions.end(self.rooms.session)
        self.database.close()
        if self._temporary is not None:
            sweep.remove_home(self._temporary)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _runners(
    settings: Settings,
    secrets: Secrets,
    *,
    pool: bool,
    spawner: Spawner | None = None,
    governed: tuple[str, tuple[str, ...]] | None = None,
) -> dict[RunnerKind, Runner]:
    """Only what actum.toml enables; every other kind is refused by name when a tool asks for it."""
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
    return runners


def _bytes_of(source: Mapping[str, Any] | str | bytes | Path) -> bytes:
    if isinstance(source, bytes):
        return source
    if isinstance(source, Path):
        return source.read_bytes() if source.is_file() else b""
    return source.encode() if isinstance(source, str) else repr(source).encode()
