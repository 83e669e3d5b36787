"""The plan of a run: its items in levels, its validators, its corrector. Frozen once made.

    run:                                    # optional; without it: no validators, no corrections
      planner: {agent: agent-3, goal: "..."} # instead of items: an agent writes them
      light: [{id: lint, tool: shell, stdin: "ruff check ."}]
      heavy: [{id: tests, tool: shell, stdin: "python3 -m pytest -q"}]
      corrector: agent-7
    items: [...]

The work file is part of a run's identity: the seal holds its digest. Modes and caps are the
contract's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from actum.contract.canonical import canonical
from actum.contract.model import Json
from actum.documents.document import Source, check, document_from
from actum.errors import ContractInvalid, Problem
from actum.value import replace, value
from actum.work.dag import SCHEMA as WORK
from actum.work.dag import read_work, resolve_dependencies
from actum.work.model import WorkItem
from actum.work.trials import with_trials

_TEXTS = {"type": "array", "items": {"type": "string"}}
_VALIDATOR: Mapping[str, Json] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["id", "tool"],
    "properties": {
        "id": {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"},
        "tool": {"type": "string", "minLength": 1},
        "arguments": _TEXTS,
        "parameters": {"type": "object"},
        "stdin": {"type": "string"},
        "timeout": {"type": "string"},
        "memory": {"type": "string"},
        "set": {"type": "object"},
    },
}
_VALIDATORS: Mapping[str, Json] = {"type": "array", "maxItems": 64, "items": dict(_VALIDATOR)}
SCHEMA: Mapping[str, Json] = {
    **{key: held for key, held in WORK.items() if key != "required"},
    "properties": {
        **WORK["properties"],
        "run": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "planner": {
                    "type": "object",
                    "additionalProperties": False,
                    "required": ["agent", "goal"],
                    "properties": {
                        "agent": {"type": "string", "pattern": "^agent-[0-9]$"},
                        "goal": {"type": "string", "minLength": 1, "maxLength": 32_768},
                    },
                },
                "light": dict(_VALIDATORS),
                "heavy": dict(_VALIDATORS),
                "corrector": {"type": "string", "pattern": "^agent-[0-9]$"},
            },
        },
    },
}
#: Ids that corrections get (`decide.correction_id`); an item of the file may not have one.
_TAKEN = re.compile(r":[ch][0-9]+$|^run$")
#: Longest id of an item: a correction's id is three characters longer.
_LONGEST = 125


@value
class Validator:
    """One execution whose success means that the check passed."""

    id: str
    request: Mapping[str, Json]  #: the fields of an `ExecRequest`

    def document(self) -> dict[str, Json]:
        return {"id": self.id, **self.request}


@value
class Planner:
    """The agent that writes the items of a run, and what it is asked for."""

    agent: str
    goal: str


@value
class Plan:
    items: tuple[WorkItem, ...]  #: none, if a planner has still to write them
    planner: Planner | None = None
    light: tuple[Validator, ...] = ()
    heavy: tuple[Validator, ...] = ()
    corrector: str | None = None  #: the agent that corrects

    @property
    def levels(self) -> tuple[tuple[WorkItem, ...], ...]:
        return resolve_dependencies(self.items)

    def text(self) -> str:
        """The stored form."""
        return canonical(
            {
                "items": [item.document() for item in self.items],
                "run": {
                    "light": [each.document() for each in self.light],
                    "heavy": [each.document() for each in self.heavy],
                    **({} if self.corrector is None else {"corrector": self.corrector}),
                },
            }
        ).decode()


def read_plan(source: Source, *, file: str = "") -> Plan:
    """Parse a work file strictly, and require a graph that can be sorted."""
    document = document_from(source, file=file)
    problems = check(document, SCHEMA)
    if problems:
        raise ContractInvalid(problems)
    found: Mapping[str, Any] = document.value
    section = found.get("run", {})
    _require_items_or_planner(found, section)
    planner = section.get("planner")
    plan = Plan(
        items=(),
        planner=None if planner is None else Planner(**planner),
        light=_validators(section.get("light", ())),
        heavy=_validators(section.get("heavy", ())),
        corrector=section.get("corrector"),
    )
    return _with_items(plan, tuple(map(WorkItem.parse, with_trials(found.get("items", ())))))


def read_planned(text: str, plan: Plan) -> Plan:
    """The plan of a run with the items that its planner wrote: a work file without `run`. The
    validators and the corrector stay those of the sealed file."""
    return _with_items(plan, read_work(text))


def stored_items(text: str, plan: Plan) -> Plan:
    """The plan of a run with the items of its stored form."""
    items: Any = json.loads(text)["items"]
    return _with_items(plan, tuple(WorkItem.parse(item) for item in items))


def _require_items_or_planner(found: Mapping[str, Any], section: Mapping[str, Any]) -> None:
    if ("items" in found) == ("planner" in section):
        both = "items" in found
        raise ContractInvalid(
            (
                Problem(
                    field="items",
                    message="a planner writes the items: leave out one of both."
                    if both
                    else "is missing.",
                    permitted="either items, or run.planner",
                ),
            )
        )


def _with_items(plan: Plan, items: tuple[WorkItem, ...]) -> Plan:
    taken = [item.id for item in items if _TAKEN.search(item.id)]
    if taken:
        raise ContractInvalid(
            tuple(
                Problem(
                    field="items.id",
                    message=f"{name}: this id, and ids that end in :c or :h and a number,"
                    " belong to corrections.",
                    value=name,
                )
                for name in taken
            )
        )
    long = [item.id for item in items if len(item.id) > _LONGEST]
    if long and plan.corrector is not None:
        raise ContractInvalid(
            tuple(
                Problem(
                    field="items.id",
                    message=f"longer than {_LONGEST} characters: its corrections' ids are longer.",
                    value=name,
                )
                for name in long
            )
        )
    whole = replace(plan, items=items)
    _ = whole.levels  # raises for a graph that cannot be sorted
    return whole


def _validators(listed: Any) -> tuple[Validator, ...]:
    return tuple(
        Validator(id=each["id"], request={key: held for key, held in each.items() if key != "id"})
        for each in listed
    )
