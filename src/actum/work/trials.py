"""Repetitions of a work item: `trials: N` in a work file means N items, each on its own.

The first keeps the id of the item, the others are `ID~t2`, `ID~t3` and so on. Each is admitted,
tested and committed by itself, in the order of ids, and has a receipt. The number is a part of what
an item is, so a repetition is no duplicate. An item that depends on the repeated one depends on all
of its trials.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from actum.contract.model import Json
from actum.errors import ContractInvalid, Problem

TRIALS: Mapping[str, Json] = {"type": "integer", "minimum": 1, "maximum": 1_000}
#: Ids that trials get; an item of a file may not have one.
_TRIAL = re.compile(r"~t[0-9]+$")
#: Longest id of a repeated item: ``~t1000`` is added to it.
_LONGEST = 122
_MOST_ITEMS = 10_000


def trial_id(item_id: str, number: int) -> str:
    return item_id if number == 1 else f"{item_id}~t{number}"


def with_trials(items: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], ...]:
    """The items of a checked work file, each repetition an item of its own."""
    counts = {item["id"]: int(item.get("trials", 1)) for item in items}
    problems = [
        Problem(
            field="items.id",
            message=f"{name}: ids that end in ~t and a number belong to trials.",
            value=name,
        )
        for name in counts
        if _TRIAL.search(name)
    ]
    problems += [
        Problem(
            field="items.id",
            message=f"longer than {_LONGEST} characters: the ids of its trials are longer.",
            value=name,
        )
        for name, count in counts.items()
        if count > 1 and len(name) > _LONGEST
    ]
    if sum(counts.values()) > _MOST_ITEMS:
        problems.append(
            Problem(
                field="items.trials",
                message=f"{sum(counts.values())} items with all trials.",
                permitted=f"at most {_MOST_ITEMS}",
            )
        )
    if problems:
        raise ContractInvalid(tuple(problems))
    return tuple(
        _trial(item, number, counts)
        for item in items
        for number in range(1, int(item.get("trials", 1)) + 1)
    )


def _trial(item: Mapping[str, Any], number: int, counts: Mapping[str, int]) -> dict[str, Any]:
    needs = [
        trial_id(name, each)
        for name in item.get("dependencies", ())
        for each in range(1, counts.get(name, 1) + 1)
    ]
    made = {key: held for key, held in item.items() if key != "trials"}
    made |= {"id": trial_id(item["id"], number), "dependencies": needs}
    return {**made, "trial": number} if number > 1 else made
