"""Work items in the order of their dependencies: levels, each of which can run in parallel.

Pure. A cycle, an unknown id and an id used twice are refused before anything runs, all of them at
once. agent-0 is the reconciler: it depends on everything else of the run, said or not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from actum.engine.work.model import WorkItem
from actum.errors import ContractInvalid, Problem

RECONCILER = "agent-0"


def resolve_dependencies(items: Sequence[WorkItem]) -> tuple[tuple[WorkItem, ...], ...]:
    """Level by level; within a level sorted by id, so that nothing depends on how they came."""
    problems = tuple(_problems(items))
    if problems:
        raise ContractInvalid(problems)
    waiting = {item.id: _needed(item, items) for item in items}
    by_id = {item.id: item for item in items}
    levels: list[tuple[WorkItem, ...]] = []
    done: set[str] = set()
    while waiting:
        ready = sorted(name for name, needed in waiting.items() if needed <= done)
        if not ready:
            raise ContractInvalid(_cycle(waiting))
        levels.append(tuple(by_id[name] for name in ready))
        done.update(ready)
        for name in ready:
            del waiting[name]
    return tuple(levels)


def _needed(item: WorkItem, items: Sequence[WorkItem]) -> set[str]:
    if item.agent_id != RECONCILER:
        return set(item.dependencies)
    return {other.id for other in items if other.agent_id != RECONCILER} | set(item.dependencies)


def _problems(items: Sequence[WorkItem]) -> Iterator[Problem]:
    counted = Counter(item.id for item in items)
    for name, count in counted.items():
        if count > 1:
            yield Problem(field="id", message=f"{count} work items are called {name!r}", value=name)
    for item in items:
        for name in item.dependencies:
            if name == item.id:
                yield _wrong(item, name, f"{item.id!r} depends on itself")
            elif name not in counted:
                yield _wrong(item, name, f"there is no work item {name!r}")


def _cycle(waiting: dict[str, set[str]]) -> tuple[Problem, ...]:
    """One circle among what can never be ready, told in its order."""
    name = min(waiting)
    seen: list[str] = []
    while name not in seen:
        seen.append(name)
        name = min(need for need in waiting[name] if need in waiting)
    circle = [*seen[seen.index(name) :], name]
    return (
        Problem(
            field="dependencies",
            message=f"they go round in a circle: {' -> '.join(circle)}",
            value=name,
        ),
    )


def _wrong(item: WorkItem, value: str, message: str) -> Problem:
    return Problem(field=f"{item.id}.dependencies", message=message, value=value)
