"""Compares an executor's declaration with the contract. Returns every objection.

The description comes from a process that has run the executor's module, so it is untrusted data:
any field may be missing, of another type or absurdly large.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from actum.executors.model import (
    CAPABILITY,
    EXECUTOR_ID,
    LIMIT_RANGES,
    Declaration,
    Limits,
    Version,
)

_LONGEST_ID = 64
_MOST_CAPABILITIES = 32


def objections(description: Mapping[str, Any]) -> dict[str, list[str]]:
    """Per attribute (and `class` and `execute`): what is wrong with it. Empty lists mean fine."""
    classes = description.get("classes") or []
    if len(classes) != 1:
        named = ", ".join(str(name)[:40] for name in classes) or "none"
        return {"class": [f"there must be exactly one public executor class; found: {named}"]}
    attributes = description.get("attributes") or {}
    return {
        "class": [],
        "executor_id": list(_executor_id(attributes.get("executor_id"))),
        "version": list(_version(attributes.get("version"))),
        "capabilities": list(_capabilities(attributes.get("capabilities"))),
        "limits": list(_limits(attributes.get("limits"), description.get("limits"))),
        "execute": []
        if description.get("execute") is True
        else ["execute(req) is missing, or cannot be called with one request"],
    }


def declaration(description: Mapping[str, Any]) -> Declaration:
    """Requires a description without objections."""
    attributes, limits = description["attributes"], description["limits"]
    return Declaration(
        executor_id=attributes["executor_id"]["value"],
        version=attributes["version"]["value"],
        capabilities=tuple(attributes["capabilities"]["value"]),
        limits=Limits(**{name: limits[name]["value"] for name in LIMIT_RANGES}),
    )


def _executor_id(said: Any) -> Iterator[str]:
    if said is None:
        yield "executor_id is missing"
    elif said["type"] != "str":
        yield f"executor_id is {said['type']}, not text"
    elif not EXECUTOR_ID.fullmatch(said["value"]) or len(said["value"]) > _LONGEST_ID:
        yield (
            f"executor_id {said['value'][:80]!r} must be lower case words joined by single"
            f" underscores, at most {_LONGEST_ID} characters"
        )


def _version(said: Any) -> Iterator[str]:
    if said is None:
        yield "version is missing"
    elif said["type"] != "str":
        yield f"version is {said['type']}, not text"
    elif Version.parse(said["value"]) is None:
        yield f"version {said['value'][:40]!r} must be X.Y.Z, three whole numbers"


def _capabilities(said: Any) -> Iterator[str]:
    if said is None:
        yield "capabilities are missing; declare an empty list if there are none"
    elif said["type"] != "list":
        yield f"capabilities is {said['type']}, not a list"
    else:
        values = said["value"]
        if len(values) > _MOST_CAPABILITIES:
            yield f"there are {len(values)} capabilities (permitted: {_MOST_CAPABILITIES})"
        for index, value in enumerate(values[:_MOST_CAPABILITIES]):
            if not isinstance(value, str):
                yield f"capabilities[{index}] is not text"
            elif not CAPABILITY.fullmatch(value):
                yield f"capabilities[{index}] {value[:40]!r} must be upper case, like TEXT_OUT"
        if len(set(map(str, values))) != len(values):
            yield "capabilities lists the same one twice"


def _limits(said: Any, fields: Any) -> Iterator[str]:
    if said is None:
        yield "limits are missing"
        return
    fields = fields or {}
    for name, (lowest, highest) in LIMIT_RANGES.items():
        field = fields.get(name)
        if field is None:
            yield f"limits.{name} is missing"
        elif field["type"] != "int":
            yield f"limits.{name} is {field['type']}, not a whole number"
        elif not lowest <= field["value"] <= highest:
            yield f"limits.{name} is {field['value']} (permitted: {lowest} to {highest})"
