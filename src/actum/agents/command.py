"""An agent that is a program: `agents/agent-N.yaml` with `command`, run inside the sandbox.

It sees the workspace and a door at which it asks for tools (`actum-tool`, also as MCP). Every call
goes through the whole pipeline under the item's own limits, and is one tool operation; the program
itself is an execution of its own, kept running meanwhile. What it says is a request, never a fact:
how it ended is seen from outside, and what it changed is looked at when it is gone.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

from actum.adapters import cli
from actum.capture.model import Capture, DeadlinePassed
from actum.contract.call import PROVIDED, Call
from actum.contract.canonical import sha256_json
from actum.contract.model import Contract, Json
from actum.engine.ask import Ask, contract_document
from actum.engine.server import Server
from actum.engine.work.hands import Ended, Hands
from actum.engine.work.model import Status, WorkItem
from actum.errors import ContractInvalid
from actum.registry.model import Entry
from actum.registry.registry import Registry
from actum.value import replace, value

_TEXTS = {"type": "array", "items": {"type": "string"}}
SCHEMA: Mapping[str, Json] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["agent_id", "command"],
    "properties": {
        "agent_id": {"type": "string", "pattern": "^agent-[0-9]$"},
        "description": {"type": "string"},
        "command": {**_TEXTS, "minItems": 1},
        "tools": {**_TEXTS, "uniqueItems": True},
        "set": {"type": "object"},
    },
}
_HOST_TOOL = "shell"
_ROOM = {"sandbox.processes.max_children": 64}
_CALL_WORDS = frozenset({"tool", "arguments", "parameters", "stdin"})
_SAID_BYTES = 100_000


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
        """What it may ask for: those that are listed, or every tool that is pinned."""
        if "tools" in self.document:
            return tuple(self.document["tools"])
        return tuple(sorted(pin.name for pin in self.registry.lock().pins))

    def perform(self, item: WorkItem, hands: Hands) -> None:
        limits = {**_ROOM, **self.document.get("set", {})}
        asked = Ask(tool=_HOST_TOOL, cwd=str(self.root), purpose=f"agent of {item.id}", set=limits)
        with hands.keep(contract_document(asked, self.registry), _with_files) as server:
            said = self._converse(item, hands, server)
            _result, capture = server.close({"calls": len(hands.trace)})
        if hands.ended is not None:
            raise hands.ended
        if isinstance(capture.ending, DeadlinePassed):
            raise hands.too_late()
        _require_success(said, capture)

    def _converse(self, item: WorkItem, hands: Hands, server: Server) -> Mapping[str, Any] | None:
        """Answer until it has ended; its last word, or ``None`` if it went without one."""
        channel = server.channel
        channel.send(f"exec python3 -s {PROVIDED}/agent.py".encode())
        while hands.ended is None and hands.time_left_ms():
            line = channel.receive(time.monotonic() + hands.time_left_ms() / 1000)
            if line is None:
                return None
            said = _read(line)
            if "hello" in said:
                order = {
                    "command": list(self.document["command"]),
                    "item": item.document(),
                    "tool": f"{PROVIDED}/actum-tool",
                }
                channel.send(json.dumps(order).encode())
            elif "ended" in said:
                return said
            elif isinstance(said.get("id"), int):
                answer = {"id": said["id"], "answer": self._answer(said, hands)}
                channel.send(json.dumps(answer).encode())
        return None

    def _answer(self, said: Mapping[str, Any], hands: Hands) -> Json:
        if said.get("ask") == "tools":
            known = {tool.name: tool for tool in self.registry.tools()}
            return [
                {"name": name, "description": known[name].description}
                for name in self.tools
                if name in known
            ]
        call = said.get("call")
        if not isinstance(call, dict) or set(call) - _CALL_WORDS or "tool" not in call:
            return _refused("CALL_MALFORMED", f"a call has {', '.join(sorted(_CALL_WORDS))}")
        name = str(call["tool"])
        if name.partition(":")[0] not in self.tools:
            return _refused("TOOL_NOT_LISTED", f"the agent's file lists no tool {name[:80]!r}")
        try:
            document = contract_document(Ask(**call, cwd=str(self.root)), self.registry)
            result = hands.call(document)
        except ContractInvalid as error:
            return _refused("CONTRACT_INVALID", "; ".join(str(each) for each in error.problems))
        except (TypeError, AttributeError):
            return _refused("CALL_MALFORMED", "its parts are of the wrong kind")
        ran = result.result
        return {
            "outcome": result.outcome.value,
            "execution_id": result.execution_id,
            "receipt_id": result.receipt_id,
            "message": "; ".join(violation.message for violation in result.violations),
            "result": None
            if ran is None
            else {
                "exit_code": ran.exit_code,
                "stdout": ran.stdout[:_SAID_BYTES],
                "stderr": ran.stderr[:_SAID_BYTES],
            },
        }


def _with_files(contract: Contract, entry: Entry) -> Call:
    here = resources.files("actum.agents") / "inside"
    return replace(
        cli.build_call(contract, entry),
        provided={
            "agent.py": (here / "agent.py").read_bytes(),
            "actum-tool": (here / "tool.py").read_bytes(),
        },
    )


def _read(line: bytes) -> Mapping[str, Any]:
    try:
        said = json.loads(line)
    except (ValueError, RecursionError):
        said = None
    if not isinstance(said, dict):
        raise Ended(Status.FAILURE, "The agent spoke on the way to the host, and not in its words.")
    return said


def _refused(code: str, message: str) -> dict[str, Json]:
    return {"outcome": "REJECTED", "message": f"{code}: {message}", "result": None}


def _require_success(said: Mapping[str, Any] | None, capture: Capture) -> None:
    code = said.get("ended") if said is not None else None
    if code == 0:
        return  # the carrier is ended by us; what its program did is looked at, not believed
    heard = capture.stderr.kept.decode(errors="replace").strip()[-500:]
    how = f"exit code {code}" if said is not None else f"it ended early ({capture.ending})"
    raise Ended(Status.FAILURE, f"The agent failed: {how}. {heard}".rstrip())
