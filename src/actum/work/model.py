"""Work items and their results: the two documents of the contract, exactly."""

from __future__ import annotations

import os
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Any

from actum.contract.canonical import sha256_json
from actum.contract.model import Json
from actum.documents.document import Source, check, document_from
from actum.errors import ContractInvalid
from actum.value import as_dict, value

_COUNT = {"type": "integer", "minimum": 0, "maximum": 1_000_000}
_TEXTS = {"type": "array", "items": {"type": "string", "minLength": 1}, "maxItems": 10_000}
SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["id", "agent_id", "description"],
    "properties": {
        "id": {
            "type": "string",
            "pattern": "^[A-Za-z0-9][A-Za-z0-9._:~-]{0,127}$",
            "x-permitted": "letters, digits, '.', '_', ':', '~', '-'; the first a letter or digit",
        },
        "agent_id": {
            "type": "string",
            "pattern": "^agent-[0-9]$",
            "x-permitted": "agent-0 to agent-9",
        },
        "agent_name": {"type": "string", "minLength": 1, "maxLength": 80},
        "description": {"type": "string", "minLength": 1, "maxLength": 65_536},
        "dependencies": {"type": "array", "items": {"type": "string"}, "uniqueItems": True},
        "constraints": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "max_files": _COUNT,
                "max_tool_ops": _COUNT,
                "max_delta_size": _COUNT,
                "timeout_ms": {"type": "integer", "minimum": 1, "maximum": 86_400_000},
            },
        },
        "budget": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "time_estimate_ms": {"type": "integer", "minimum": 0},
                "complexity": {"enum": ["low", "medium", "high"]},
            },
        },
        "input_files": _TEXTS,
        "output_files": _TEXTS,
        "test_command": {"type": "string", "minLength": 1, "maxLength": 65_536},
        "trial": {"type": "integer", "minimum": 1, "maximum": 1_000},
    },
}


@value
class Constraints:
    max_files: int = 10
    max_tool_ops: int = 50
    max_delta_size: int = 100
    timeout_ms: int = 300_000


@value
class Budget:
    """The author's estimate. The receipt states it; no decision uses it."""

    time_estimate_ms: int | None = None
    complexity: str | None = None


@value
class WorkItem:
    id: str
    agent_id: str
    description: str
    dependencies: tuple[str, ...] = ()
    constraints: Constraints = Constraints()
    budget: Budget = Budget()
    input_files: tuple[str, ...] = ()
    output_files: tuple[str, ...] = ()
    test_command: str | None = None
    agent_name: str | None = None  #: for people; no decision uses it
    trial: int = 1  #: which repetition of equal work this is (`work.trials`)

    @classmethod
    def parse(cls, source: Source) -> WorkItem:
        """Parse strictly; raises `ContractInvalid` naming every problem. Omitted limits get
        defaults."""
        document = document_from(source)
        problems = check(document, SCHEMA)
        if problems:
            raise ContractInvalid(problems)
        value = document.value
        return cls(
            id=value["id"],
            agent_id=value["agent_id"],
            description=value["description"],
            dependencies=tuple(value.get("dependencies", ())),
            constraints=Constraints(**value.get("constraints", {})),
            budget=Budget(**value.get("budget", {})),
            input_files=tuple(value.get("input_files", ())),
            output_files=tuple(value.get("output_files", ())),
            test_command=value.get("test_command"),
            agent_name=value.get("agent_name"),
            trial=value.get("trial", 1),
        )

    def document(self) -> dict[str, Json]:
        written: dict[str, Json] = {
            "id": self.id,
            "agent_id": self.agent_id,
            "description": self.description,
            "dependencies": list(self.dependencies),
            "constraints": as_dict(self.constraints),
            "budget": {
                key: value for key, value in as_dict(self.budget).items() if value is not None
            },
        }
        if self.input_files:
            written["input_files"] = list(self.input_files)
        if self.output_files:
            written["output_files"] = list(self.output_files)
        if self.test_command is not None:
            written["test_command"] = self.test_command
        if self.agent_name is not None:
            written["agent_name"] = self.agent_name
        if self.trial > 1:
            written["trial"] = self.trial
        return written

    @property
    def sha256(self) -> str:
        return sha256_json(self.document())

    @property
    def substance(self) -> dict[str, Json]:
        """The item without its names: equal work has equal substance."""
        left_out = ("id", "agent_name", "dependencies", "budget", "constraints")
        return {key: value for key, value in self.document().items() if key not in left_out}


def path_of(written: str, root: Path) -> Path:
    """A file of a work item. Absolute paths are relative to the workspace: ``/docs/x`` is in its
    folder docs."""
    path = Path(os.path.normpath(written))
    if path.is_absolute() and path.is_relative_to(root):
        return path
    return root / os.path.normpath("/" + written).lstrip("/")


class Status(StrEnum):
    SUCCESS = "success"
    FAILURE = "failure"
    DENIED = "denied"
    TIMEOUT = "timeout"


@value
class Metrics:
    execution_time_ms: int = 0
    tool_ops_count: int = 0
    delta_size: int = 0
    files_touched: int = 0
    tests_passed: int | None = None
    tests_failed: int | None = None


@value
class RunResult:
    status: Status
    receipt_id: str
    receipt_path: str
    modified_files: tuple[str, ...] = ()
    created_files: tuple[str, ...] = ()
    deleted_files: tuple[str, ...] = ()
    output_hash: str
    artifact_hashes: Mapping[str, str]
    metrics: Metrics
    test_output: str | None = None
    proof_script: str | None = None
    error: str | None = None
    denial_reason: str | None = None

    @property
    def reason(self) -> str | None:
        """Why it did not succeed."""
        return self.error or self.denial_reason

    def document(self) -> dict[str, Json]:
        """In the contract's own shape: optional fields that are not set are omitted."""
        written = as_dict(self)
        metrics = {key: value for key, value in written["metrics"].items() if value is not None}
        kept = {key: value for key, value in written.items() if value is not None}
        return {
            **kept,
            "status": self.status.value,
            "metrics": metrics,
            "artifact_hashes": dict(self.artifact_hashes),
            **{name: list(written[name]) for name in _LISTS},
        }

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> RunResult:
        fields = dict(document)
        fields["status"] = Status(fields["status"])
        fields["metrics"] = Metrics(**fields["metrics"])
        fields |= {name: tuple(fields[name]) for name in _LISTS}
        return cls(**fields)


@value
class Rehearsed:
    """The outcome that a work item would have."""

    status: Status
    reason: str | None
    changes: tuple[Mapping[str, Json], ...] = ()  #: action, path and, for texts, the lines

    def document(self) -> dict[str, Json]:
        return {
            "status": self.status.value,
            "reason": self.reason,
            "changes": [dict(change) for change in self.changes],
        }

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Rehearsed:
        return cls(
            status=Status(document["status"]),
            reason=document["reason"],
            changes=tuple(document["changes"]),
        )


_LISTS = ("modified_files", "created_files", "deleted_files")
