"""MCP adapters: an operation of the contract is a tool of an MCP server.

Two calls are built here. `build_call` is the caller's request: one tool, with its arguments as
JSON. `server_call` is what has to run to answer it: the server from the tool's own `servers`, or,
for a network server, a driver that relays messages to it. Both are checked, planned and recorded;
this module starts nothing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from actum.adapters.args_schema import Marks, check_parameters, marks_of
from actum.adapters.attempt_report import AttemptReport
from actum.adapters.output_transforms import ToolAnswer
from actum.adapters.parsers import decode, parse_text
from actum.capture.model import Capture, Failed
from actum.contract.call import PROVIDED, Argument, Call, Plan, secrets_asked
from actum.contract.canonical import NotCanonical, canonical
from actum.contract.limits import IDLE_S, TIMEOUT_MS
from actum.contract.model import SCRATCH, SCRATCH_INSIDE, Contract, Json
from actum.errors import Refused, Violation
from actum.registry.model import Entry
from actum.value import value

STDIO, HTTP, WEBSOCKET = "stdio", "http", "websocket"
#: Prefix of a server's name in place of an operation; no operation can have it.
SERVER = "mcp:"
_METHOD = "tools/call"
_FIXED = 2  #: arguments of a call before the caller's own
_DRIVER = "mcp_bridge.py"
_INTERPRETER = "python3"
_decode = json.JSONDecoder().decode
_NO_REPORT = AttemptReport(code=None)


@value
class ServerSpec:
    """How the adapter's server is started or reached (`servers` of tool.yaml)."""

    name: str
    transport: str
    command: tuple[str, ...]  #: for stdio; else empty
    url: str
    stateful: bool  #: stays open between calls
    idle_s: float
    lifetime_ms: int  #: of a stateful server; others live for one call

    @property
    def program(self) -> str:
        return self.command[0] if self.command else _INTERPRETER


def server_spec(entry: Entry) -> ServerSpec:
    interface = entry.adapter.interface
    name, transport = interface["server"], interface["transport"]
    found: Mapping[str, Any] | None = entry.tool.servers.get(name)
    wanted = "command" if transport == STDIO else "url"
    if found is None or wanted not in found:
        raise Refused(
            "SERVER_UNKNOWN",
            f"interface.mcp.server: {entry.tool.name} does not declare how {name} is "
            f"{'started' if transport == STDIO else 'reached'}.",
            remedy=f"Give servers.{name}.{wanted} in {entry.tool.folder}/tool.yaml, and have the "
            "tool approved again.",
        )
    return ServerSpec(
        name=name,
        transport=transport,
        command=tuple(found.get("command", ())),
        url=found.get("url", ""),
        stateful=found.get("stateful", False),
        idle_s=found.get("idle_s", IDLE_S),
        lifetime_ms=found.get("lifetime_s", TIMEOUT_MS.most // 1000) * 1000,
    )


def build_call(contract: Contract, entry: Entry) -> Call:
    """The caller's request to the server; raises `Refused` with every problem."""
    inputs, mapping = contract.inputs, entry.adapter.interface["tool_mapping"]
    spec = server_spec(entry)
    if inputs.command not in mapping:
        raise Refused(
            "OPERATION_UNKNOWN",
            f"inputs.command: adapter {entry.adapter.adapter_id} has no operation "
            f"{inputs.command[:80]!r}.",
            remedy=f"It has: {', '.join(sorted(mapping))}.",
        )
    violations = [
        *_unused("inputs.arguments", inputs.arguments),
        *_unused("inputs.stdin", inputs.stdin),
        *check_parameters(entry.tool.args_schema, inputs.parameters, ()),
    ]
    try:
        order = canonical(dict(inputs.parameters))
    except NotCanonical as error:
        violations.append(_violation("inputs.parameters", f"inputs.parameters: {error.message}"))
        order = b""
    if violations:
        raise Refused(
            "ARGS_INVALID",
            f"{len(violations)} problem(s) in inputs of {entry.tool.name}: "
            + " ".join(violation.message for violation in violations),
            violations=tuple(violations),
        )
    schema = entry.tool.args_schema
    return Call(
        tool=entry.tool_ref,
        adapter=entry.adapter_ref,
        operation=inputs.command,
        program=spec.program,
        arguments=(
            Argument(value=_METHOD, field="interface.mcp", fixed=True),
            Argument(
                value=mapping[inputs.command],
                field=f"interface.mcp.tool_mapping.{inputs.command}",
                fixed=True,
            ),
            *(
                Argument(value=text, field=field, literal=marks.literal, path=marks.path)
                for field, text, marks in _texts(json.loads(order), schema)
            ),
        ),
        environment=inputs.environment,
        stdin=order,
        working_directory=inputs.working_directory,
        input_files=inputs.input_files,
        secrets=secrets_asked(inputs),
    )


def tool_of(plan: Plan) -> str:
    """The server's own name of the requested tool."""
    _program, _method, tool = plan.argv[:3]
    return tool


def request_of(plan: Plan) -> tuple[str, dict[str, Json]]:
    """(tool, arguments) as checked: every text is the one that passed the input checks."""
    _program, _method, tool, *texts = plan.argv
    left = iter(texts)
    asked = _decode(plan.stdin.decode())
    arguments = {name: _put_back(value, left) for name, value in asked.items()}
    return tool, arguments


def server_call(contract: Contract, entry: Entry) -> Call:
    """What runs as the server; its command is the tool's own, approved with it."""
    spec = server_spec(entry)
    if spec.transport == STDIO:
        arguments = tuple(
            _of_command(index, text, contract, entry)
            for index, text in enumerate(spec.command)
            if index
        )
        provided: dict[str, bytes] = {}
    else:
        words = ("-I", "-S", f"{PROVIDED}/{_DRIVER}", spec.transport, spec.url)
        arguments = tuple(
            Argument(value=word, field="interface.mcp.transport", fixed=True) for word in words
        )
        provided = {_DRIVER: (Path(__file__).parent / "drivers" / _DRIVER).read_bytes()}
    return Call(
        tool=entry.tool_ref,
        adapter=entry.adapter_ref,
        operation=f"{SERVER}{spec.name}",
        program=spec.program,
        arguments=arguments,
        environment=contract.inputs.environment,
        stdin=b"",
        working_directory=contract.inputs.working_directory,
        input_files=(),
        provided=provided,
        secrets=secrets_asked(contract.inputs),
    )


def answer_of(capture: Capture) -> ToolAnswer:
    """The server's answer as a value; `mcp` encoded it."""
    stdout = capture.stdout
    if stdout.truncated or not stdout.kept:
        return ToolAnswer(raw=stdout.kept, truncated=stdout.truncated)
    return ToolAnswer(
        raw=stdout.kept, has_value=True, value=parse_text("json", decode(stdout.kept), "")
    )


def report_of(capture: Capture) -> AttemptReport:
    """Whether an answer is missing, and whether the request had been sent."""
    ending = capture.ending
    if not isinstance(ending, Failed):
        return _NO_REPORT
    return AttemptReport(code=None, transport_failure=ending.transport, untouched=ending.untouched)


def _of_command(index: int, text: str, contract: Contract, entry: Entry) -> Argument:
    field = f"servers.{entry.adapter.interface['server']}.command[{index}]"
    if text == "{working_directory}":
        here = contract.inputs.working_directory
        # Given by the caller: checked like any other path of the caller.
        value = SCRATCH_INSIDE if here == SCRATCH else here
        return Argument(value=value, field=field, literal=True, path=here != SCRATCH)
    folder = entry.tool.folder
    paths = {"{tool}": folder, "{root}": os.path.dirname(os.path.dirname(folder))}
    for name, path in paths.items():
        text = text.replace(name, path)
    return Argument(value=text, field=field, fixed=True)


def _texts(
    parameters: Mapping[str, Json], schema: Mapping[str, Json]
) -> Iterator[tuple[str, str, Marks]]:
    """Every text in the parameters, at any depth, with the marks of its parameter."""
    for name, given in parameters.items():
        marks = marks_of(schema, name)
        for field, text in _leaves(f"inputs.parameters.{name}", given):
            yield field, text, marks


def _leaves(field: str, value: Json) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        yield field, value
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _leaves(f"{field}[{index}]", item)
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from _leaves(f"{field}.{name}", item)


def _put_back(value: Json, texts: Iterator[str]) -> Json:
    if isinstance(value, str):
        return next(texts)
    if isinstance(value, list):
        return [_put_back(item, texts) for item in value]
    if isinstance(value, dict):
        return {name: _put_back(item, texts) for name, item in value.items()}
    return value


def _unused(field: str, given: object) -> Iterator[Violation]:
    if given:
        yield _violation(field, f"{field}: an MCP tool takes named parameters only; leave it out.")


def _violation(field: str, message: str) -> Violation:
    return Violation(code="ARGS_INVALID", field=field, value="", message=message)
