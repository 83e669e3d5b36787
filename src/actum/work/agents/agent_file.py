"""`agents/agent-N.yaml`: reads and checks the file of an agent. Loads nothing that could run it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from actum.contract.model import Json
from actum.documents.document import check, load_document
from actum.errors import ContractInvalid, Refused

_TEXTS = {"type": "array", "items": {"type": "string"}}
#: An agent that is a list of calls.
STEPS: Mapping[str, Json] = {
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
#: An agent that is a program.
PROGRAM: Mapping[str, Json] = {
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


def is_program(document: Mapping[str, Any]) -> bool:
    return "command" in document


def read_agent(root: Path, agent_id: str) -> Mapping[str, Any]:
    """The checked content of `agents/<agent_id>.yaml`; raises `Refused` if it does not exist."""
    path = root / "agents" / f"{agent_id}.yaml"
    if not path.is_file():
        raise Refused(
            "AGENT_UNKNOWN",
            f"agent_id: there is no {path}.",
            remedy="Describe the agent in that file; docs/work-items.md shows how.",
        )
    document = load_document(path.read_bytes(), file=str(path))
    program = isinstance(document.value, dict) and is_program(document.value)
    problems = check(document, PROGRAM if program else STEPS)
    if problems:
        raise ContractInvalid(problems)
    found: Mapping[str, Any] = document.value
    return found
