"""A project with one MCP tool, whose server lies in the tool's own folder."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from actum import Runtime
from actum.contract.model import RunnerKind
from actum.project import create
from actum.registry.approval_workflow import approve
from actum.settings import load
from actum.store.keys import Keyring
from common.settings import add_settings

SERVER = Path(__file__).parent / "server.py"
OPERATIONS = ("echo", "count", "fail", "misbehave", "structured", "environment")


def tool(operations: Sequence[str] = OPERATIONS, **more: Any) -> dict[str, Any]:
    return {
        "tool_id": "TL-300",
        "name": "small",
        "version": "1.0.0",
        "owner": "tests",
        "provenance": {
            "repo_url": "file:///",
            "commit_or_tag": "none",
            "checksum": "none",
            "license": "none",
        },
        "scope": {
            "commands": list(operations),
            "endpoints": [],
            "data_access": "write",
            "network": "off",
            "filesystem": ["."],
        },
        "args_schema": {
            "type": "object",
            "additionalProperties": False,
            "properties": {"text": {"type": "string", "x-actum": "literal"}},
        },
        "permissions": {"execution": {"runner": "local"}},
        "environment": ["LANG"],
        "status": "active",
        "last_review": "2026-11-15",
        "next_review": "2027-11-15",
        **more,
    }


def adapter(operations: Sequence[str] = OPERATIONS, **more: Any) -> dict[str, Any]:
    return {
        "adapter_id": "ADP-300",
        "name": "small",
        "version": "1.0.0",
        "tool_id": "TL-300",
        "type": "mcp",
        "interface": {
            "mcp": {
                "server": "small-server",
                "transport": "stdio",
                "tool_mapping": {name: name for name in operations},
            }
        },
        "sandbox_override": {"timeout_ms": 30_000, "memory_mb": 128},
        "metadata": {
            "author": "tests",
            "created": "2026-11-15",
            "updated": "2026-11-15",
            "status": "active",
        },
        **more,
    }


def small(
    root: Path,
    *,
    when: str = "well",
    settings: str = "",
    errors: dict[str, Any] | None = None,
    **server: Any,
) -> Runtime:
    """An open project whose tool `small` is approved; the work is done in `root`/work."""
    create(root, RunnerKind.LOCAL, by="user:test", date="2026-11-15")
    command = ["python3", "-I", "-S", "{tool}/server.py", when]
    servers = {"small-server": server if "url" in server else {"command": command, **server}}
    write(root, tool(servers=servers), adapter(**({"errors": errors} if errors else {})))
    if settings:
        add_settings(root, settings)
    (root / "work").mkdir()
    return Runtime(load(root / ".actum", {"LOGNAME": "test"}))


def write(root: Path, tool: dict[str, Any], *adapters: dict[str, Any], evidence: str = "e") -> None:
    """The tool folder, and its approval."""
    folder = root / "tools" / tool["name"]
    (folder / "adapters").mkdir(parents=True, exist_ok=True)
    (folder / "tool.yaml").write_text(yaml.safe_dump(tool))
    for each in adapters:
        (folder / "adapters" / f"{each['name']}.yaml").write_text(yaml.safe_dump(each))
    shutil.copy(SERVER, folder / "server.py")
    pin(root, tool["tool_id"], evidence=evidence)


def pin(root: Path, tool_id: str, *, evidence: str = "e") -> None:
    keyring = Keyring.open(root / ".actum")
    approve(root, keyring, tool_id, by="user:other", evidence=evidence, date="2026-11-15")
