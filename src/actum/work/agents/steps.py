"""An agent that is a list of calls: `agents/agent-N.yaml` with `steps`, executed in order.

Each step is one execution, with the fields of `ExecRequest`; the first that does not succeed ends
the run. The agent decides nothing while it runs, so it can be replayed exactly.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from actum.contract.canonical import sha256_json
from actum.contract.model import Json
from actum.contract.request import ExecRequest
from actum.documents.document import check, load_document
from actum.errors import ContractInvalid, Refused
from actum.execution.request_document import request_document
from actum.registry.registry import Registry
from actum.value import value
from actum.work.agents import program_agent
from actum.work.agents.program_agent import CommandAgent
from actum.work.model import WorkItem
from actum.work.tool_access import ToolAccess

_TEXTS = {"type": "array", "items": {"type": "string"}}
SCHEMA: Mapping[str, Json] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["agent_id", "steps"],
    "properties": {
        "agent_id": {"type": "string", "pattern": "^agent-[0-9]$"},
        "description": {"type": "string"},
        "steps": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["tool"],
                "properties": {
                    "tool": {"type": "string"},
                    "arguments": _TEXTS,
                    "parameters": {"type": "object"},
                    "stdin": {"type": "string"},
                    "files": _TEXTS,
                    "env": {"type": "object", "additionalProperties": {"type": "string"}},
                    "cwd": {"type": "string"},
                    "timeout": {"type": "string"},
                    "memory": {"type": "string"},
                    "set": {"type": "object"},
                },
            },
        },
    },
}


@value
class StepsAgent:
    document: Mapping[str, Any]
    registry: Registry
    root: Path

    @property
    def sha256(self) -> str:
        return sha256_json(dict(self.document))

    def perform(self, item: WorkItem, tool_access: ToolAccess) -> None:
        for step in self.document["steps"]:
            asked = ExecRequest(purpose=f"work item {item.id}", **{**step, "cwd": self._cwd(step)})
            tool_access.require_success(tool_access.call(request_document(asked, self.registry)))

    def _cwd(self, step: Mapping[str, Any]) -> str:
        return str(self.root / step.get("cwd", "."))


def load_agent(root: Path, agent_id: str, registry: Registry) -> StepsAgent | CommandAgent:
    """Read `agents/<agent_id>.yaml`; raises `Refused` if it does not exist."""
    path = root / "agents" / f"{agent_id}.yaml"
    if not path.is_file():
        raise Refused(
            "AGENT_UNKNOWN",
            f"agent_id: there is no {path}.",
            remedy="Describe the agent in that file; docs/work-items.md shows how.",
        )
    document = load_document(path.read_bytes(), file=str(path))
    program = isinstance(document.value, dict) and "command" in document.value
    problems = check(document, program_agent.SCHEMA if program else SCHEMA)
    if problems:
        raise ContractInvalid(problems)
    kind = CommandAgent if program else StepsAgent
    return kind(document=document.value, registry=registry, root=root)
