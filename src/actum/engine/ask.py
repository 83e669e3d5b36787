"""`actum exec` and `Runtime.exec` in the words of a contract: keywords in, contract document out.

Nothing is decided here. A tool that cannot be found still gets a contract, so that its refusal is
recorded like any other.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping, Sequence
from typing import Any

from actum.contract.model import Json
from actum.errors import ContractInvalid, Problem, Refused
from actum.registry.model import AdapterStatus
from actum.registry.registry import Recalled, Registry
from actum.value import field, value

_DURATION = re.compile(r"(\d+)(ms|s|m)?")
_SIZE = re.compile(r"(\d+)([MG]i?B?)?", re.IGNORECASE)


@value
class Ask:
    """One execution, asked for by keywords."""

    tool: str  #: id or name, optionally ``:operation``
    parameters: Mapping[str, Json] = field(default_factory=dict)
    arguments: Sequence[str] = ()
    stdin: bytes | str | None = None
    files: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] | Sequence[str] = ()  #: names, or name -> how it comes in
    cwd: str | None = None
    timeout: str | None = None
    memory: str | None = None
    allow_hosts: Sequence[str] = ()
    purpose: str | None = None
    requested_by: str | None = None
    adapter_id: str | None = None
    set: Mapping[str, Json] = field(default_factory=dict)


def contract_document(ask: Ask, registry: Registry) -> dict[str, Any]:
    """The contract that `ask` means, as a plain document for the strict parser."""
    name, _, operation = ask.tool.partition(":")
    tool_id, command, first = _resolve(name, operation, ask.adapter_id, registry)
    inputs: dict[str, Any] = {"command": command}
    document: dict[str, Any] = {"tool_id": tool_id, "inputs": inputs}
    if ask.adapter_id:
        document["adapter_id"] = ask.adapter_id
    if first or ask.arguments:
        inputs["arguments"] = [*first, *ask.arguments]
    if ask.parameters:
        inputs["parameters"] = dict(ask.parameters)
    if ask.env:
        inputs["environment"] = dict(ask.env)
    if ask.secrets:
        named = ask.secrets
        inputs["secrets"] = (
            dict(named) if isinstance(named, Mapping) else dict.fromkeys(named, "env")
        )
    if ask.cwd is not None:
        inputs["working_directory"] = ask.cwd
    if ask.files:
        inputs["input_files"] = list(ask.files)
    if ask.stdin is not None:
        inputs["stdin"] = _stdin(ask.stdin)
    sandbox: dict[str, Any] = {}
    if ask.timeout is not None:
        sandbox["timeout_ms"] = _duration_ms(ask.timeout)
    if ask.memory is not None:
        sandbox["memory_mb"] = _size_mb(ask.memory)
    if ask.allow_hosts:
        sandbox["network"] = {"enabled": True, "allow": list(ask.allow_hosts)}
    if sandbox:
        document["sandbox"] = sandbox
    metadata = {"requested_by": ask.requested_by, "purpose": ask.purpose}
    given = {key: value for key, value in metadata.items() if value is not None}
    if given:
        document["metadata"] = given
    for path, wanted in ask.set.items():
        _assign(document, path, wanted)
    return document


def _resolve(
    name: str, operation: str, adapter_id: str | None, registry: Registry
) -> tuple[str, str, list[str]]:
    """(tool id, command, leading arguments). For a program, an operation is its subcommand."""
    recalled = registry.recall(name, adapter_id, operation)
    if recalled is None:
        try:
            tool = registry.find_tool(name)
            adapters = registry.adapters(tool)
        except (Refused, ContractInvalid):
            # Whatever is wrong with the tool, the pipeline will find it and put it on record.
            return name, operation or name, []
        active = [item for item in adapters if item.status is AdapterStatus.ACTIVE]
        named = [item for item in adapters if item.adapter_id == adapter_id]
        adapter = next(iter((*named, *active, *adapters)), None)
        cli = adapter.cli if adapter is not None else None
        recalled = Recalled(tool_id=tool.tool_id, executable=cli.executable if cli else None)
    if recalled.executable is not None:
        return recalled.tool_id, recalled.executable, [operation] if operation else []
    return recalled.tool_id, operation or name, []


def _stdin(content: bytes | str) -> Json:
    if isinstance(content, str):
        return content
    try:
        return content.decode()
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(content).decode()}


def _duration_ms(text: str) -> int:
    match = _DURATION.fullmatch(text)
    if match is None:
        raise _unreadable("sandbox.timeout_ms", text, "for example 500ms, 5s or 2m")
    return int(match[1]) * {"ms": 1, "s": 1_000, "m": 60_000}[match[2] or "s"]


def _size_mb(text: str) -> int:
    match = _SIZE.fullmatch(text)
    if match is None:
        raise _unreadable("sandbox.memory_mb", text, "for example 256M or 1G")
    return int(match[1]) * (1_024 if (match[2] or "M")[0] in "gG" else 1)


def _unreadable(name: str, value: str, permitted: str) -> ContractInvalid:
    problem = Problem(
        field=name, message=f"{value!r} cannot be read", value=value, permitted=permitted
    )
    return ContractInvalid((problem,))


def _assign(document: dict[str, Any], path: str, value: Json) -> None:
    """`--set sandbox.memory_mb=64`: reaches any field of the contract."""
    *parents, last = path.split(".")
    for name in parents:
        step = document.setdefault(name, {})
        if not isinstance(step, dict):
            raise _unreadable(path, str(value), f"{name} is a value, not a section")
        document = step
    document[last] = value
