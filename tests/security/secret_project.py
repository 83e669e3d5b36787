"""A project whose shell and python may be given a secret."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import yaml

from actum import Runtime
from actum.contract.model import RunnerKind
from actum.project import create
from actum.registry.approval_workflow import approve
from actum.settings import load
from actum.store.keys import Keyring
from common.settings import add_settings

NAME = "API_TOKEN"


def make(folder: Path, sources: Mapping[str, str], allowed: tuple[str, ...] = (NAME,)) -> Path:
    """`sources`: secret -> its source as TOML. Returns the root."""
    root = folder.resolve() / "project"
    create(root, RunnerKind.LOCAL, by="user:maker", date="2026-11-15")
    keyring = Keyring.open(root / ".actum")
    for tool_name in ("shell", "python", "snippet"):
        file = root / "tools" / tool_name / "tool.yaml"
        if not file.exists():
            continue
        tool = yaml.safe_load(file.read_text())
        tool["scope"]["network"] = "off"  # YAML 1.1 reads a boolean
        tool["permissions"]["secrets"] = {"allowed": list(allowed)}
        file.write_text(yaml.safe_dump(tool))
        approve(root, keyring, tool_name, by="user:maker", evidence="test", date="2026-11-15")
    lines = [f"{name} = {source}" for name, source in sources.items()]
    add_settings(root, "\n[secrets]\n" + "\n".join(lines) + "\n")
    return root


def open_project(root: Path) -> Runtime:
    return Runtime(load(root / ".actum", {"LOGNAME": "asker", "HOME": "/nonexistent"}), pool=False)
