"""A repository with the shipped tools, pinned by a key of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from actum.contract.model import RunnerKind
from actum.errors import Problem
from actum.registry.approval_workflow import approve, propose
from actum.registry.registry import Registry
from actum.registry.ship import ship
from actum.store.keys import Keyring

DATA = Path(__file__).parent / "data"

DECISION = {"by": "user:ada", "evidence": "REV-7", "date": "2026-11-15"}


@dataclass(frozen=True)
class Repository:
    root: Path
    keyring: Keyring

    def approve(self, tool: str) -> None:
        approve(self.root, self.keyring, tool, **DECISION)

    def registry(self) -> Registry:
        return Registry(self.root, self.keyring.trusted)

    def folder(self, name: str) -> Path:
        return self.root / "tools" / name

    def problems(self, name: str) -> tuple[Problem, ...]:
        return propose(self.root, self.folder(name)).problems


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """The shipped tools, on disk but not approved."""
    root = tmp_path / "project"
    (root / "tools").mkdir(parents=True)
    ship(root / "tools", RunnerKind.LOCAL)
    return Repository(root, Keyring.open(root / ".actum", create=True))


@pytest.fixture
def pinned(repository: Repository) -> Repository:
    """As above, with ripgrep approved."""
    repository.approve("TL-003")
    return repository


@pytest.fixture
def edit(repository: Repository) -> Callable[[str, str, str], None]:
    """Replace text in a file below tools/, which must hold it exactly once."""

    def replace(path: str, old: str, new: str) -> None:
        file = repository.root / "tools" / path
        text = file.read_text()
        assert text.count(old) == 1, f"{old!r} occurs {text.count(old)} times in {path}"
        file.write_text(text.replace(old, new))

    return replace


@pytest.fixture
def add_tool(repository: Repository) -> Callable[..., None]:
    """A second tool, made from ripgrep's tool.yaml, with one of the seed's adapters."""

    def add(name: str, tool_id: str, adapter: str) -> None:
        folder = repository.folder(name)
        (folder / "adapters").mkdir(parents=True)
        text = (repository.folder("ripgrep") / "tool.yaml").read_text()
        text = text.replace("tool_id: TL-003", f"tool_id: {tool_id}")
        (folder / "tool.yaml").write_text(text.replace("name: ripgrep", f"name: {name}"))
        (folder / "adapters" / adapter).write_bytes((DATA / adapter).read_bytes())

    return add
