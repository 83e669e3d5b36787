"""SDK adapters: functions of a package, called by a driver inside the sandbox.

No package is ever imported into our own process. The driver and the tool's own packages are
provided files, so the approved bytes are the bytes that run. Parameters are JSON on stdin and the
answer is JSON on stdout; an exception is an ending with its type and message. Go and Rust are
compiled first (`adapters.compiled`).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from actum.adapters import compiled
from actum.adapters.args_schema import check_parameters, marks_of
from actum.adapters.output_transforms import ToolAnswer
from actum.adapters.parsers import OutputInvalid, decode, parse_text
from actum.capture.endings import interpret
from actum.capture.model import Capture
from actum.contract.call import PROVIDED, WAITING_DRIVER, Argument, Call, secrets_asked
from actum.contract.model import SCRATCH, Contract, Json
from actum.contract.outcome import Outcome
from actum.errors import Refused, Violation
from actum.registry.model import COMPILE, Entry
from actum.registry.pinned_files import pinned_files

_FIELD = "interface.sdk"
_NODE_DRIVER = "sdk_node.cjs"


def build_call(contract: Contract, entry: Entry) -> Call:
    """What would run; raises `Refused` with all problems of the request at once."""
    sdk, inputs = entry.adapter.interface, contract.inputs
    if inputs.command == COMPILE and sdk["language"] in compiled.LANGUAGES:
        return _call(contract, entry, *compiled.compiling(entry), stdin=b"")
    function = sdk["function_mapping"].get(inputs.command)
    if function is None:
        raise Refused(
            "OPERATION_UNKNOWN",
            f"inputs.command: adapter {entry.adapter.adapter_id} has no operation "
            f"{inputs.command!r}.",
            remedy=f"Use one of: {', '.join(sdk['function_mapping'])}.",
        )
    violations = tuple(_unfit(contract, entry))
    if violations:
        raise Refused(
            "ARGS_INVALID",
            f"{len(violations)} problem(s) in the inputs of {entry.tool.name}: "
            + " ".join(violation.message for violation in violations),
            violations=violations,
        )
    order: dict[str, Json] = {"parameters": dict(inputs.parameters)}
    where: Argument | None = None
    match sdk["language"]:
        case "python":
            order["function"] = function
            program, flags, provided, where = _python(entry)
        case "node":
            order["function"] = function
            program, flags, provided, where = _node(entry)
        case _:
            order["operation"] = inputs.command
            program, flags, provided = compiled.running(entry)
    arguments = [*_fixed(flags)]
    if where is not None:
        arguments += [*_fixed((sdk["package"], sdk["import_path"])), where]
    arguments += _paths(contract, entry)
    return _call(contract, entry, program, tuple(arguments), provided, stdin=_encoded(order))


def _call(
    contract: Contract,
    entry: Entry,
    program: str,
    arguments: tuple[Argument, ...],
    provided: Mapping[str, bytes],
    *,
    stdin: bytes,
) -> Call:
    inputs = contract.inputs
    return Call(
        tool=entry.tool_ref,
        adapter=entry.adapter_ref,
        operation=inputs.command,
        program=program,
        arguments=arguments,
        environment=inputs.environment,
        stdin=stdin,
        working_directory=_working_directory(contract, entry),
        input_files=inputs.input_files,
        provided=provided,
        secrets=secrets_asked(inputs),
    )


def _working_directory(contract: Contract, entry: Entry) -> str:
    """A tool without data access needs no host directory, unless one was requested."""
    filled = "inputs.working_directory" in contract.filled
    if filled and entry.tool.scope.data_access == "none":
        return SCRATCH
    return contract.inputs.working_directory


def _unfit(contract: Contract, entry: Entry) -> Iterator[Violation]:
    inputs = contract.inputs
    for field, given in (("arguments", inputs.arguments), ("stdin", inputs.stdin)):
        if given:
            yield Violation(
                code="ARGS_INVALID",
                field=f"inputs.{field}",
                value="",
                message=f"inputs.{field}: a function takes inputs.parameters and nothing else.",
            )
    yield from check_parameters(entry.tool.args_schema, inputs.parameters, ())


def _fixed(values: tuple[str, ...]) -> Iterator[Argument]:
    for value in values:
        yield Argument(value=value, field=_FIELD, fixed=True)


def _paths(contract: Contract, entry: Entry) -> Iterator[Argument]:
    """Parameters that are paths, repeated as arguments so that IV-03 checks them."""
    for name, value in contract.inputs.parameters.items():
        if marks_of(entry.tool.args_schema, name).path:
            field = f"inputs.parameters.{name}"
            for each in value if isinstance(value, list) else [value]:
                if isinstance(each, str):
                    yield Argument(value=each, field=field, path=True, literal=True)


def _python(entry: Entry) -> tuple[str, tuple[str, ...], dict[str, bytes], Argument]:
    # -S: none of the host's own packages are importable, only approved or declared ones.
    flags = ("-S", "-B", f"{PROVIDED}/{WAITING_DRIVER}")
    provided, where = _packages(entry, "lib", WAITING_DRIVER)
    return "python3", flags, provided, where


def _node(entry: Entry) -> tuple[str, tuple[str, ...], dict[str, bytes], Argument]:
    flags = ("--conditions=import", f"{PROVIDED}/{_NODE_DRIVER}")
    provided, where = _packages(entry, "node_modules", _NODE_DRIVER)
    return "node", flags, provided, where


def _packages(entry: Entry, folder: str, driver: str) -> tuple[dict[str, bytes], Argument]:
    """The driver with the tool's own packages, or with the path of the declared ones."""
    provided = {driver: driver_text(driver)}
    declared = entry.tool.packages_path
    if declared is not None:
        path = os.path.join(os.path.dirname(os.path.dirname(entry.tool.folder)), declared)
        # Checked like any path of a tool: it must be in reach of this call.
        return provided, Argument(
            value=path, field="tool.yaml packages.path", path=True, literal=True
        )
    files = pinned_files(entry, entry.tool.packages_folder)
    provided |= {f"{folder}/{path}": content for path, content in files.items()}
    return provided, Argument(value=f"{PROVIDED}/{folder}", field=_FIELD, fixed=True)


@cache
def driver_text(name: str) -> bytes:
    return (Path(__file__).parent / "drivers" / name).read_bytes()


def _encoded(order: Json) -> bytes:
    return json.dumps(order, allow_nan=False, ensure_ascii=False).encode()


def answer_of(capture: Capture) -> ToolAnswer:
    """The driver's answer: the function's value or its exception."""
    stdout = capture.stdout
    succeeded = interpret(capture.ending).outcome is Outcome.SUCCEEDED
    if stdout.truncated:
        if succeeded:
            raise OutputInvalid(
                "the function's value is too large: stdout exceeded its limit.",
                remedy="Return less, or write a file to the artifacts.",
            )
        return ToolAnswer(raw=stdout.kept, truncated=True)
    try:
        answer = parse_text("json", decode(stdout.kept), "the driver's answer")
    except OutputInvalid:
        if succeeded:
            raise
        return ToolAnswer(raw=stdout.kept)  # killed before it answered
    if not isinstance(answer, dict):
        answer = {}
    if succeeded and "value" not in answer:
        raise OutputInvalid("the driver ended without an answer.")
    return ToolAnswer(
        raw=stdout.kept,
        has_value="value" in answer,
        value=answer.get("value"),
        failure=_failure(answer.get("error")),
    )


def _failure(error: Json) -> dict[str, str] | None:
    if not isinstance(error, dict):
        return None
    return {"type": str(error.get("type", "")), "message": str(error.get("message", ""))}
