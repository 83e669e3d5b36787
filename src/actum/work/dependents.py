"""Later work items that rest on a committed one: its undo would take them along.

An item rests on an earlier one if it names it as a dependency, if both changed one path, or if it
put something into a folder that the earlier one made; and if it rests on an item that does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from actum.errors import Refused
from actum.value import value
from actum.work.history import KeptRun
from actum.work.work_records import WorkRecords

_SHOWN = 10


@value
class Changed:
    """The paths that a run changed, and those of them that it made."""

    paths: frozenset[str]
    made: frozenset[str]


@value
class Dependent:
    run: KeptRun
    why: str  #: for people

    def __str__(self) -> str:
        return f"{self.run.item.id} ({self.why})"


def dependents_of(
    kept: KeptRun, records: WorkRecords, changed_by: Callable[[KeptRun], Changed]
) -> tuple[Dependent, ...]:
    """From the oldest to the newest. Only of runs that were not undone."""
    taken: list[tuple[KeptRun, Changed]] = [(kept, changed_by(kept))]
    found: list[Dependent] = []
    for run_id in records.standing_since(kept.run_id):
        later = records.find(run_id)
        if later is None:
            continue
        changed = changed_by(later)
        why = next((why for each in taken if (why := _rests(later, changed, *each))), None)
        if why is not None:
            taken.append((later, changed))
            found.append(Dependent(run=later, why=why))
    return tuple(found)


def require_none(kept: KeptRun, found: Sequence[Dependent]) -> None:
    if not found:
        return
    listed = ", ".join(map(str, found[:_SHOWN]))
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    receipt = kept.result.receipt_id if kept.result else kept.run_id
    raise Refused(
        "UNDO_HAS_DEPENDENTS",
        f"Later work rests on {kept.item.id}: {listed}{more}.",
        remedy=f"Nothing was undone. `actum undo {receipt} --with-dependents` undoes all of it, the"
        " newest first.",
    )


def _rests(later: KeptRun, changed: Changed, earlier: KeptRun, by_it: Changed) -> str | None:
    if earlier.item.id in later.item.dependencies:
        return f"depends on {earlier.item.id}"
    for path in sorted(changed.paths):
        above = (path[: end.start()] for end in re.finditer("/", path))
        if path in by_it.paths or any(folder in by_it.made for folder in above):
            return f"changed {path}"
    return None
