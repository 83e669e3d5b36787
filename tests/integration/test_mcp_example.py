"""The example under examples/mcp does what its page says."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from actum import Outcome, Runtime
from actum.contract.model import RunnerKind
from actum.project import create
from actum.registry.approval_workflow import approve
from actum.store.keys import Keyring

pytestmark = pytest.mark.sandbox

EXAMPLE = Path(__file__).parents[2] / "examples" / "mcp" / "notes"


def test_notes_are_kept_while_the_runtime_is_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "project"
    create(root, RunnerKind.LOCAL, by="user:test", date="2026-11-15")
    shutil.copytree(EXAMPLE, root / "tools" / "notes")
    keyring = Keyring.open(root / ".actum")
    approve(root, keyring, "TL-320", by="user:other", evidence="e", date="2026-11-15")
    monkeypatch.chdir(root)
    # As the page has it.
    (program,) = (EXAMPLE / "README.md").read_text().split("```python\n")[1:]
    printed: list[object] = []
    exec(program.split("```")[0], {"print": printed.append})
    assert printed == ["two bottles"]
    with Runtime.open() as rt:
        gone = rt.exec("notes:recall", parameters={"title": "milk"})
        assert gone.outcome is Outcome.TOOL_ERROR, "another runtime, another server"
