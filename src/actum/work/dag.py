"""The order of work items: levels of an acyclic graph, in a deterministic order.

A pure function of the work file. It refuses a graph that cannot be sorted before anything runs.
An item of agent-0, the reconciler, depends on every item of the other agents.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from actum.documents.document import Source, check, document_from
from actum.errors import ContractInvalid, Refused, Violation
from actum.work.model import SCHEMA as ITEM
from actum.work.model import WorkItem
from actum.work.trials import TRIALS, with_trials

RECONCILER = "agent-0"
SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["items"],
    "properties": {
        "description": {"type": "string"},
        "items": {
            "type": "array",
            "minItems": 1,
            "maxItems": 10_000,
            "items": {**ITEM, "properties": {**ITEM["properties"], "trials": dict(TRIALS)}},
        },
    },
}


def read_work(source: Source) -> tuple[WorkItem, ...]:
    """Parse a work file strictly; raises `ContractInvalid` naming every problem."""
    document = document_from(source)
    problems = check(document, SCHEMA)
    if problems:
        raise ContractInvalid(problems)
    return tuple(WorkItem.parse(item) for item in with_trials(document.value["items"]))


def resolve_dependencies(items: Iterable[WorkItem]) -> tuple[tuple[WorkItem, ...], ...]:
    """The levels: dependencies of an item are in earlier levels. Items are sorted by id within a
    level, so their order in the file decides nothing."""
    by_id = _by_id(tuple(items))
    waiting = {name: set(_needs(item, by_id)) for name, item in by_id.items()}
    levels: list[tuple[WorkItem, ...]] = []
    while waiting:
        ready = sorted(name for name, needs in waiting.items() if not needs)
        if not ready:
            raise _cycle(waiting)
        levels.append(tuple(by_id[name] for name in ready))
        for name in ready:
            del waiting[name]
        for needs in waiting.values():
            needs.difference_update(ready)
    return tuple(levels)


def needs_of_all(items: Iterable[WorkItem]) -> dict[str, tuple[str, ...]]:
    """Item -> the ids of everything that must have succeeded before it."""
    by_id = {each.id: each for each in items}
    return {name: _needs(item, by_id) for name, item in by_id.items()}


def _by_id(items: Sequence[WorkItem]) -> dict[str, WorkItem]:
    by_id = {item.id: item for item in items}
    twice = sorted({item.id for item in items if by_id[item.id] is not item})
    unknown = [(item, name) for item in items for name in item.dependencies if name not in by_id]
    violations = [
        *(
            Violation(
                code="WORK_ITEM_TWICE",
                field="items.id",
                value=name,
                message=f"{name}: several items have this id; give each its own.",
            )
            for name in twice
        ),
        *(
            Violation(
                code="WORK_DEPENDENCY_UNKNOWN",
                field=f"items.{item.id}.dependencies",
                value=name,
                message=f"{item.id} depends on {name}, which is not an item of this file.",
            )
            for item, name in unknown
        ),
    ]
    if violations:
        raise Refused(
            violations[0].code,
            " ".join(each.message for each in violations),
            remedy="Nothing ran. Fix the file and run it again.",
            violations=tuple(violations),
        )
    return by_id


def _needs(item: WorkItem, by_id: Mapping[str, WorkItem]) -> tuple[str, ...]:
    needs = dict.fromkeys(item.dependencies)
    if item.agent_id == RECONCILER:
        needs |= dict.fromkeys(
            name for name, other in by_id.items() if other.agent_id != RECONCILER
        )
    return tuple(needs)


def _cycle(waiting: Mapping[str, set[str]]) -> Refused:
    """Follow dependencies until an item repeats: that is the cycle."""
    path = [min(waiting)]
    while True:
        following = min(waiting[path[-1]])
        if following in path:
            circle = [*path[path.index(following) :], following]
            break
        path.append(following)
    shown = " -> ".join(circle)
    return Refused(
        "WORK_CYCLE",
        f"items.dependencies: each of these needs the next one first: {shown}.",
        remedy="Nothing ran. Remove one of these dependencies; items of agent-0 run after all"
        " others, so no other item may depend on one.",
    )
