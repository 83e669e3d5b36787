"""A tool's `args_schema`: which parameters are valid, and which are literal or paths.

The schema is JSON Schema with one keyword of ours, `x-actum`: ``literal``, ``path``, ``url`` or a
list of them, on a property or on its `items`. Nothing is ever fetched: a `$ref` that leaves the
document is refused. The schema itself was validated when the tool was loaded.
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
#: The property that describes raw `inputs.arguments`; no parameter can have this name.
RAW = "arguments"


@value
class Marks:
    literal: bool = False
    path: bool = False
    url: bool = False


def marks_of(schema: Mapping[str, Json], name: str) -> Marks:
    """How the values of `name` are checked; unmarked means neither literal, path nor URL."""
    declared = set(_declared(_property(schema, name)))
    return Marks(literal="literal" in declared, path="path" in declared, url="url" in declared)


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
    """All violations of the schema.

    The property `arguments`, if present, describes raw arguments. A call that consists of raw
    arguments only has no named parameters, so none can be missing.
    """
    instance = dict(parameters)
    if raw and RAW in schema.get("properties", {}):
        instance[RAW] = list(raw)
    validator = _compiled(schema, only_raw=bool(raw and not parameters))
    return _objections(validator, instance, "args_schema of the tool")


def check_schema(
    schema: Mapping[str, Json], parameters: Mapping[str, Json], where: str
) -> tuple[Violation, ...]:
    """All violations of `schema` by `parameters`; `where` names the schema's location."""
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


#: Compiled schemas, each with its source: a loaded tool's schema is one object.
_COMPILED: dict[tuple[int, bool], tuple[Mapping[str, Json], Validator]] = {}
_MOST_COMPILED = 256


def _compiled(schema: Mapping[str, Json], *, only_raw: bool) -> Validator:
    cached = _COMPILED.get((id(schema), only_raw))
    if cached is not None and cached[0] is schema:
        return cached[1]
    import jsonschema_rs

    document = dict(schema)
    if only_raw:
        document["required"] = [name for name in document.get("required", []) if name == RAW]
    # Masked: a message must not contain the value of a parameter.
    validator = jsonschema_rs.validator_for(document, offline=True, mask="***")
    if len(_COMPILED) >= _MOST_COMPILED:
        _COMPILED.clear()
    _COMPILED[id(schema), only_raw] = (schema, validator)
    return validator


def _field(path: list[str | int]) -> str:
    if path and path[0] == RAW:
        root, rest = "inputs", path
    else:
        root, rest = "inputs.parameters", path
    return root + "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in rest)
