"""A tool's `args_schema`: what parameters are valid, and which are literal or paths.

The schema is JSON Schema with one keyword of ours, `x-actum`: ``literal``, ``path`` or a list of
both, on a property or on its `items`. Nothing is ever fetched: a `$ref` that leaves the document
is refused. Whether the schema itself is sound was asked when the tool was loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from actum.contract.model import Json
from actum.errors import Violation
from actum.value import value

if TYPE_CHECKING:
    from jsonschema_rs import Validator

MARK = "x-actum"
#: The property that speaks about raw `inputs.arguments`; no parameter can have this name.
RAW = "arguments"


@value
class Marks:
    literal: bool = False
    path: bool = False


def marks_of(schema: Mapping[str, Json], name: str) -> Marks:
    """How the values of `name` are to be judged; unmarked means: neither literal nor a path."""
    declared = set(_declared(_property(schema, name)))
    return Marks(literal="literal" in declared, path="path" in declared)


def _property(schema: Mapping[str, Json], name: str) -> Mapping[str, Json]:
    properties = schema.get("properties", {})
    found = properties.get(name, {}) if isinstance(properties, Mapping) else {}
    return found if isinstance(found, Mapping) else {}


def _declared(subschema: Mapping[str, Json]) -> tuple[Json, ...]:
    items = subschema.get("items", {})
    own = subschema.get(MARK, ())
    inner = items.get(MARK, ()) if isinstance(items, Mapping) else ()
    return (*_several(own), *_several(inner))


def _several(value: Json) -> tuple[Json, ...]:
    return tuple(value) if isinstance(value, (list, tuple)) else (value,)


def check_parameters(
    schema: Mapping[str, Json], parameters: Mapping[str, Json], raw: tuple[str, ...]
) -> tuple[Violation, ...]:
    """Every way in which the call breaks the schema.

    Raw arguments are judged by the property `arguments` if the schema has one. A call that is
    written wholly in raw arguments has no named parameters, so none can be missing from it.
    """
    instance = dict(parameters)
    if raw and RAW in schema.get("properties", {}):
        instance[RAW] = list(raw)
    validator = _compiled(schema, only_raw=bool(raw and not parameters))
    return _objections(validator, instance, "args_schema of the tool")


def check_schema(
    schema: Mapping[str, Json], parameters: Mapping[str, Json], where: str
) -> tuple[Violation, ...]:
    """Every way in which `parameters` break `schema`; `where` says where that is written."""
    return _objections(_compiled(schema, only_raw=False), parameters, where)


def _objections(
    validator: Validator, parameters: Mapping[str, Json], where: str
) -> tuple[Violation, ...]:
    return tuple(
        Violation(
            code="ARGS_INVALID",
            field=_field(error.instance_path),
            value="",
            message=f"{error.message}; see {where}.",
        )
        for error in validator.iter_errors(dict(parameters))
    )


#: Compiled schemas, each with the one it was made from: a tool's is one object while it is loaded.
_KEPT: dict[tuple[int, bool], tuple[Mapping[str, Json], Validator]] = {}
_MOST_KEPT = 256


def _compiled(schema: Mapping[str, Json], *, only_raw: bool) -> Validator:
    kept = _KEPT.get((id(schema), only_raw))
    if kept is not None and kept[0] is schema:
        return kept[1]
    import jsonschema_rs

    document = dict(schema)
    if only_raw:
        document["required"] = [name for name in document.get("required", []) if name == RAW]
    # Masked: a message goes where the value of a parameter must not.
    validator = jsonschema_rs.validator_for(document, offline=True, mask="***")
    if len(_KEPT) >= _MOST_KEPT:
        _KEPT.clear()
    _KEPT[id(schema), only_raw] = (schema, validator)
    return validator


def _field(path: list[str | int]) -> str:
    if path and path[0] == RAW:
        root, rest = "inputs", path
    else:
        root, rest = "inputs.parameters", path
    return root + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in rest)
