"""Checks a document against a JSON Schema and describes problems in our own words.

JSON Schema calls 1.0 an integer. Actum does not: where a schema requires an integer, a float is
refused, because a limit written as a float is probably a mistake.

Two annotations of our own make messages readable: ``x-permitted`` describes in words what a
pattern accepts, ``x-permitted-keys`` does so for the keys of a mapping.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

from actum.documents.json_value import Json
from actum.documents.source_position import MOST_PROBLEMS, Document, Path, in_reading_order, shown
from actum.errors import Problem
from actum.value import replace

_EXACT = "x-actum-exact-integer"
_NOT_SCHEMAS = {"const", "default", "enum", "examples"}
_MOST_COMPILED = 64

#: By identity. Each entry keeps its schema alive, so that the identity cannot be reused.
_compiled: dict[int, tuple[Mapping[str, Json], Any]] = {}

_TYPE_WORDS = {
    "string": "text",
    "integer": "an integer",
    "number": "a number",
    "boolean": "true or false",
    "object": "a mapping",
    "array": "a list",
    "null": "null",
}


def check(document: Document, schema: Mapping[str, Json]) -> tuple[Problem, ...]:
    """Every problem of `document`, in reading order; empty when it conforms.

    The schema is compiled once per object: pass the same object again rather than a copy.
    """
    validator = _validator(schema)
    if validator.is_valid(document.value):
        return ()
    errors = itertools.islice(validator.iter_errors(document.value), 10 * MOST_PROBLEMS)
    return in_reading_order(_explained(document, schema, errors))


def prepare(schema: Mapping[str, Json]) -> None:
    """Compile a schema ahead of its first document."""
    _validator(schema)


def _validator(schema: Mapping[str, Json]) -> Any:
    known = _compiled.get(id(schema))
    if known is None:
        import jsonschema_rs

        # Offline: a `$ref` must never read a file or open a connection.
        validator = jsonschema_rs.validator_for(
            _exact(schema), offline=True, keywords={_EXACT: _ExactInteger}
        )
        while len(_compiled) >= _MOST_COMPILED:
            _compiled.pop(next(iter(_compiled)), None)
        known = _compiled[id(schema)] = (schema, validator)
    return known[1]


class _ExactInteger:
    """The keyword added beside every ``type: integer``."""

    def __init__(self, parent: object, value: object, path: object) -> None:
        pass

    def validate(self, instance: object) -> None:
        if isinstance(instance, float):
            raise TypeError("a float where an integer is required")


def _exact(schema: Json) -> Json:
    if isinstance(schema, list):
        return [_exact(item) for item in schema]
    if not isinstance(schema, Mapping):
        return schema
    copy = {key: item if key in _NOT_SCHEMAS else _exact(item) for key, item in schema.items()}
    kinds = schema.get("type")
    kinds = kinds if isinstance(kinds, list) else [kinds]
    if "integer" in kinds and "number" not in kinds:
        copy[_EXACT] = True
    return copy


def _explained(
    document: Document, schema: Mapping[str, Json], errors: Iterable[Any]
) -> list[Problem]:
    """One problem per field. A wrong type is the only problem reported for a value."""
    found: dict[str, Problem] = {}
    for error in sorted(_unfolded(errors), key=lambda one: not _is_type_error(one)):
        for problem in _problems(document, schema, error):
            found.setdefault(problem.field, problem)
    return list(found.values())


def _is_type_error(error: Any) -> bool:
    return error.schema_path[-1] in ("type", _EXACT)


def _unfolded(errors: Iterable[Any]) -> Iterable[Any]:
    """Replace "matches none of these" by the problems of the branch that was meant."""
    for error in errors:
        meant = _meant_branch(error)
        if meant is None:
            yield error
        else:
            yield from _unfolded(meant)


def _meant_branch(error: Any) -> list[Any] | None:
    if error.kind.name not in ("anyOf", "oneOf") or not hasattr(error.kind, "context"):
        return None
    fitting = [
        branch
        for branch in error.kind.context
        if not any(
            one.instance_path == error.instance_path and _is_type_error(one) for one in branch
        )
    ]
    return fitting[0] if len(fitting) == 1 else None


def _problems(document: Document, schema: Mapping[str, Json], error: Any) -> list[Problem]:
    path: Path = tuple(error.instance_path)
    part = _part(schema, error.schema_path[:-1])
    match error.kind.name:
        case "additionalProperties" | "unevaluatedProperties":
            return [_unknown_key(document, part, path, key) for key in error.kind.unexpected]
        case "propertyNames":
            key = error.kind.value.instance
            return [_bad_name(document, (*path, key), _permitted("pattern", part))]
        case "required":
            missing = document.problem((*path, error.kind.property), "is missing.")
            line, column = document.positions.get(path, (0, 0))  # of the mapping that lacks it
            return [replace(missing, line=line, column=column)]
    keyword, value = str(error.schema_path[-1]), error.instance
    message, permitted = _sentence(keyword, part, value), _permitted(keyword, part)
    return [document.problem(path, message, value=shown(value), permitted=permitted)]


def _unknown_key(document: Document, part: Mapping[str, Json], path: Path, key: str) -> Problem:
    under = (*path, key)
    if "patternProperties" in part:
        return _bad_name(document, under, part.get("x-permitted-keys", ""))
    import difflib

    known = sorted(part.get("properties", {}))
    close = difflib.get_close_matches(key, known, n=1)
    hint = f"did you mean {shown(close[0])}?" if close else "remove it."
    message = f"unknown key; {hint}"
    permitted = ", ".join(known)
    return document.problem(under, message, value=shown(key), permitted=permitted, key=True)


def _bad_name(document: Document, path: Path, permitted: str) -> Problem:
    key = shown(path[-1])
    message = f"the name {key} is not permitted."
    return document.problem(path, message, value=key, permitted=permitted, key=True)


def _sentence(keyword: str, part: Mapping[str, Json], value: Json) -> str:
    it = shown(value)
    match keyword:
        case "type" | "x-actum-exact-integer":
            return f"{it} is {_kind_of(value)}, not {_expected(part)}.{_type_remedy(part, value)}"
        case "minimum" | "exclusiveMinimum":
            return f"{it} is too small."
        case "maximum" | "exclusiveMaximum":
            return f"{it} is too large."
        case "minLength" | "minItems" | "minProperties" if not value:
            return "must not be empty."
        case "minLength" | "minItems" | "minProperties":
            return f"{it} is too short."
        case "maxLength" | "maxItems" | "maxProperties":
            return f"{it} is too long."
        case "pattern" if isinstance(value, str) and "\0" in value:
            return f"{it} contains a NUL byte."
        case "uniqueItems":
            return "lists the same thing twice."
        case "enum" | "const" | "pattern" | "format" | "anyOf" | "oneOf":
            return f"{it} is not permitted."
        case _:
            return f"{it} does not satisfy {keyword!r}."


def _kind_of(value: Json) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "a boolean"
        case float():
            return "a float"
        case int():
            return "an integer"
        case str():
            return "text"
        case list():
            return "a list"
        case _:
            return "a mapping"


def _expected(part: Mapping[str, Json]) -> str:
    kinds = part.get("type", [])
    kinds = kinds if isinstance(kinds, list) else [kinds]
    return " or ".join(_TYPE_WORDS[kind] for kind in kinds)


def _type_remedy(part: Mapping[str, Json], value: Json) -> str:
    if value is None:
        return " Leave the key out instead."
    if part.get("type") == "string" and isinstance(value, (bool, int, float)):
        return " Write it in quotes."
    return ""


def _permitted(keyword: str, part: Mapping[str, Json]) -> str:
    if "x-permitted" in part:
        return str(part["x-permitted"])
    if "enum" in part:
        return ", ".join(
            option if isinstance(option, str) else shown(option) for option in part["enum"]
        )
    if "const" in part:
        return shown(part["const"])
    if "minimum" in part or "maximum" in part:
        kind = part.get("type", "number")
        return f"{kind} {part.get('minimum', '')}..{part.get('maximum', '')}"
    for least, most, unit in (
        ("minLength", "maxLength", "characters"),
        ("minItems", "maxItems", "items"),
        ("minProperties", "maxProperties", "keys"),
    ):
        if keyword in (least, most):
            return f"{part.get(least, 0)}..{part.get(most, '')} {unit}"
    if keyword == "pattern":
        return f"text matching {part['pattern']}"
    return _expected(part)


def _part(schema: Mapping[str, Json], path: list[str | int]) -> Mapping[str, Json]:
    """The part of the schema that holds the broken keyword."""
    part: Json = schema
    for step in path:
        part = part[step]
    return part if isinstance(part, Mapping) else {}
