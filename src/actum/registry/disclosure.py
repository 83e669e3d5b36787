"""Progressive disclosure: what each level describes of an adapter.

| level | adds | for |
|---|---|---|
| 0 | adapter_id, name, tool_id, type | listing |
| 1 | summary | choosing |
| 2 | interface, transforms | executing |
| 3 | schema, args_schema, examples, fixtures | debugging, documentation |

A level never holds a key of a higher one. Only level 3 reads files; the execution path never does.
The tokens of a level are estimated, not counted: every model counts differently.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from actum.documents.document import load_document
from actum.errors import Fault
from actum.registry.digest import read_folder
from actum.registry.model import Adapter, AdapterKind, Tool, Transform

KEYS: tuple[tuple[str, ...], ...] = (
    ("adapter_id", "name", "tool_id", "type"),
    ("summary",),
    ("interface", "transforms"),
    ("schema", "args_schema", "examples", "fixtures"),
)

_EXAMPLES = "fixtures/examples.yaml"


def disclose(adapter: Adapter, tool: Tool, level: int) -> dict[str, Any]:
    """Describe `adapter` at `level`, 0 to 3."""
    if level not in range(len(KEYS)):
        raise ValueError(f"level {level}: the levels are 0 to {len(KEYS) - 1}.")
    described: dict[str, Any] = {
        "adapter_id": adapter.adapter_id,
        "name": adapter.name,
        "tool_id": adapter.tool_id,
        "type": adapter.kind.value,
    }
    if level >= 1:
        described["summary"] = summary(adapter, tool)
    if level >= 2:
        described["interface"] = {adapter.kind.value: adapter.interface}
        described["transforms"] = {
            "input": _transforms(adapter.input_transforms),
            "output": _transforms(adapter.output_transforms),
        }
    if level >= 3:
        described |= _documentation(adapter, tool)
    return described


def tokens(described: Mapping[str, Any]) -> int:
    """Estimated tokens for a model: a quarter of the bytes as compact JSON, rounded up."""
    return -(-len(json.dumps(described, ensure_ascii=False, separators=(",", ":")).encode()) // 4)


def summary(adapter: Adapter, tool: Tool) -> dict[str, Any]:
    """Enough to choose an adapter: its purpose, its parameters, its status."""
    interface = adapter.interface
    common = {
        "description": tool.description,
        "version": adapter.version,
        "status": adapter.status.value,
    }
    match adapter.kind:
        case AdapterKind.CLI:
            return common | {
                "executable": interface["executable"],
                "parameters": _accepted(adapter),
            }
        case AdapterKind.API:
            return common | {
                "base_url": interface["base_url"],
                "operations": list(interface["endpoint_mapping"]),
            }
        case AdapterKind.SDK:
            return common | {
                "language": interface["language"],
                "operations": list(interface["function_mapping"]),
            }
        case AdapterKind.MCP:
            return common | {
                "server": interface["server"],
                "operations": list(interface["tool_mapping"]),
            }


def _accepted(adapter: Adapter) -> list[str]:
    """The names that a caller may give: those that the input transforms lead to a parameter."""
    interface = adapter.interface
    mapped = {**interface.get("arg_mapping", {}), **interface.get("env_mapping", {})}
    new_names = [each.spec for each in adapter.input_transforms if each.type == "rename"]
    named = dict.fromkeys([*mapped, *(name for spec in new_names for name in spec)])
    return [name for name in named if _renamed(name, new_names) in mapped]


def _renamed(name: str, new_names: list[Mapping[str, str]]) -> str:
    for spec in new_names:
        name = spec.get(name, name)
    return name


def _transforms(transforms: tuple[Transform, ...]) -> list[dict[str, Any]]:
    return [{"type": transform.type, "spec": transform.spec} for transform in transforms]


def _documentation(adapter: Adapter, tool: Tool) -> dict[str, Any]:
    folder = Path(tool.folder)
    snapshot = read_folder(folder)
    written = [
        path
        for path, sha256 in snapshot.files.items()
        if path.startswith("adapters/") and sha256.removesuffix("+x") == adapter.sha256
    ]
    if not written:
        raise Fault(
            f"The file of adapter {adapter.adapter_id} changed while it was being shown.",
            remedy="Try again.",
        )
    fixtures = sorted(path for path in snapshot.files if path.startswith("fixtures/"))
    examples: list[dict[str, Any]] = []
    if _EXAMPLES in fixtures:
        entries = load_document((folder / _EXAMPLES).read_bytes(), file=_EXAMPLES).value
        examples = [each for each in entries if each["adapter_id"] == adapter.adapter_id]
    return {
        "schema": load_document(snapshot.documents[written[0]], file=written[0]).value,
        "args_schema": tool.args_schema,
        "examples": examples,
        "fixtures": {
            path.removeprefix("fixtures/"): (folder / path).read_text(errors="replace")
            for path in fixtures
            if path != _EXAMPLES
        },
    }
