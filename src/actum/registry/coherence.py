"""Checks beyond the schemas: that the parts of a tool folder agree with each other.

Reads documents that already conform to their schemas and returns problems with source positions.
Decides nothing else.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from actum.contract.image_reference import HOST, parse_reference
from actum.contract.model import Json
from actum.documents.document import Document
from actum.documents.source_position import Path as KeyPath
from actum.errors import Problem
from actum.registry.api_coherence import api_problems
from actum.registry.digest import Snapshot, is_document
from actum.registry.sdk_names import sdk_problems
from actum.registry.transforms import schema_fault, spec_problem

MARK = "x-actum"
_MARKS = frozenset({"literal", "path", "url"})


def folder_problems(snapshot: Snapshot) -> Iterator[Problem]:
    if "tool.yaml" not in snapshot.files:
        yield Problem(
            field="",
            message="there is no tool.yaml; write one with `actum new tool`.",
            file=str(snapshot.folder),
        )
    for path in snapshot.files:
        # Ignored silently, it would look like an adapter and never be one.
        if path.startswith("adapters/") and not is_document(path):
            yield Problem(
                field="",
                message="only *.yaml files directly in adapters/ are adapters; rename or move it.",
                file=str(snapshot.folder / path),
            )


def tool_problems(document: Document, folder_name: str) -> Iterator[Problem]:
    value: dict[str, Any] = document.value
    scope, permissions = value["scope"], value.get("permissions", {})
    outbound = permissions.get("network", {}).get("outbound")
    writable = permissions.get("filesystem", {}).get("write")
    if value["name"] != folder_name:
        yield document.problem(
            ("name",),
            f"the folder is called {folder_name!r}; give folder and tool the same name.",
            value=value["name"],
        )
    if scope["network"] == "off" and scope.get("hosts"):
        yield document.problem(
            ("scope", "hosts"), "hosts are listed while scope.network is off; set on, or list none."
        )
    if scope["network"] == "off" and outbound:
        yield document.problem(
            ("permissions", "network", "outbound"),
            "it permits traffic while scope.network is off; write false here, or on there.",
        )
    if scope["data_access"] != "write" and writable:
        yield document.problem(
            ("permissions", "filesystem", "write"),
            f"paths are writable while scope.data_access is {scope['data_access']}; list none.",
        )
    for key_path, paths in (
        (("scope", "filesystem"), scope["filesystem"]),
        (("permissions", "filesystem", "read"), permissions.get("filesystem", {}).get("read")),
        (("permissions", "filesystem", "write"), writable),
        (("packages", "path"), [value.get("packages", {}).get("path", "")]),
    ):
        yield from _climbing(document, key_path, paths or [])
    for index, command in enumerate(scope["commands"]):
        if command.split() != command.split(" "):
            yield document.problem(
                ("scope", "commands", index),
                "separate the program and its leading arguments by one space.",
                value=command,
            )
    yield from _image(document, value.get("image", HOST))
    yield from _dates(document, ("last_review",), ("next_review",))
    yield from _args_schema(document, value["args_schema"])


def _climbing(document: Document, key_path: KeyPath, paths: list[str]) -> Iterator[Problem]:
    for index, path in enumerate(paths):
        if ".." in path.split("/") or "\0" in path:
            yield document.problem(
                (*key_path, index),
                "write the path without `..`: its meaning must not change.",
                value=path,
            )


def _image(document: Document, image: str) -> Iterator[Problem]:
    try:
        parse_reference(image)
    except ValueError as wrong:
        yield document.problem(("image",), str(wrong), value=image)


def _dates(document: Document, earlier: KeyPath, later: KeyPath) -> Iterator[Problem]:
    texts: list[str] = []
    for key_path in (earlier, later):
        text = _at(document.value, key_path)
        try:
            datetime.fromisoformat(text)
        except ValueError:
            yield document.problem(key_path, "there is no such date.", value=text)
        else:
            texts.append(text[:10])
    if len(texts) == 2 and texts[1] < texts[0]:
        yield document.problem(later, f"it is before {earlier[-1]}.", value=texts[1])


def _at(value: Json, key_path: KeyPath) -> str:
    for step in key_path:
        value = value[step]
    return str(value)


def _args_schema(document: Document, schema: Mapping[str, Json]) -> Iterator[Problem]:
    key_path: KeyPath = ("args_schema",)
    fault = schema_fault(schema)
    if fault:
        yield document.problem(key_path, f"not a usable JSON Schema: {fault}.")
        return
    if schema.get("type") != "object":
        yield document.problem(key_path, "it needs `type: object`: parameters are named.")
    for name, subschema in dict(schema.get("properties", {})).items():
        if not isinstance(subschema, Mapping):
            continue
        for part, found in (((), subschema), (("items",), subschema.get("items"))):
            marks = found.get(MARK, ()) if isinstance(found, Mapping) else ()
            for mark in marks if isinstance(marks, list) else [marks] if marks != () else []:
                if mark not in _MARKS:
                    yield document.problem(
                        (*key_path, "properties", name, *part, MARK),
                        "unknown mark.",
                        value=str(mark),
                        permitted="literal, path, url",
                    )


def adapter_problems(
    tool: Document | None, documents: Mapping[str, Document], known: Collection[str] = ()
) -> Iterator[Problem]:
    """Problems of the adapters of one folder; `tool` is ``None`` if tool.yaml is unusable.

    `known` holds ids of the folder's adapters that are not in `documents`.
    """
    owners: dict[str, str] = {}
    for path, document in documents.items():
        adapter_id = document.value["adapter_id"]
        if adapter_id in owners:
            yield document.problem(
                ("adapter_id",),
                f"{owners[adapter_id]} has the same id; give each adapter its own.",
                value=adapter_id,
            )
        owners.setdefault(adapter_id, path)
    for document in documents.values():
        if tool is not None and document.value["tool_id"] != tool.value["tool_id"]:
            yield document.problem(
                ("tool_id",),
                "the adapter is in the folder of another tool.",
                value=document.value["tool_id"],
                permitted=tool.value["tool_id"],
            )
        yield from _fallback(document, {*owners, *known})
        if document.value["type"] == "api":
            yield from api_problems(document)
        elif document.value["type"] == "sdk":
            yield from sdk_problems(document)
        yield from _transforms(document)
        yield from _dates(document, ("metadata", "created"), ("metadata", "updated"))


_MAPPINGS = {"api": "endpoint_mapping", "sdk": "function_mapping", "mcp": "tool_mapping"}


def operation_problems(tool: Document, adapters: Iterable[Document]) -> Iterator[Problem]:
    """Refuse declarations about unknown operations: readers would rely on them without effect."""
    value = tool.value
    known = set(value["scope"]["commands"])
    for document in adapters:
        kind = document.value["type"]
        if kind in _MAPPINGS:
            known.update(document.value["interface"][kind][_MAPPINGS[kind]])
    for name, declared in value.get("operations", {}).items():
        if name not in known:
            yield tool.problem(
                ("operations", name),
                "neither scope.commands nor an adapter has this operation.",
                permitted=", ".join(sorted(known)) or "none",
            )
        parameters = value["args_schema"].get("properties", {})
        if "key" in declared and declared["key"] not in parameters:
            yield tool.problem(
                ("operations", name, "key"),
                "args_schema has no parameter of this name.",
                value=declared["key"],
                permitted=", ".join(parameters) or "none",
            )


def _fallback(document: Document, known: set[str]) -> Iterator[Problem]:
    fallback = document.value.get("errors", {}).get("fallback")
    if fallback is None:
        return
    target = fallback["adapter_id"]
    if target == document.value["adapter_id"] or target not in known:
        yield document.problem(
            ("errors", "fallback", "adapter_id"),
            "a fallback must be another adapter of the same tool.",
            value=target,
            permitted=", ".join(sorted(known - {document.value["adapter_id"]})) or "null",
        )


def _transforms(document: Document) -> Iterator[Problem]:
    transforms = document.value.get("transforms", {})
    said = transforms.get("output", [])
    if document.value["type"] == "cli" and said and said[0]["type"] != "parse":
        yield document.problem(
            ("transforms", "output", 0, "type"),
            "a program's output is text: put a parse before it.",
            value=said[0]["type"],
            permitted="parse",
        )
    for side in ("input", "output"):
        for index, entry in enumerate(transforms.get(side, [])):
            wrong = spec_problem(entry["type"], entry["spec"])
            if wrong:
                yield document.problem(("transforms", side, index, "spec"), f"{wrong}.")
