"""An agent that is a list of calls: `agents/agent-N.yaml` with `steps`, executed in order.

Each step is one execution, with the fields of `ExecRequest`; the first that does not succeed ends
the run. The agent decides nothing while it runs, so it can be replayed exactly.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from actum.contract.canonical import sha256_json
from actum.contract.request import ExecRequest
from actum.execution.request_document import request_document
from actum.registry.registry import Registry
from actum.value import value
from actum.work.agents.agent_file import is_program, read_agent
from actum.work.agents.program_agent import CommandAgent
from actum.work.model import WorkItem
from actum.work.tool_access import ToolAccess


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
    """The agent of `agents/<agent_id>.yaml`; raises `Refused` if it does not exist."""
    document = read_agent(root, agent_id)
    kind = CommandAgent if is_program(document) else StepsAgent
    return kind(document=document, registry=registry, root=root)
