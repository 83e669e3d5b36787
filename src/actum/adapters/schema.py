"""A tool's `args_schema`: what parameters are valid, and which are literal or paths.

The schema is JSON Schema with one keyword of ours, `x-actum`: ``literal``, ``path`` or a list of
both, on a property or on its `items`. Nothing is ever fetched: a `$ref` that leaves the document
is refused. Whether the schema itself is sound was asked when the tool was loaded.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from actum.contract.model import Json
from actum.errors import Violation

MARK = "x-actum"
#: The property that speaks about raw `inputs.arguments`; no parameter can have this name.
RAW = "arguments"


@dataclass(frozen=True, slots=True, kw_only=True)
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
    document = dict(schema)
    instance = dict(parameters)
    if raw and not parameters:
        required = document.get("required", [])
        document["required"] = [name for name in required if name == RAW]
    if raw and RAW in schema.get("properties", {}):
        instance[RAW] = list(raw)
    return check_schema(document, instance, "args_schema of the tool")


def check_schema(
    schema: Mapping[str, Json], parameters: Mapping[str, Json], where: str
) -> tuple[Violation, ...]:
    """Every way in which `parameters` break `schema`; `where` says where that is written."""
    import jsonschema_rs

    # Masked: a message goes where the value of a parameter must not.
    validator = jsonschema_rs.validator_for(dict(schema), offline=True, mask="***")
    return tuple(
        Violation(
            code="ARGS_INVALID",
            field=_field(error.instance_path),
            value="",
            message=f"{error.message}; see {where}.",
        )
        for error in validator.iter_errors(dict(parameters))
    )


def _field(path: list[str | int]) -> str:
    if path and path[0] == RAW:
        root, rest = "inputs", path
    else:
        root, rest = "inputs.parameters", path
    return root + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in rest)
