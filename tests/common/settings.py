"""Settings of a test's project, edited and approved as an operator does it."""

from __future__ import annotations

from pathlib import Path

from actum.contract.os_user import os_user
from actum.registry.pinned_settings import approve_settings


def add_settings(root: Path, toml: str) -> None:
    """Append to actum.toml, or to the section there that `toml` begins with; approve the whole."""
    file = root / "actum.toml"
    section, _, keys = toml.strip().partition("\n")
    text = file.read_text()
    if section in text.splitlines():
        file.write_text(text.replace(f"{section}\n", f"{section}\n{keys}\n", 1))
    else:
        file.write_text(text + toml)
    approve(root)


def approve(root: Path) -> None:
    approve_settings(root, root / ".actum", by="user:maker", user=os_user(), date="2026-11-15")
