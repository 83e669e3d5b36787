"""The plan of a run: its items in levels, its validators, its corrector. Frozen once made.

    run:                                    # optional; without it: no validators, no corrections
      light: [{id: lint, tool: shell, stdin: "ruff check ."}]
      heavy: [{id: tests, tool: shell, stdin: "python3 -m pytest -q"}]
      corrector: agent-7
    items: [...]

The work file is part of a run's identity: the seal holds its digest. Modes and caps are the
contract's.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from actum.contract.canonical import canonical
from actum.contract.model import Json
from actum.documents.document import Source, check, document_from
from actum.errors import ContractInvalid, Problem
from actum.value import value
from actum.work.dag import SCHEMA as WORK
from actum.work.dag import resolve_dependencies
from actum.work.model import WorkItem

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
    **WORK,
    "properties": {
        **WORK["properties"],
        "run": {
            "type": "object",
            "additionalProperties": False,
            "properties": {
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
class Plan:
    items: tuple[WorkItem, ...]
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
    items = tuple(WorkItem.parse(item) for item in found["items"])
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
    section = found.get("run", {})
    long = [item.id for item in items if len(item.id) > _LONGEST]
    if long and "corrector" in section:
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
    plan = Plan(
        items=items,
        light=_validators(section.get("light", ())),
        heavy=_validators(section.get("heavy", ())),
        corrector=section.get("corrector"),
    )
    _ = plan.levels  # raises for a graph that cannot be sorted
    return plan


def _validators(listed: Any) -> tuple[Validator, ...]:
    return tuple(
        Validator(id=each["id"], request={key: held for key, held in each.items() if key != "id"})
        for each in listed
    )
