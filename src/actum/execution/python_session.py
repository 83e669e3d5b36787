"""`Runtime.python_session`: one interpreter kept, each call an execution of its own.

The session is an execution too: its contract is checked and recorded before it starts. Its receipt
is sealed when it is closed, with the number of calls, and every call's receipt names it. A call
goes through the whole pipeline, with `SessionRunner` as its runner. All changes of the calls are
one transaction, the session's.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Self

from actum.adapters.kinds import build_call
from actum.contract.call import Call
from actum.contract.model import Contract, Json
from actum.errors import Refused
from actum.execution import snippet
from actum.execution.kept_tool import Server
from actum.execution.keyword_types import check_call, check_snippet, not_awaitable
from actum.execution.pipeline import execute
from actum.execution.result import Result
from actum.execution.services import Services
from actum.registry.model import Entry
from actum.runners.base import Cancel, OnOutput
from actum.runners.concurrency import Queueing, Turn
from actum.runners.session_runner import SessionRunner
from actum.value import replace

#: The first argument of the snippet program that keeps its interpreter.
KEEP = "session:"


def build(contract: Contract, entry: Entry) -> Call:
    """The session's own call. Refuses a session that could not answer."""
    processes = contract.sandbox.processes
    if processes.allow_fork is False or processes.max_children == 0:
        raise Refused(
            "SESSION_NEEDS_CHILD",
            "sandbox.processes: a session's interpreter is a child of the process that guards it.",
            remedy="Permit at least one child, or use `Runtime.python` for each snippet.",
        )
    return build_call(contract, entry)


class PythonSession:
    """`with rt.python_session() as s: s.run("x = 1"); s.run("x").output`. One call at a time."""

    def __init__(
        self,
        server: Server,
        services: Services,
        contract_of: Callable[..., Contract],
        finish: Callable[[Result], Result],
        first: Mapping[str, Any],
        on_close: Callable[[PythonSession], None],
    ) -> None:
        self._server = server
        self._runner = SessionRunner(server.runner, server.plan, server.channel)
        runners = {**services.runners, server.runner.kind: self._runner}
        self._services = replace(services, runners=runners, kept=True)
        self._contract_of = contract_of
        self._finish = finish
        self._first: Mapping[str, Any] = first  #: params and files of the first call
        self._on_close = on_close
        self._turns = threading.Lock()
        self._result: Result | None = None

    @property
    def receipt_id(self) -> str:
        """The parent of every call's receipt; sealed when the session is closed."""
        return self._server.receipt_id

    @property
    def execution_id(self) -> str:
        return self._server.execution_id

    @property
    def ended(self) -> str:
        """Why the session takes no more calls; empty while it does."""
        return self._runner.ended

    def run(
        self,
        code: str,
        *,
        params: Mapping[str, Json] | None = None,
        files: Mapping[str, bytes | str] | None = None,
        timeout: str | float | None = None,
        on_output: OnOutput | None = None,
        cancel: Cancel | None = None,
        queue_s: float | None = None,
        turn: Turn | None = None,
    ) -> Result:
        """Run a snippet in the state that earlier ones left. `output` is its value."""
        check_snippet(code, params=params, files=files)
        check_call(on_output=on_output, cancel=cancel, turn=turn, queue_s=queue_s)
        snippet.require_own_folder(self._server.plan.working_directory, files)
        order = snippet.order(
            code,
            {**self._first.get("params", {}), **(params or {})},
            {**self._first.get("files", {}), **(files or {})},
        )
        contract = self._contract_of(order, timeout)
        if turn is None:
            patience = self._services.wait_s if queue_s is None else queue_s
            turn = Queueing(self._services.concurrency, cancel, patience)
        return self.execute(contract, on_output=on_output, cancel=cancel, turn=turn)

    def execute(
        self,
        contract: Contract,
        *,
        on_output: OnOutput | None = None,
        cancel: Cancel | None = None,
        turn: Turn | None = None,
    ) -> Result:
        on_output = on_output and not_awaitable(on_output)
        with self._turns:
            before = self._runner.calls
            result = execute(
                contract,
                self._services,
                on_output=on_output,
                cancel=cancel,
                trace_id=self._server.trace_id,
                turn=turn,
                parent_receipt=self.receipt_id,
            )
            if self._runner.calls > before:
                self._first = {}
        return self._finish(result)

    def close(self) -> Result:
        """End the interpreter and everything it started; the session's own result."""
        with self._turns:
            if self._result is None:
                self._runner.end("it was closed")
                self._result, _capture = self._server.close(
                    {
                        "calls": self._runner.calls,
                        "failed": self._runner.failed,
                        "stray_bytes": self._runner.stray_bytes,
                    },
                    broken_off=self._runner.broken_off,
                )
                self._on_close(self)
            return self._result

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
