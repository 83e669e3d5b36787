"""Input transforms: the caller's parameters become the adapter's, in the order of the list.

`rename`, `map` and `default` change parameters, `validate` checks them at that point. When the
call is built, the tool's own args_schema checks the result again: that schema describes what the
tool accepts, so no transform can bypass it. No effect, no I/O.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from actum.adapters.args_schema import check_parameters, check_schema
from actum.contract.model import Contract, Json
from actum.errors import Refused, Violation
from actum.registry.model import Entry
from actum.registry.transforms import ARGS_SCHEMA
from actum.value import replace

_SHOWN = 80


def transformed(contract: Contract, entry: Entry) -> Contract:
    """`contract` with the adapter's parameters; raises `Refused` if one is invalid."""
    if not entry.adapter.input_transforms:
        return contract
    parameters = dict(contract.inputs.parameters)
    for index, transform in enumerate(entry.adapter.input_transforms):
        where, spec = f"transforms.input[{index}]", transform.spec
        match transform.type:
            case "rename":
                parameters = _renamed(parameters, spec, where)
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


def _renamed(parameters: dict[str, Json], spec: Mapping[str, str], where: str) -> dict[str, Json]:
    """All at once, so that two names can be swapped; a name already in use is refused."""
    result = {name: value for name, value in parameters.items() if name not in spec}
    taken = [(name, new) for name, new in spec.items() if name in parameters and new in result]
    if taken:
        raise _refused(
            [
                Violation(
                    code="ARGS_INVALID",
                    field=f"inputs.parameters.{name}",
                    value=new[:_SHOWN],
                    message=f"{where}: {name} becomes {new}, which is also given; give only one.",
                )
                for name, new in taken
            ],
        )
    return result | {new: parameters[name] for name, new in spec.items() if name in parameters}


def _mapped(parameters: dict[str, Json], spec: Mapping[str, Mapping[str, Json]]) -> dict[str, Json]:
    """Values listed in a table are replaced; others stay."""
    result = dict(parameters)
    for name, table in spec.items():
        if name in parameters:
            result[name] = table.get(_key(parameters[name]), parameters[name])
    return result


def _key(value: Json) -> str:
    """A value as a table key: text unchanged, anything else as JSON."""
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
