"""An agent that is a program: `agents/agent-N.yaml` with `command`, run inside the sandbox.

It sees the workspace and a tool socket on which it calls tools (`actum-tool`, also as MCP). Every
call goes through the whole pipeline under the item's own limits, and is one tool operation. The
program itself is an execution of its own that stays running meanwhile. The host treats its messages
as requests, never as facts: it observes the program's end itself, and scans its changes afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from actum.adapters import cli
from actum.capture.endings import interpret
from actum.capture.model import Capture, DeadlinePassed
from actum.contract.call import PROVIDED, Call
from actum.contract.canonical import sha256_json
from actum.contract.limits import TIMEOUT_MS
from actum.contract.model import Contract, Json
from actum.contract.request import ExecRequest
from actum.documents.document import check, document_of
from actum.errors import ContractInvalid, Problem
from actum.execution.kept_tool import Server
from actum.execution.request_document import request_document
from actum.registry.model import Entry
from actum.registry.registry import Registry
from actum.value import replace, value
from actum.work.agents.tool_socket import ToolSocket
from actum.work.model import Status, WorkItem
from actum.work.tool_access import Ended, ToolAccess

_TEXTS = {"type": "array", "items": {"type": "string"}}
CALL: Mapping[str, Json] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["ask"],
    "properties": {
        "ask": {"enum": ["tools", "call"]},
        "call": {
            "type": "object",
            "additionalProperties": False,
            "required": ["tool"],
            "properties": {
                "tool": {"type": "string", "minLength": 1, "maxLength": 200},
                "arguments": _TEXTS,
                "parameters": {"type": "object"},
                "stdin": {"type": "string"},
            },
        },
    },
    "if": {"properties": {"ask": {"const": "call"}}},
    "then": {"required": ["call"]},
}
_HOST_TOOL = "shell"
_ROOM = {"sandbox.processes.max_children": 64}
_SAID_BYTES = 100_000
#: Listing the tools is not a tool operation, so it has a limit of its own.
_MOST_LISTINGS = 100


@value
class CommandAgent:
    document: Mapping[str, Any]
    registry: Registry
    root: Path

    @property
    def sha256(self) -> str:
        return sha256_json(dict(self.document))

    @property
    def tools(self) -> tuple[str, ...]:
        """The tools it may call: those that its file lists, or every pinned tool."""
        if "tools" in self.document:
            return tuple(self.document["tools"])
        return tuple(sorted(pin.name for pin in self.registry.lock().pins))

    def perform(self, item: WorkItem, tool_access: ToolAccess) -> None:
        longest = max(TIMEOUT_MS.least, min(TIMEOUT_MS.most, tool_access.time_left_ms()))
        limits = {"sandbox.timeout_ms": longest, **_ROOM, **self.document.get("set", {})}
        asked = ExecRequest(
            tool=_HOST_TOOL, cwd=str(self.root), purpose=f"agent of {item.id}", set=limits
        )
        with tool_access.keep(request_document(asked, self.registry), _with_files) as server:
            its_own_ms = server.plan.policy.limits.timeout_ms
            ends_first = its_own_ms < tool_access.time_left_ms()
            code = self._converse(item, tool_access, server)
            _result, capture = server.close({"calls": len(tool_access.trace)})
        if tool_access.ended is not None:
            raise tool_access.ended
        if isinstance(capture.ending, DeadlinePassed) and ends_first:
            raise Ended(
                Status.TIMEOUT,
                f"The agent's program took longer than its own {its_own_ms} ms"
                " (sandbox.timeout_ms, at most 600000).",
            )
        if isinstance(capture.ending, DeadlinePassed) or not tool_access.time_left_ms():
            raise tool_access.too_late()
        _require_success(code, capture)

    def _converse(self, item: WorkItem, tool_access: ToolAccess, server: Server) -> int | None:
        """Answer until it has ended; its exit code, or ``None`` if it reported none."""
        server.channel.send(f"exec python3 -s {PROVIDED}/agent.py".encode(), tool_access.deadline)
        tool_socket = ToolSocket(server.channel, tool_access)
        order: dict[str, Json] = {
            "command": list(self.document["command"]),
            "item": item.document(),
            "tool": f"{PROVIDED}/actum-tool",
        }
        answers = _Answers(self, tool_access)
        return tool_socket.serve(answers.answer) if tool_socket.greet(order) else None


class _Answers:
    """Answers the requests of one program."""

    def __init__(self, agent: CommandAgent, tool_access: ToolAccess) -> None:
        self._agent = agent
        self._hands = tool_access
        self._listings = 0

    def answer(self, asks: Mapping[str, Json]) -> Json:
        try:
            document = document_of(asks)
            problems = check(document, CALL)
        except ContractInvalid as error:
            problems = error.problems
        if problems:
            self._hands.refuse("", {})
            return _refused("CALL_MALFORMED", problems)
        asked = document.value
        return self._list() if asked["ask"] == "tools" else self._call(asked["call"])

    def _list(self) -> Json:
        self._listings += 1
        if self._listings > _MOST_LISTINGS:
            raise Ended(
                Status.DENIED,
                f"The agent asked more than {_MOST_LISTINGS} times which tools exist.",
            )
        known = {tool.name: tool for tool in self._agent.registry.tools()}
        return [
            {"name": name, "description": known[name].description}
            for name in self._agent.tools
            if name in known
        ]

    def _call(self, call: Mapping[str, Any]) -> Json:
        name = call["tool"]
        if name.partition(":")[0] not in self._agent.tools:
            self._hands.refuse(name, call)
            problem = Problem(field="tool", message=f"the agent's file lists no tool {name!r}")
            return _refused("TOOL_NOT_LISTED", (problem,))
        asked = ExecRequest(**call, cwd=str(self._agent.root))
        try:
            result = self._hands.call(request_document(asked, self._agent.registry))
        except ContractInvalid as error:
            return _refused("CONTRACT_INVALID", error.problems)
        ran = result.result
        return {
            "outcome": result.outcome.value,
            "execution_id": result.execution_id,
            "receipt_id": result.receipt_id,
            "message": "; ".join(
                f"{broken.code} {broken.field}: {broken.message}" for broken in result.violations
            ),
            "result": None
            if ran is None
            else {
                "exit_code": ran.exit_code,
                "stdout": ran.stdout[:_SAID_BYTES],
                "stderr": ran.stderr[:_SAID_BYTES],
            },
        }


def _with_files(contract: Contract, entry: Entry) -> Call:
    here = resources.files("actum.work.agents") / "inside"
    return replace(
        cli.build_call(contract, entry, by_channel=True),
        provided={
            "agent.py": (here / "agent.py").read_bytes(),
            "actum-tool": (here / "tool.py").read_bytes(),
        },
    )


def _refused(code: str, problems: Sequence[Problem]) -> dict[str, Json]:
    message = "; ".join(map(str, problems))
    return {"outcome": "REJECTED", "message": f"{code}: {message}", "result": None}


def _require_success(code: int | None, capture: Capture) -> None:
    if code == 0:
        return  # the host ends the relay; it compares the program's effects and ignores its report
    heard = capture.stderr.kept.decode(errors="replace").strip()[-500:]
    early = interpret(capture.ending).error_reason or "it ended without a report"
    how = f"it ended early: {early}" if code is None else f"exit code {code}"
    raise Ended(Status.FAILURE, f"The agent failed: {how}. {heard}".rstrip())
