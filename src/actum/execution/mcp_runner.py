"""The runner of MCP calls: it passes a call to a server and starts nothing itself.

The server runs in the sandbox of the real runner, as an execution of its own under the policy of
the call, and is this call's parent. By default it lives for one call, and its changes are in the
transaction of that call. The server's answer is data; a server that does not answer, breaks the
protocol or dies is an ending like any other.
"""

from __future__ import annotations

import time
from contextlib import AbstractContextManager

from actum.adapters import mcp as adapter
from actum.capture.model import (
    NOT_COMPARED_YET,
    Cancelled,
    Capture,
    Connection,
    CoverLost,
    DeadlinePassed,
    Ending,
    Enforced,
    Exited,
    Failed,
    GoverningChanged,
    LimitKilled,
    PolicyBroken,
    SealLost,
    Workspace,
    later,
    network_denials,
)
from actum.capture.streams import SILENCE
from actum.capture.streams import whole as whole_stream
from actum.contract.call import EffectivePolicy, Plan, TraceContext
from actum.contract.ids import new_id
from actum.contract.limits import IDLE_S, MESSAGE_BYTES, STDOUT_BYTES
from actum.contract.model import Contract, ExpectedOutputs, Inputs, Json, RunnerKind
from actum.errors import Refused
from actum.evidence.records.trace import Emit, EventType
from actum.execution.execution import Execution
from actum.execution.kept_tool import Server, open_server
from actum.mcp import json_rpc
from actum.mcp.client import Answer, Talk, encoded, make_ready
from actum.mcp.json_rpc import NoAnswer
from actum.mcp.pins import Tools
from actum.mcp.server_pool import KeptServer, Key
from actum.registry.model import Entry
from actum.runners.base import (
    Cancel,
    Capability,
    Channel,
    OnOutput,
    Permit,
    Runner,
    require_proof,
)
from actum.runners.lifecycle import Lifecycle
from actum.value import replace

_DONE = Exited(0)


class McpRunner:
    """`Runner` for one call."""

    def __init__(
        self,
        runner: Runner,
        contract: Contract,
        entry: Entry,
        execution: Execution,
    ) -> None:
        self._runner = runner
        self._contract = contract
        self._entry = entry
        self._services = services = execution.services
        self._execution = execution
        self._spec = adapter.server_spec(entry)
        if self._spec.transport == adapter.WEBSOCKET and not services.servers.websocket:
            raise Refused(
                "TRANSPORT_DISABLED",
                "interface.mcp.transport: websocket is no transport of the MCP standard, and is "
                "off here.",
                remedy="Set `websocket = true` under [mcp] in actum.toml, or use http.",
            )
        if self._spec.stateful and contract.inputs.input_files:
            raise Refused(
                "INPUT_NOT_SEALED",
                f"inputs.input_files: the server {self._spec.name} is kept for several calls, so"
                " the input files of one call cannot be sealed for it.",
                remedy="Leave input_files out and name the files in the parameters, or set"
                " `stateful: false` in adapter.yaml.",
            )

    @property
    def kind(self) -> RunnerKind:
        return self._runner.kind

    @property
    def keeps(self) -> bool:
        """Whether the server stays, so that its changes belong to no single call."""
        return self._spec.stateful

    def capabilities(self) -> tuple[Capability, ...]:
        return self._runner.capabilities()

    def foresee(self, policy: EffectivePolicy) -> tuple[Enforced, ...]:
        return self._runner.foresee(policy)

    def takes_overlay(self, plan: Plan, grant: str) -> bool:
        return self._runner.takes_overlay(plan, grant)

    def rest(self) -> None:
        self._runner.rest()

    def close(self) -> None:
        """Nothing of its own is open."""

    def open(
        self,
        plan: Plan,
        emit: Emit,
        cancel: Cancel | None = None,
        permit: Permit | None = None,
        *,
        idle_s: float = IDLE_S,
        message_bytes: int = MESSAGE_BYTES,
    ) -> Channel:
        return self._runner.open(
            plan, emit, cancel, permit, idle_s=idle_s, message_bytes=message_bytes
        )

    def run(
        self,
        plan: Plan,
        emit: Emit,
        on_output: OnOutput | None = None,
        cancel: Cancel | None = None,
        permit: Permit | None = None,
    ) -> Capture:
        require_proof(plan)
        make_ready()
        began = time.monotonic()
        deadline = began + plan.policy.limits.timeout_ms / 1000
        call = _Call(plan, began, deadline, cancel)
        with self._place(plan, deadline) as place:
            if place is None:
                call.failure = json_rpc.Late()
            else:
                self._reach(place, call)
            if permit is not None:
                permit()
            lifecycle = Lifecycle(plan, self.kind, emit)
            lifecycle.reached(EventType.TOOL_RUN_START, {"attempt": plan.trace.attempt})
            try:
                lifecycle.reached(EventType.TOOL_RUN_RESOURCE_APPLIED, self._applied(call))
                call.ask()
                capture = self._concluded(place, call)
            except BaseException:
                lifecycle.abort()
                if place is not None:
                    place.discard(broken_off=True)
                raise
        if on_output is not None and capture.stdout.kept:
            on_output("stdout", capture.stdout.kept)
        lifecycle.end(capture, len(capture.denials))
        return capture

    def _place(self, plan: Plan, deadline: float) -> AbstractContextManager[KeptServer | None]:
        if self._spec.stateful:
            return self._services.servers.turn(self._key(plan), deadline)
        return KeptServer().for_one_call()

    def _key(self, plan: Plan) -> Key:
        """Calls with equal keys share a server: the key is what it is and may do, but its time."""
        return (
            self._execution.session,
            self._contract.metadata.requested_by,
            plan.tool.pin,
            plan.adapter.sha256,
            plan.proof.executable.sha256,
            plan.image,
            replace(plan.policy, limits=replace(plan.policy.limits, timeout_ms=0)),
            plan.working_directory,
            frozenset(plan.environment.items()),
            frozenset(self._contract.inputs.secrets.items()),
        )

    def _reach(self, place: KeptServer, call: _Call) -> None:
        """Find or start a server that offers the approved tools. A failure to talk is an ending."""
        if place.talk is not None and (place.talk.server.channel.ended or call.lacks_time(place)):
            place.discard()
        fresh = place.talk is None
        if place.talk is None:
            place.talk = self._opened(call)
        talk = call.talk = place.talk
        try:
            talk.begin(call.deadline, call.cancel)
            if fresh:
                talk.negotiate()
            tools = talk.tools()
            if tools is not None:
                pins, now = self._services.servers.pins, self._services.clock()
                talk.tools_sha256 = pins.require_same(self._entry, tools, now)
                self._require_offered(tools, call.plan)
        except NoAnswer as failure:
            call.failure = failure
        except BaseException:
            place.discard(broken_off=True)
            raise
        server = talk.server
        asked = call.plan.trace
        trace = TraceContext(
            trace_id=asked.trace_id,
            execution_id=asked.execution_id,
            attempt=asked.attempt,
            parent=server.execution_id,
        )
        plan = replace(call.plan, trace=trace)
        self._execution.know(parent_receipt=server.receipt_id, plan=plan)

    def _require_offered(self, tools: Tools, plan: Plan) -> None:
        tool = adapter.tool_of(plan)
        if tool not in tools:
            raise Refused(
                "OPERATION_UNKNOWN",
                f"interface.mcp.tool_mapping: the server {self._spec.name} offers no {tool!r}.",
                remedy="Fix the mapping, and have the tool approved again.",
            )

    def _opened(self, call: _Call) -> Talk:
        asked, spec = self._contract, self._spec
        inputs = Inputs(
            command=f"{adapter.SERVER}{spec.name}",
            environment=asked.inputs.environment,
            working_directory=asked.inputs.working_directory,
            secrets=asked.inputs.secrets,
        )
        sandbox, outputs = asked.sandbox, ExpectedOutputs()
        if spec.stateful:
            sandbox = replace(sandbox, timeout_ms=spec.lifetime_ms)
        else:  # the server writes the output files of the call
            outputs = ExpectedOutputs(
                output_files=asked.outputs.output_files, artifacts=asked.outputs.artifacts
            )
        contract = Contract(
            execution_id=new_id(),
            tool_id=asked.tool_id,
            adapter_id=self._entry.adapter.adapter_id,
            inputs=inputs,
            sandbox=sandbox,
            outputs=outputs,
            metadata=replace(asked.metadata, purpose=f"MCP server {spec.name}", evidence_ref=None),
            determinism=asked.determinism,
            session=asked.session,
        )
        idle_s = spec.idle_s if spec.stateful else call.time_s
        server = self._started(contract, idle_s, call.plan)
        enveloped = spec.transport != adapter.STDIO
        return Talk(server, self._services.servers.schemas, enveloped=enveloped)

    def _started(self, contract: Contract, idle_s: float, served: Plan) -> Server:
        while True:
            try:
                return open_server(
                    contract,
                    self._services,
                    build=adapter.server_call,
                    granted=self._execution.granted,
                    inherited=served.sealed,
                    trace_id=self._execution.intent.trace_id,
                    idle_s=idle_s,
                    layers=served.layers,
                )
            except Refused as refusal:
                # An idle server makes room for one that is needed.
                if refusal.code != "SESSIONS_FULL" or not self._services.servers.make_room():
                    raise
            contract = replace(contract, execution_id=new_id())

    def _applied(self, call: _Call) -> dict[str, Json]:
        applied: dict[str, Json] = {
            "limits": [row.limit for row in self._execution.intent.foreseen if row.enforced]
        }
        if call.talk is not None:
            applied |= {
                "server": call.talk.server.execution_id,
                "server_kept": self._spec.stateful,
                "tools_sha256": call.talk.tools_sha256,
            }
        return applied

    def _concluded(self, place: KeptServer | None, call: _Call) -> Capture:
        """The capture of the call. A server that failed to answer is closed."""
        stays = self._spec.stateful and call.failure is None
        if place is None or call.talk is None:
            return call.capture(None, self._execution.intent.foreseen)
        if not stays:
            _result, of_server = call.talk.server.close(broken_off=call.broken_off)
            place.talk = None
            mine = not self._spec.stateful
            return call.capture(of_server, _own_time(of_server.enforcement, call), whole=mine)
        kept = call.talk.server
        rows = kept.channel.enforcement(f"; server kept open: {kept.execution_id}")
        return call.capture(None, _own_time(rows, call))


class _Call:
    """One call, from the search for a server to its capture."""

    def __init__(self, plan: Plan, began: float, deadline: float, cancel: Cancel | None) -> None:
        self.plan = plan
        self.began = began
        self.deadline = deadline
        self.cancel = cancel
        self.talk: Talk | None = None
        self.answer: Answer | None = None
        self.failure: NoAnswer | None = None
        self.asked = False  #: whether the server may have received the call
        self._refused_before: tuple[Connection, ...] = ()

    @property
    def time_s(self) -> float:
        return self.deadline - self.began

    def lacks_time(self, place: KeptServer) -> bool:
        """Whether a kept server's lifetime would end during this call."""
        return place.talk is not None and place.talk.server.channel.until < self.deadline

    def ask(self) -> None:
        if self.failure is not None or self.talk is None:
            return
        self.asked = True
        self._refused_before = self.talk.server.channel.refused()
        try:
            self.answer = self.talk.call(self.plan)
            self.talk.ask_ahead()
        except NoAnswer as failure:
            if self.answer is None:
                self.failure = failure

    def refused(self) -> tuple[Connection, ...]:
        """The connections and names that a kept server was refused during this call."""
        if not self.asked or self.talk is None:
            return ()
        return later(self._refused_before, self.talk.server.channel.refused())

    @property
    def broken_off(self) -> bool:
        """Whether Actum ended the call before the server had answered."""
        late_or_flooded = (json_rpc.Late, json_rpc.Stopped, json_rpc.Flooded)
        return isinstance(self.failure, late_or_flooded)

    @property
    def elapsed_ms(self) -> int:
        return int((time.monotonic() - self.began) * 1000)

    def capture(
        self, server: Capture | None, rows: tuple[Enforced, ...], *, whole: bool = False
    ) -> Capture:
        """`whole`: the server lived for this call, so everything it did belongs to the call."""
        said = b""
        if self.answer is not None and self.talk is not None:
            said = self.talk.server.channel.redacted(encoded(self.answer.document))
        of_server = server if whole else None
        refused = () if of_server is not None else self.refused()
        return Capture(
            ending=self._ending(server),
            stdout=whole_stream(said, STDOUT_BYTES),
            stderr=SILENCE if of_server is None else of_server.stderr,
            enforcement=rows,
            denials=network_denials(refused) if of_server is None else of_server.denials,
            connections=refused if of_server is None else of_server.connections,
            collected=() if of_server is None else of_server.collected,
            not_collected=() if of_server is None else of_server.not_collected,
            duration_ms=self.elapsed_ms,
            workspace=self._workspace(of_server),
            leftovers=() if of_server is None else of_server.left(),
        )

    def _workspace(self, of_server: Capture | None) -> Workspace | None:
        if of_server is not None:
            return of_server.workspace
        return NOT_COMPARED_YET if self.plan.policy.writes_directly else None

    def _ending(self, server: Capture | None) -> Ending:
        own = None if server is None else server.ending
        if isinstance(own, CoverLost | GoverningChanged | SealLost):
            return own  # even if it answered
        if self.answer is not None:
            return Failed(self.answer.error) if self.answer.error else _DONE
        match self.failure:
            case json_rpc.Late():
                return DeadlinePassed(0)
            case json_rpc.Stopped():
                return Cancelled(0)
            case json_rpc.Flooded():
                evidence = f"more than {json_rpc.UNASKED} that nobody asked for"
                return LimitKilled("messages", evidence)
            case json_rpc.Broken() as broken:
                return Failed(f"the server broke the protocol: {broken}")
        if isinstance(own, LimitKilled | PolicyBroken | DeadlinePassed):
            return own
        how = "it ended" if own is None else _how(own)
        return Failed(
            f"the server was gone before it answered ({how})",
            transport=True,
            untouched=not self.asked,
        )


def _how(ending: Ending) -> str:
    match ending:
        case Exited(code):
            return f"exit code {code}"
        case _:
            return type(ending).__name__.lower()


def _own_time(rows: tuple[Enforced, ...], call: _Call) -> tuple[Enforced, ...]:
    """The call's own deadline, which the host enforces while it waits for the answer."""
    mine = Enforced(
        limit="timeout_ms",
        requested=str(call.plan.policy.limits.timeout_ms),
        mechanism="host deadline of the call; the server is ended when it passes",
        enforced=True,
        peak=call.elapsed_ms,
        tripped=isinstance(call.failure, json_rpc.Late),
    )
    return (mine, *[row for row in rows if row.limit != "timeout_ms"])
