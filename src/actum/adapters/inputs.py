"""Input transforms: what the caller named becomes what the adapter takes, in the order of the list.

`rename`, `map` and `default` change parameters, `validate` judges them as they are at that point.
What comes out is judged once more by the tool's own args_schema when the call is built: that
schema describes what the tool takes, so no transform can get around it. No effect, no I/O.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from actum.adapters.schema import check_parameters, check_schema
from actum.contract.model import Contract, Json
from actum.errors import Refused, Violation
from actum.registry.model import Entry
from actum.registry.transforms import ARGS_SCHEMA
from actum.value import replace

_SHOWN = 80


def transformed(contract: Contract, entry: Entry) -> Contract:
    """`contract` with the parameters that the adapter takes; raises `Refused` if one is unfit."""
    if not entry.adapter.input_transforms:
        return contract
    parameters = dict(contract.inputs.parameters)
    for index, transform in enumerate(entry.adapter.input_transforms):
        place, spec = f"transforms.input[{index}]", transform.spec
        match transform.type:
            case "rename":
                parameters = _renamed(parameters, spec, place)
            case "map":
                parameters = _mapped(parameters, spec)
            case "default":
                parameters |= {
                    name: value for name, value in spec.items() if parameters.get(name) is None
                }
            case "validate":
                _validate(parameters, spec, contract, entry)
            case other:
                raise AssertionError(f"a transform {other} was loaded")
    return replace(contract, inputs=replace(contract.inputs, parameters=parameters))


def _renamed(parameters: dict[str, Json], spec: Mapping[str, str], place: str) -> dict[str, Json]:
    """All at once, so that two names can be swapped; a name that is taken is refused."""
    result = {name: value for name, value in parameters.items() if name not in spec}
    taken = [(name, new) for name, new in spec.items() if name in parameters and new in result]
    if taken:
        raise _refused(
            [
                Violation(
                    code="ARGS_INVALID",
                    field=f"inputs.parameters.{name}",
                    value=new[:_SHOWN],
                    message=f"{place}: {name} becomes {new}, which is given as well; give one.",
                )
                for name, new in taken
            ],
        )
    return result | {new: parameters[name] for name, new in spec.items() if name in parameters}


def _mapped(parameters: dict[str, Json], spec: Mapping[str, Mapping[str, Json]]) -> dict[str, Json]:
    """Values that a table lists become others; a value that it does not list stays."""
    result = dict(parameters)
    for name, table in spec.items():
        if name in parameters:
            result[name] = table.get(_key(parameters[name]), parameters[name])
    return result


def _key(value: Json) -> str:
    """A value as the key of a table: text as it is, anything else as JSON writes it."""
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def _validate(parameters: Mapping[str, Json], spec: Json, contract: Contract, entry: Entry) -> None:
    if spec == ARGS_SCHEMA:
        schema = entry.tool.args_schema
        violations = check_parameters(schema, parameters, contract.inputs.arguments)
    else:
        violations = check_schema(spec, parameters, "the adapter's own schema")
    if violations:
        raise _refused(list(violations))


def _refused(violations: list[Violation]) -> Refused:
    return Refused(
        "ARGS_INVALID",
        f"{len(violations)} problem(s) in inputs.parameters: "
        + " ".join(violation.message for violation in violations),
        violations=tuple(dict.fromkeys(violations)),
    )
