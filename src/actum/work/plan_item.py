"""Planning: an agent reads the project and writes a plan; nothing that it writes is committed.

It works like any item, on a view of the workspace under the guard of `ToolAccess`. When it is done,
the file `actum-plan.yaml` is taken from the view, and the view is dropped. So the workspace is
read-only for it. Its calls have receipts of their own; there is no work item on record.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from actum.contract.model import Json
from actum.value import value
from actum.work.execute_item import work
from actum.work.item_state import ItemContext, Run, begun
from actum.work.model import Status, WorkItem
from actum.work.tool_access import Agent, Ended

#: The file of the view that holds the plan.
PLAN_FILE = "actum-plan.yaml"
#: Longest plan.
MOST_BYTES = 4 << 20


@value
class Planned:
    """The outcome of planning."""

    status: Status
    reason: str | None = None
    text: str = ""  #: the plan; not checked yet
    calls: tuple[Mapping[str, Json], ...] = ()

    def document(self) -> dict[str, Json]:
        return {
            "status": self.status.value,
            "reason": self.reason,
            "text": self.text,
            "calls": [dict(call) for call in self.calls],
        }

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> Planned:
        return cls(
            **{
                **document,
                "status": Status(document["status"]),
                "calls": tuple(document["calls"]),
            }
        )


def execute_plan(item: WorkItem, agent: Agent, context: ItemContext, run_id: str) -> Planned:
    """Let `agent` plan, and drop its view. Returns a value for every outcome."""
    run = begun(item, agent, context, run_id)
    try:
        work(run, agent, context, judged=False)
        text = _written(run)
    except Ended as end:
        return Planned(status=end.status, reason=end.reason, calls=_calls(run))
    finally:
        context.space.drop(run.room)
    return Planned(status=Status.SUCCESS, text=text, calls=_calls(run))


def _written(run: Run) -> str:
    for number, change in enumerate(run.delta):
        if change.path == PLAN_FILE.encode() and change.after is not None and change.after.is_file:
            content = (run.room / "new" / str(number)).read_bytes()
            if len(content) > MOST_BYTES:
                raise Ended(Status.DENIED, f"{PLAN_FILE} has more than {MOST_BYTES} bytes.")
            try:
                return content.decode()
            except UnicodeDecodeError as error:
                raise Ended(Status.FAILURE, f"{PLAN_FILE} is not UTF-8.") from error
    raise Ended(Status.FAILURE, f"The planner wrote no {PLAN_FILE}.")


def _calls(run: Run) -> tuple[Mapping[str, Json], ...]:
    return tuple(
        {
            "id": op.tool_id,
            "execution_id": op.execution_id,
            "receipt_id": op.receipt_id,
            "outcome": op.outcome,
        }
        for op in run.capsule.tool_trace
    )
