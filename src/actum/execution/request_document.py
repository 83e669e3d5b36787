"""The contract document that an `ExecRequest` means.

Nothing is decided here. A request for an unknown tool still gives a contract, so that its refusal
is recorded like any other.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping
from typing import Any

from actum.contract.model import Json
from actum.contract.request import ExecRequest
from actum.errors import ContractInvalid, Problem, Refused
from actum.execution.keyword_types import check_request
from actum.execution.quantities import duration_ms, size_mb
from actum.registry.model import AdapterStatus
from actum.registry.registry import Recalled, Registry


def request_document(request: ExecRequest, registry: Registry) -> dict[str, Any]:
    """The contract that `request` means, as a plain document for the strict parser."""
    check_request(request)
    name, _, operation = request.tool.partition(":")
    tool_id, command, first = _resolve(name, operation, request.adapter_id, registry)
    inputs: dict[str, Any] = {"command": command}
    document: dict[str, Any] = {"tool_id": tool_id, "inputs": inputs}
    if request.adapter_id:
        document["adapter_id"] = request.adapter_id
    if first or request.arguments:
        inputs["arguments"] = [*first, *(os.fspath(each) for each in request.arguments)]
    if request.parameters:
        inputs["parameters"] = dict(request.parameters)
    if request.env:
        inputs["environment"] = dict(request.env)
    if request.secrets:
        named = request.secrets
        inputs["secrets"] = (
            dict(named) if isinstance(named, Mapping) else dict.fromkeys(named, "env")
        )
    if request.cwd is not None:
        inputs["working_directory"] = os.fspath(request.cwd)
    if request.files:
        inputs["input_files"] = [os.fspath(path) for path in request.files]
    if request.stdin is not None:
        inputs["stdin"] = _stdin(request.stdin)
    sandbox: dict[str, Any] = {}
    if request.timeout is not None:
        sandbox["timeout_ms"] = duration_ms(request.timeout)
    if request.memory is not None:
        sandbox["memory_mb"] = size_mb(request.memory)
    if request.allow_hosts:
        sandbox["network"] = {"enabled": True, "allow": list(request.allow_hosts)}
    if sandbox:
        document["sandbox"] = sandbox
    metadata = {"requested_by": request.requested_by, "purpose": request.purpose}
    given = {key: value for key, value in metadata.items() if value is not None}
    if given:
        document["metadata"] = given
    _require_one_value(request)
    for path, wanted in request.set.items():
        _assign(document, path, wanted)
    return document


def _resolve(
    name: str, operation: str, adapter_id: str | None, registry: Registry
) -> tuple[str, str, list[str]]:
    """(tool id, command, leading arguments). For a program, an operation is its subcommand."""
    recalled = _recalled(name, operation, adapter_id, registry)
    if recalled is None:
        # The pipeline finds what is wrong with the tool and records it.
        return name, operation or name, []
    if recalled.executable is not None:
        return recalled.tool_id, recalled.executable, [operation] if operation else []
    return recalled.tool_id, operation or name, []


def takes_program(tool: str, adapter_id: str | None, registry: Registry) -> bool:
    """Whether the stdin of this tool is a program. ``False`` if the tool cannot be used."""
    name, _, operation = tool.partition(":")
    recalled = _recalled(name, operation, adapter_id, registry)
    return recalled is not None and recalled.takes_program


def _recalled(
    name: str, operation: str, adapter_id: str | None, registry: Registry
) -> Recalled | None:
    """The tool's id and command; ``None`` if the tool cannot be used."""
    recalled = registry.recall(name, adapter_id, operation)
    if recalled is None:
        try:
            tool = registry.find_tool(name)
            adapters = registry.adapters(tool)
            # By its id, the request would run the other tool.
            usable = name == tool.tool_id or not registry.id_is_taken(tool)
        except (Refused, ContractInvalid):
            usable = False
        if not usable:
            return None
        active = [item for item in adapters if item.status is AdapterStatus.ACTIVE]
        named = [item for item in adapters if item.adapter_id == adapter_id]
        adapter = next(iter((*named, *active, *adapters)), None)
        cli = adapter.cli if adapter is not None else None
        recalled = Recalled(
            tool_id=tool.tool_id,
            executable=cli.executable if cli else None,
            takes_program=cli is not None and cli.program is not None,
        )
    return recalled


def _stdin(content: bytes | bytearray | memoryview | str) -> Json:
    if isinstance(content, str):
        return content
    try:
        return bytes(content).decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}


def _require_one_value(request: ExecRequest) -> None:
    """Refuse a keyword and a field of `set` for the same limit: one of them would be ignored."""
    fields = {
        "timeout": (request.timeout, "sandbox.timeout_ms"),
        "memory": (request.memory, "sandbox.memory_mb"),
    }
    problems = tuple(
        Problem(
            field=name,
            message=f"set has {path} too, which is the same limit. Leave out one of them.",
        )
        for name, (given, path) in fields.items()
        if given is not None and path in request.set
    )
    if problems:
        raise ContractInvalid(problems)


def _assign(document: dict[str, Any], path: str, value: Json) -> None:
    """`--set sandbox.memory_mb=64`: reaches any field of the contract."""
    *parents, last = path.split(".")
    for name in parents:
        step = document.setdefault(name, {})
        if not isinstance(step, dict):
            found = Problem(field=path, message=f"{name} is a value, not a section.")
            raise ContractInvalid((found,))
        document = step
    document[last] = value
