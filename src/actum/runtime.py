"""`Runtime`, the public API: each method builds a request and calls one function."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from actum import settings as project
from actum import wiring
from actum.contract.limits import IDLE_S
from actum.contract.model import Contract, Json, RunnerKind
from actum.contract.request import ExecRequest
from actum.errors import ContractInvalid, Problem, Refused
from actum.execution import shell_script, snippet
from actum.execution.approval_wait import execute_when_approved
from actum.execution.contract_source import AnyContract, contract_from
from actum.execution.forecast import Forecast, forecast
from actum.execution.keyword_types import check_call, check_snippet, not_awaitable
from actum.execution.pipeline import execute
from actum.execution.quantities import duration_ms
from actum.execution.request_document import request_document, takes_program
from actum.execution.result import Result, ToolRunResult
from actum.execution.services import Clock
from actum.execution.transactions import Transactions
from actum.runners.base import Cancel, OnOutput, Runner
from actum.runners.concurrency import Queueing, Turn
from actum.sandbox import sweep
from actum.settings import Settings
from actum.upkeep import clean_up

if TYPE_CHECKING:
    from actum.aio import AsyncRuntime
    from actum.contract.call import TraceContext
    from actum.evidence.retrieval import Evidence
    from actum.evidence.verify.receipt_verifier import Verifier
    from actum.execution.discovery import Discovery
    from actum.execution.python_session import PythonSession
    from actum.executors.model import ActionRequest, ActionResult
    from actum.executors.plane import Executors
    from actum.registry.project_images import ProjectImages
    from actum.replay.replay import Replay
    from actum.runners.spawner_start import Spawner
    from actum.runs.durable_runs import Runs
    from actum.runs.perform import OnEvent
    from actum.runs.transport.snapshots import Snapshots
    from actum.runs.work_done import WorkDone
    from actum.store.golden_outputs import Golden
    from actum.work.model import RunResult, WorkItem
    from actum.work.work_items import WorkItems

#: The longest time between two clean-ups after dead processes, in a runtime in use.
_SWEEP_EVERY_S = 60.0


class Runtime:
    """An open project. Safe to share between threads. Close it, or use it as a context."""

    def __init__(
        self,
        settings: Settings,
        *,
        runners: Mapping[RunnerKind, Runner] | None = None,
        session: str | None = None,
        clock: Clock = wiring.now,
        pool: bool = True,
        spawner: Spawner | None = None,
        upkeep: bool = True,
    ) -> None:
        """Without `upkeep`, another process of the same command has cleaned up already."""
        self.settings = settings
        self._own_session = session is None
        self._temporary: Path | None = None
        self.services = services = wiring.build(
            settings, runners=runners, session=session, clock=clock, pool=pool, spawner=spawner
        )
        self.keyring, self.database = services.keyring, services.database
        self.blobs, self.approvals = services.blobs, services.approvals
        self.standing_approvals = services.standing_approvals
        self._sessions: set[PythonSession] = set()
        self._warm = False
        self._swept = time.monotonic()
        if upkeep:
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
        """Open the project that holds `path`: the nearest `.actum/` upwards.

        With `pool`, sandboxes and interpreters are prepared ahead of requests.
        """
        found = project.discover(Path(path).resolve(), Path(home) if home else None)
        return cls(project.load(found, os.environ), session=session, pool=pool)

    @classmethod
    def temporary(cls, *, pool: bool = True) -> Self:
        """A throwaway project with the shipped tools on the local runner; removed on close."""
        from actum.project import create

        home = sweep.make_home()
        try:
            folder = home / "project"
            folder.mkdir(mode=0o700)
            create(
                folder, RunnerKind.LOCAL, by="user:temporary", date=wiring.now().date().isoformat()
            )
            runtime = cls.open(folder, pool=pool)
        except BaseException:
            sweep.remove_home(home)
            raise
        runtime._temporary = home
        return runtime

    def exec(
        self,
        tool: str,
        *arguments: str | os.PathLike[str],
        parameters: Mapping[str, Json] | None = None,
        stdin: bytes | bytearray | memoryview | str | None = None,
        files: Collection[str | os.PathLike[str]] = (),
        env: Mapping[str, str] | None = None,
        secrets: Mapping[str, str] | Collection[str] = (),
        cwd: str | os.PathLike[str] | None = None,
        timeout: str | float | None = None,
        memory: str | int | None = None,
        allow_hosts: Collection[str] = (),
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
        """Execute one tool, described by keywords: the same options as `actum exec`.

        `timeout` is seconds as a number, or text such as ``"500ms"``, ``"5s"`` or ``"2m"``;
        `memory` is bytes as a number, rounded down to whole MiB, or text such as ``"256M"``.
        Raises `ContractInvalid`, which names the keyword, for a value of another type.
        """
        request = ExecRequest(
            tool=tool,
            parameters={} if parameters is None else parameters,
            arguments=arguments,
            stdin=stdin,
            files=files,
            env={} if env is None else env,
            secrets=secrets,
            cwd=cwd,
            timeout=timeout,
            memory=memory,
            allow_hosts=allow_hosts,
            purpose=purpose,
            requested_by=requested_by,
            adapter_id=adapter_id,
            set={} if set is None else set,
        )
        return self.execute(
            self._recorded_draft(request),
            on_output=on_output,
            cancel=cancel,
            wait_s=wait_s,
            queue_s=queue_s,
            turn=turn,
            changes=changes,
        )

    def shell(self, *words: str | os.PathLike[str], **options: Any) -> Result:
        """Run a shell script with the `shell` tool: `rt.shell("ls -la | wc -l")`.

        Several words are one command and its arguments, each of which stays one word:
        `rt.shell("ls", "-la", "my file")`. Options as for `exec`; the script takes stdin.
        """
        if options.pop("stdin", None) is not None:
            message = "the script is the tool's stdin; write data to a file and read it there."
            raise ContractInvalid((Problem(field="stdin", message=message),))
        return self.exec(shell_script.TOOL, stdin=shell_script.script_of(words), **options)

    def run_tool(
        self,
        tool_id: str,
        args: Mapping[str, Any],
        effective_permissions: Mapping[str, Any],
        trace_context: TraceContext,
    ) -> ToolRunResult:
        """Execute one tool with the words of seed 004. Returns a result for every outcome.

        `args` are the parameters of the tool's `args_schema`; `arguments` and `stdin` in it are the
        raw arguments and the input. `effective_permissions` have the form of `permissions` in
        tool.yaml. They may only narrow what registry and policy give: anything wider is refused.
        Without `network` there is no network, without `secrets` no secret; other fields that are
        left out have the defaults of a contract. Raises `ContractInvalid` if permissions or ids
        have another form.
        """
        from actum.execution.tool_run import checked, request_of, tool_run_of
        from actum.registry.given_permissions import given_permissions

        given = given_permissions(effective_permissions)
        self._look_after()
        request = request_of(tool_id, args, given, checked(trace_context))
        result = execute(
            self.contract(self.draft(request)),
            self.services,
            trace_id=trace_context.trace_id,
            parent_receipt=trace_context.parent,
            ceiling=given,
        )
        return tool_run_of(result)

    def python(
        self,
        code: str,
        *,
        params: Mapping[str, Json] | None = None,
        files: Mapping[str, bytes | str] | None = None,
        preload: Sequence[str] = (),
        venv: str | os.PathLike[str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        **words: Any,
    ) -> Result:
        """Run a snippet in its own interpreter; `output` is its final value.

        `params` become variables of the snippet, `files` are in its working directory, `preload` is
        imported ahead of requests, `venv` adds its packages. The working directory is a new, empty
        one, or `cwd`, a folder of the host. Other options as for `exec`. A value that JSON does not
        have is a mark, an object with the key `$type`: see docs/python.md.
        """
        snippet.require_fit(words)
        own = words.pop("set", None)
        check_snippet(
            code, params=params, files=files, preload=preload, venv=venv, cwd=cwd, fields=own
        )
        arguments, fields = snippet.words(
            preload,
            None if venv is None else Path(venv),
            None if cwd is None else os.fspath(cwd),
            self.services.registry,
        )
        snippet.require_own_folder(fields[snippet.CWD], files)
        return self.exec(
            snippet.TOOL,
            *arguments,
            stdin=snippet.order(code, params or {}, files or {}),
            set={**fields, **(own or {})},
            **words,
        )

    def python_session(
        self,
        *,
        params: Mapping[str, Json] | None = None,
        files: Mapping[str, bytes | str] | None = None,
        preload: Sequence[str] = (),
        venv: str | os.PathLike[str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        idle_s: float = IDLE_S,
        timeout: str | float | None = None,
        lifetime: str | float = "600s",
        changes: str = "commit",
        **words: Any,
    ) -> PythonSession:
        """One interpreter for many snippets: `with rt.python_session() as s: s.run("x = 1")`.

        `timeout` is for each call, `idle_s` between two, `lifetime` for the whole session. Other
        options as for `python`; they apply to the session and to each call. When the session has
        ended, the changes of all calls to writable folders are committed, or as `changes` says; see
        `execute`. Raises `Refused` if it may not start; a refusal has a receipt too.
        """
        from actum.execution import python_session
        from actum.execution.kept_tool import open_server

        snippet.require_fit(words, kept=True)
        own = words.pop("set", None)
        check_snippet(
            "", params=params, files=files, preload=preload, venv=venv, cwd=cwd, fields=own
        )
        check_call(changes=changes, idle_s=idle_s)
        # By their names here: the session's own contract has another time limit than its calls'.
        duration_ms(lifetime, "lifetime")
        if timeout is not None:
            duration_ms(timeout, "timeout")
        arguments, fields = snippet.words(
            preload,
            None if venv is None else Path(venv),
            None if cwd is None else os.fspath(cwd),
            self.services.registry,
        )
        snippet.require_own_folder(fields[snippet.CWD], files)
        fields |= own or {}

        def contract_of(order: bytes | None, limit: str | float | None) -> Contract:
            ask = ExecRequest(
                tool=snippet.TOOL,
                arguments=(python_session.KEEP, *arguments),
                stdin=order,
                timeout=timeout if limit is None else limit,
                set=fields,
                **words,
            )
            return self.contract(self._recorded_draft(ask))

        self._look_after()
        opened = python_session.PythonSession(
            open_server(
                contract_of(None, lifetime),
                self.services,
                build=python_session.build,
                idle_s=idle_s,
                changes=changes,
            ),
            self.services,
            contract_of,
            self.with_value,
            {"params": params or {}, "files": files or {}},
            self._sessions.discard,
        )
        self._sessions.add(opened)
        return opened

    @cached_property
    def images(self) -> ProjectImages:
        """The images that tools run in: add, list, show, remove, gc."""
        from actum.images.image_store import ImageStore
        from actum.registry.project_images import ProjectImages

        services = self.services
        store = ImageStore(self.settings.home)
        return ProjectImages(store, services.registry, services.clock)

    def snapshots(
        self,
        store: str,
        *,
        endpoint: str = "",
        region: str = "us-east-1",
        access_key: str = "",
        secret_key: str = "",
        session_token: str = "",
    ) -> Snapshots:
        """The snapshots of the project's folder in a store: `file:///FOLDER` or `s3://BUCKET/PREFIX`.

        The last three name secrets of `[secrets]` that hold the credentials of a bucket.
        """
        from actum.runs.transport.object_store import StoreAddress
        from actum.runs.transport.snapshots import Snapshots
        from actum.workspace.space import Space

        space = Space(self.settings.home, self.settings.root)
        named = [access_key, secret_key, session_token]
        values = self._values_of(name for name in named if name)
        key_id, key, token = (values.get(name, "") for name in named)
        return Snapshots(
            StoreAddress(
                url=store, endpoint=endpoint, region=region, key_id=key_id, key=key, token=token
            ),
            self.settings.root,
            lambda: space.held(alone=False),
        )

    def _values_of(self, names: Iterable[str]) -> dict[str, str]:
        """Values of secrets for Actum's own use, if the settings that name their sources are
        approved."""
        from actum.contract.call import SecretUse

        uses = [SecretUse(name=name, variable="", by_descriptor=True) for name in names]
        if not uses:
            return {}
        while self.services.settings.require() is None:
            self.services.registry.lock()  # raises the reason
        given = self.services.secrets.give(uses).values
        return {name: os.fsdecode(given[name]) for name in given}

    def with_value(self, result: Result) -> Result:
        """Decode a snippet's value from its result into `output`."""
        return snippet.with_value(result, self.blobs)

    def takes_program(self, tool: str, *, adapter_id: str | None = None) -> bool:
        """Whether the stdin of this tool is a program that the caller writes."""
        return takes_program(tool, adapter_id, self.services.registry)

    def draft(self, request: ExecRequest) -> dict[str, Any]:
        """The contract of `request`, before checks and defaults. Records nothing."""
        return request_document(request, self.services.registry)

    def _recorded_draft(self, request: ExecRequest) -> dict[str, Any]:
        """The same for an execution: a malformed request is recorded."""
        try:
            return self.draft(request)
        except ContractInvalid:
            body = repr(request).encode(errors="backslashreplace")
            self.services.ledger.malformed(body, self.services.clock())
            raise

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
        """Execute one contract. Returns a Result for every outcome; only malformed ones raise.

        With `wait_s`, a call that needs an approval waits that long for the decision; `on_waiting`
        receives the pending result. `queue_s` is how long it may wait for a free slot
        (limits.max_wait_s of actum.toml); `turn` is another way to wait, for `aio`.
        `changes` to writable folders are committed when the tool has ended by itself (``commit``),
        held until a person has decided (``hold``), or dropped (``discard``).
        """
        check_call(
            on_output=on_output,
            on_waiting=on_waiting,
            cancel=cancel,
            turn=turn,
            changes=changes,
            wait_s=wait_s,
            queue_s=queue_s,
        )
        self._look_after()
        asked = self.contract(contract)
        on_output = on_output and not_awaitable(on_output)
        if turn is None:
            patience = self.services.wait_s if queue_s is None else queue_s
            turn = Queueing(self.services.concurrency, cancel, patience)
        result = execute_when_approved(
            lambda: execute(
                asked, self.services, on_output=on_output, cancel=cancel, turn=turn, changes=changes
            ),
            self.approvals,
            wait_s=wait_s,
            on_waiting=on_waiting,
            cancel=cancel,
        )
        return self.with_value(result)

    def record_golden(
        self, contract: AnyContract, *, by: str, why: str, replace: bool = False
    ) -> tuple[Result, Golden | None]:
        """Execute `contract` at level D2 and store its output as the expected one.

        Raises `Refused` if it may not run, if two runs differed, or if another output is stored.
        """
        from actum.execution.golden_recording import record

        asked = self.contract(contract)
        return record(asked, self.services, self.execute, by=by, why=why, replace=replace)

    def replay(self, execution_id: str, contract: AnyContract) -> Replay:
        """Execute the request of `execution_id` again and compare with its record."""
        from actum.replay.replay import replay

        known = self.services.executions.get(execution_id)
        if known is None:
            raise Refused(
                "EXECUTION_UNKNOWN",
                f"execution_id: there is no execution {execution_id[:80]!r} in this home.",
                remedy="`actum receipts list` shows those there are.",
            )
        found = replay(known, self.contract(contract), self.execute)
        if found.result is not None:
            self.end_session(found.result.session)
        return found

    def end_session(self, session: str | None = None) -> None:
        """End a session, by default this runtime's: its raw output and cached results are removed.
        Receipts and evidence stay."""
        self.services.end_session(session or self.services.session)

    def check(self, contract: AnyContract) -> Forecast:
        """Everything up to the start, unrecorded: would it run, and which limits would apply?"""
        return forecast(self.contract(contract), self.services)

    def contract(self, source: AnyContract) -> Contract:
        """Parse strictly and fill in defaults. A malformed contract is recorded."""
        # The folder of a throwaway project is not the user's working directory.
        base = os.getcwd() if self._temporary is None else str(self.settings.root)
        return contract_from(
            source, self.services, requested_by=f"user:{self.settings.login}", directory=base
        )

    @cached_property
    def discovery(self) -> Discovery:
        """List and describe the adapters that may be called, level by level."""
        from actum.execution.discovery import Discovery

        return Discovery(self.services)

    @cached_property
    def executors(self) -> Executors:
        """The pure plane: functions that compute and have no effects."""
        return wiring.executors(self.settings, self.services)

    def act(
        self, request: ActionRequest | Mapping[str, Any], *, profile: str = "default"
    ) -> ActionResult:
        """Execute one action of the pure plane. The result holds digests, never a value."""
        background_writer = self.services.ledger.background_writer
        background_writer.arrive()
        try:
            return self.executors.act(request, profile=profile)
        finally:
            background_writer.leave()

    def act_value(self, result: ActionResult) -> Json:
        """The output of a result of `act`, for as long as this runtime is open."""
        return self.executors.value(result)

    def evidence(self, ref: str) -> Evidence:
        """What is recorded under a result's `evidence_ref`, or under the id of an execution, a
        receipt or an evidence record. Raises `Refused` if there is none."""
        return self.services.evidence.find(ref)

    @property
    def verifier(self) -> Verifier:
        """Verifies the records of this home."""
        return wiring.verifier(self.services)

    @cached_property
    def work_items(self) -> WorkItems:
        """Work items: an agent's changes to this project, committed whole or not at all."""
        return wiring.work_items(self.settings, self.services, self.contract)

    @cached_property
    def runs(self) -> Runs:
        """Durable runs: work files under a persisted, sealed contract, carried out by workers."""
        return wiring.runs(
            self.settings,
            self.services,
            work_items=lambda: self.work_items,
            execute=lambda request, cancel: self.execute(
                self.draft(request), cancel=cancel, changes="discard"
            ),
        )

    @cached_property
    def transactions(self) -> Transactions:
        """Changes of finished executions: `actum diff`, `actum undo`."""
        return wiring.transactions(self.services)

    def work(self, item: WorkItem | Mapping[str, Any] | str | bytes | Path) -> RunResult:
        """Execute one work item. A RunResult for every outcome; only malformed ones raise."""
        return self.work_items.run(item)

    def work_file(
        self,
        source: str | bytes | Path,
        *,
        config: Mapping[str, Json] | None = None,
        at_once: int | None = None,
        new: bool = False,
        on_event: OnEvent = lambda _event: None,
    ) -> WorkDone:
        """Carry out a work file here, as a durable run; returns when the run has ended.

        Continues the last run of the same file in this project, unless it has completed; `new`
        starts over. `config` are fields of the execution contract, `at_once` the items at work at
        the same time. Call it from the main thread if Ctrl-C is to cancel the run.
        """
        return self.runs.in_foreground(
            source, config=config, at_once=at_once, new=new, on_event=on_event
        )

    def state_hash(self) -> str:
        """BLAKE3 of the project's files now: paths, types, modes and content."""
        return self.work_items.state_hash()

    def warm_up(self) -> None:
        """Start the local runner's spawner, so that it is ready when validation ends."""
        local = self.services.runners.get(RunnerKind.LOCAL)
        if local is not None and hasattr(local, "warm_up"):
            local.warm_up()

    @cached_property
    def aio(self) -> AsyncRuntime:
        """The same calls, awaitable; waiting takes no thread."""
        from actum.aio import AsyncRuntime

        return AsyncRuntime(self)

    def _look_after(self) -> None:
        """Maintenance that a request does for later ones."""
        if not self._warm:
            # Once: from then on the runner itself restarts its spawner.
            self._warm = True
            self.warm_up()
        if time.monotonic() - self._swept > _SWEEP_EVERY_S:
            self.sweep()

    def sweep(self) -> None:
        """Clean up after dead processes: at the start, and from time to time while in use."""
        self._swept = time.monotonic()
        clean_up(
            self.settings.home,
            self.services,
            work_items=lambda: self.work_items,
            transactions=lambda: self.transactions,
        )

    def close(self) -> None:
        if "aio" in self.__dict__:
            self.aio.close()
        for session in tuple(self._sessions):
            session.close()
        if "executors" in self.__dict__:
            self.executors.close()
        if "work_items" in self.__dict__:
            self.work_items.close()
        self.services.servers.close()
        for runner in self.services.runners.values():
            runner.close()
        if self.services.layer_folders is not None:
            self.services.layer_folders.close()
        if self._own_session:
            self.end_session()
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
