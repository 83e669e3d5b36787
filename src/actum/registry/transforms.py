"""Checks the spec of a transform when its adapter is loaded, not when it first runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from actum.contract.model import Json
from actum.registry.queries import QueryFailed, is_singular, parse_format

PARSERS = ("json", "json_lines", "csv", "yaml", "lines", "text")
#: The spec of `validate` that means the tool's own args_schema.
ARGS_SCHEMA = "json_schema"


def spec_problem(kind: str, spec: Json) -> str | None:
    """What is wrong with the spec of a transform of this kind; ``None`` if it is valid."""
    return _CHECKS[kind](spec)  # the schema refuses unknown kinds


def _rename(spec: Json) -> str | None:
    if not _named(spec) or not all(isinstance(new, str) and new for new in spec.values()):
        return "rename takes a mapping of parameter name to new name"
    if len(set(spec.values())) != len(spec):
        return "rename gives one new name to two parameters"
    return None


def _map(spec: Json) -> str | None:
    if _named(spec) and all(_named(table) for table in spec.values()):
        return None
    return "map takes a mapping of parameter name to a table of value to new value"


def _default(spec: Json) -> str | None:
    return None if _named(spec) else "default takes a mapping of parameter name to value"


def _validate(spec: Json) -> str | None:
    if spec == ARGS_SCHEMA:
        return None
    if not isinstance(spec, Mapping):
        return f"validate takes `{ARGS_SCHEMA}` (the tool's args_schema) or a schema of its own"
    fault = schema_fault(spec)
    return fault and f"validate: {fault}"


def _parse(spec: Json) -> str | None:
    return None if spec in PARSERS else f"parse takes one of {', '.join(PARSERS)}"


def _extract(spec: Json) -> str | None:
    if not isinstance(spec, str) or not spec.startswith("$"):
        return "extract takes a JSONPath, which starts with `$`"
    try:
        is_singular(spec)
    except QueryFailed as error:
        return f"extract: {error}"
    return None


def _format(spec: Json) -> str | None:
    if not isinstance(spec, str) or not spec:
        return "format takes a template text"
    try:
        parse_format(spec)
    except QueryFailed as error:
        return f"format: {error}"
    return None


def _named(spec: Json) -> bool:
    return isinstance(spec, Mapping) and bool(spec) and all(isinstance(key, str) for key in spec)


def schema_fault(schema: Mapping[str, Json]) -> str | None:
    """Why this is not a usable JSON Schema; a `$ref` that leaves the document is one reason."""
    import jsonschema_rs

    try:
        # Offline: by default a $ref would read files and fetch from the network.
        jsonschema_rs.validator_for(dict(schema), offline=True)
    except ValueError as error:
        return str(error).splitlines()[0]
    return None


_CHECKS: Mapping[str, Callable[[Json], str | None]] = {
    "rename": _rename,
    "map": _map,
    "default": _default,
    "validate": _validate,
    "parse": _parse,
    "extract": _extract,
    "format": _format,
}
