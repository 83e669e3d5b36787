"""Parses the files of a tool folder into a `Tool` and its `Adapter`s. Reports every problem.

`registry.digest` read the files; this module opens none again, so the parsed bytes are the hashed
ones. Loading grants nothing.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from actum.contract.canonical import sha256_bytes
from actum.contract.image_reference import HOST
from actum.contract.model import NetworkLevel, RunnerKind
from actum.documents.document import Document, check, load_document
from actum.errors import ContractInvalid, Problem
from actum.registry.digest import Snapshot, read_folder
from actum.registry.model import (
    Adapter,
    AdapterKind,
    AdapterStatus,
    CliInterface,
    Fallback,
    Operation,
    Permissions,
    ProgramInterface,
    Retry,
    SandboxOverride,
    Scope,
    Tool,
    ToolStatus,
    Transform,
)
from actum.value import value


@value
class Loaded:
    """A well-formed tool folder."""

    tool: Tool
    adapters: tuple[Adapter, ...]  #: sorted by id
    paths: Mapping[str, str]  #: adapter_id -> its file


def load_tool(folder: Path) -> Tool:
    return load_snapshot(read_folder(folder)).tool


def load_adapters(folder: Path) -> tuple[Adapter, ...]:
    return load_snapshot(read_folder(folder)).adapters


def load_snapshot(snapshot: Snapshot) -> Loaded:
    """Raises `ContractInvalid` with the problems of all files in the folder."""
    from actum.registry import coherence  # most folders were checked before (`disk_cache`)

    problems: list[Problem] = []
    documents: dict[str, Document] = {}
    for path, content in snapshot.documents.items():
        schema = schema_of("tool" if path == "tool.yaml" else "adapter")
        try:
            document = load_document(content, file=str(snapshot.folder / path))
        except ContractInvalid as invalid:
            problems.extend(invalid.problems)
            continue
        wrong = check(document, schema)
        problems.extend(wrong)
        if not wrong:
            documents[path] = document
    tool_document = documents.pop("tool.yaml", None)
    problems.extend(coherence.folder_problems(snapshot))
    if tool_document is not None:
        problems.extend(coherence.tool_problems(tool_document, snapshot.folder.name))
    problems.extend(coherence.adapter_problems(tool_document, documents))
    if tool_document is not None and not problems:  # an invalid adapter may declare the operation
        problems.extend(coherence.operation_problems(tool_document, documents.values()))
    if problems or tool_document is None:
        raise ContractInvalid(tuple(problems))
    adapters = [
        adapter_of(document.value, sha256_bytes(snapshot.documents[path]))
        for path, document in documents.items()
    ]
    return Loaded(
        tool=tool_of(tool_document.value, snapshot.folder),
        adapters=tuple(sorted(adapters, key=lambda adapter: adapter.adapter_id)),
        paths={document.value["adapter_id"]: path for path, document in documents.items()},
    )


def well_formed(snapshot: Snapshot, path: str, known: Collection[str]) -> dict[str, Any]:
    """One document of a folder that was already found coherent; `known` are its adapters' ids.

    Raises `ContractInvalid` with all its problems: another version of Actum may have approved it.
    """
    from actum.registry import coherence

    file = str(snapshot.folder / path)
    document = load_document(snapshot.documents[path], file=file)
    problems = list(check(document, schema_of("tool" if path == "tool.yaml" else "adapter")))
    if not problems and path == "tool.yaml":
        problems.extend(coherence.tool_problems(document, snapshot.folder.name))
    elif not problems:
        problems.extend(coherence.adapter_problems(None, {path: document}, known))
    if problems:
        raise ContractInvalid(tuple(problems))
    value: dict[str, Any] = document.value
    return value


@cache
def schema_of(name: str) -> Mapping[str, Any]:
    path = Path(__file__).parent / "schemas" / f"{name}.json"
    schema: dict[str, Any] = json.loads(path.read_text())
    return schema


def tool_of(value: Mapping[str, Any], folder: Path) -> Tool:
    scope = value["scope"]
    return Tool(
        tool_id=value["tool_id"],
        name=value["name"],
        version=value["version"],
        owner=value["owner"],
        description=value.get("description", ""),
        provenance=value["provenance"],
        scope=Scope(
            commands=tuple(scope["commands"]),
            endpoints=tuple(scope["endpoints"]),
            data_access=scope["data_access"],
            network=scope["network"] == "on",
            hosts=tuple(scope.get("hosts", ())),
            filesystem=tuple(scope["filesystem"]),
        ),
        args_schema=value["args_schema"],
        permissions=_permissions(value.get("permissions", {})),
        environment=tuple(value.get("environment", ())),
        path=tuple(value.get("path", ())),
        artifacts=tuple(value.get("artifacts", {}).get("produces", ())),
        status=ToolStatus(value["status"]),
        last_review=value["last_review"],
        next_review=value["next_review"],
        folder=str(folder),
        servers=value.get("servers", {}),
        packages_folder=value.get("packages", {}).get("folder", "lib"),
        packages_path=value.get("packages", {}).get("path"),
        workspace=value.get("workspace", ""),
        image=value.get("image", HOST),
        operations={
            name: Operation(**declared) for name, declared in value.get("operations", {}).items()
        },
    )


def _permissions(value: Mapping[str, Any]) -> Permissions:
    files, execution = value.get("filesystem", {}), value.get("execution", {})
    return Permissions(
        outbound=tuple(value.get("network", {}).get("outbound") or ()),
        read=_optional_tuple(files.get("read")),
        write=_optional_tuple(files.get("write")),
        secrets=tuple(value.get("secrets", {}).get("allowed", ())),
        runner=RunnerKind(execution.get("runner", RunnerKind.DOCKER)),
        max_duration_s=execution.get("max_duration_sec"),
        max_memory_mb=execution.get("max_memory_mb"),
        max_cpu_cores=execution.get("max_cpu_cores"),
    )


def _optional_tuple(value: list[str] | None) -> tuple[str, ...] | None:
    return None if value is None else tuple(value)


def adapter_of(value: Mapping[str, Any], sha256: str) -> Adapter:
    kind = AdapterKind(value["type"])
    interface = value["interface"][kind.value]
    transforms, errors = value.get("transforms", {}), value.get("errors", {})
    metadata = value["metadata"]
    return Adapter(
        adapter_id=value["adapter_id"],
        name=value["name"],
        version=value["version"],
        tool_id=value["tool_id"],
        kind=kind,
        cli=_cli(interface) if kind is AdapterKind.CLI else None,
        interface=interface,
        input_transforms=_transforms(transforms.get("input", [])),
        output_transforms=_transforms(transforms.get("output", [])),
        retry=_retry(errors.get("retry")),
        fallback=_fallback(errors.get("fallback")),
        override=_override(value.get("sandbox_override", {})),
        author=metadata["author"],
        created=metadata["created"],
        updated=metadata["updated"],
        status=AdapterStatus(metadata["status"]),
        sha256=sha256,
    )


def _cli(value: Mapping[str, Any]) -> CliInterface:
    return CliInterface(
        executable=value["executable"],
        base_args=tuple(value.get("base_args", ())),
        arg_mapping=value.get("arg_mapping", {}),
        env_mapping=value.get("env_mapping", {}),
        program=_program(value.get("program")),
    )


def _program(value: Mapping[str, Any] | None) -> ProgramInterface | None:
    if value is None:
        return None
    return ProgramInterface(
        example=value["example"],
        text_options=tuple(value.get("text_options", ())),
        file_args=_optional_tuple(value.get("file_args")),
    )


def _transforms(entries: list[dict[str, Any]]) -> tuple[Transform, ...]:
    return tuple(Transform(type=entry["type"], spec=entry["spec"]) for entry in entries)


def _retry(value: Mapping[str, Any] | None) -> Retry:
    if value is None:
        return Retry(max_attempts=1, backoff_ms=0, retryable_codes=())
    return Retry(
        max_attempts=value["max_attempts"],
        backoff_ms=value["backoff_ms"],
        retryable_codes=tuple(value["retryable_codes"]),
    )


def _fallback(value: Mapping[str, Any] | None) -> Fallback | None:
    return None if value is None else Fallback(**value)


def _override(value: Mapping[str, Any]) -> SandboxOverride:
    network = value.get("network", {})
    return SandboxOverride(
        timeout_ms=value.get("timeout_ms"),
        memory_mb=value.get("memory_mb"),
        network_enabled=network.get("enabled"),
        network_allow=_optional_tuple(network.get("allow")),
        network_level=NetworkLevel(network["level"]) if "level" in network else None,
    )
