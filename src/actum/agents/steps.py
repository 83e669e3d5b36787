"""An agent that is a list of calls: `agents/agent-N.yaml` with `steps`, carried out in order.

Each step is one execution, in the words of `actum exec`; the first that does not succeed ends the
run. It decides nothing while it runs, so it can be replayed exactly.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from actum.agents import command
from actum.agents.command import CommandAgent
from actum.contract.canonical import sha256_json
from actum.contract.document import check, load_document
from actum.contract.model import Json
from actum.engine.ask import Ask, contract_document
from actum.engine.work.hands import Hands
from actum.engine.work.model import WorkItem
from actum.errors import ContractInvalid, Refused
from actum.registry.registry import Registry
from actum.value import value

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

    def perform(self, item: WorkItem, hands: Hands) -> None:
        for step in self.document["steps"]:
            asked = Ask(purpose=f"work item {item.id}", **{**step, "cwd": self._cwd(step)})
            hands.require_success(hands.call(contract_document(asked, self.registry)))

    def _cwd(self, step: Mapping[str, Any]) -> str:
        return str(self.root / step.get("cwd", "."))


def load_agent(root: Path, agent_id: str, registry: Registry) -> StepsAgent | CommandAgent:
    """`agents/<agent_id>.yaml`, as it is now; raises `Refused` if there is none."""
    path = root / "agents" / f"{agent_id}.yaml"
    if not path.is_file():
        raise Refused(
            "AGENT_UNKNOWN",
            f"agent_id: there is no {path}.",
            remedy="Describe the agent in that file; docs/work-items.md shows how.",
        )
    document = load_document(path.read_bytes(), file=str(path))
    program = isinstance(document.value, dict) and "command" in document.value
    problems = check(document, command.SCHEMA if program else SCHEMA)
    if problems:
        raise ContractInvalid(problems)
    kind = CommandAgent if program else StepsAgent
    return kind(document=document.value, registry=registry, root=root)
