"""Which executions write directly: the project's default, the tool's pin, and the request."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from actum import Outcome, Result, Runtime
from actum.contract.model import RunnerKind
from actum.errors import ContractInvalid
from actum.project import create
from actum.registry.approval_workflow import approve, history
from actum.registry.model import ScopeChange
from common.settings import add_settings

pytestmark = pytest.mark.sandbox


class Project:
    def __init__(self, root: Path, default: str, declared: str) -> None:
        create(root, RunnerKind.LOCAL, by="user:test", date="2026-11-15")
        add_settings(root, f'\n[workspace]\nchanges = "{default}"\n')
        self.root = root
        self.work = root / "work"
        self.work.mkdir()
        self.runtime = Runtime.open(root)
        if declared:
            self.declare(declared)

    def declare(self, mode: str) -> None:
        file = self.root / "tools" / "shell" / "tool.yaml"
        file.write_text(f"{file.read_text()}\nworkspace: {mode}\n")
        approve(
            self.root,
            self.runtime.keyring,
            "shell",
            by="user:maker",
            evidence="e",
            date="2026-11-15",
        )

    def run(self, asked: str | None = None) -> Result:
        fields = {"sandbox.filesystem.changes": asked} if asked else {}
        return self.runtime.exec("shell", stdin="echo x > file", cwd=self.work, set=fields)


@pytest.fixture
def projects(tmp_path: Path) -> Iterator[list[Project]]:
    made: list[Project] = []
    yield made
    for project in made:
        project.runtime.close()


#: The project's default, what the tool declares, what is asked for; and the mode it runs in.
MODES = [
    ("transaction", "", None, "transaction"),
    ("transaction", "", "transaction", "transaction"),
    ("transaction", "", "direct", "refused"),
    ("transaction", "direct", None, "direct"),
    ("transaction", "direct", "transaction", "transaction"),
    ("transaction", "either", None, "transaction"),
    ("transaction", "either", "direct", "direct"),
    ("transaction", "transaction", "direct", "refused"),
    ("direct", "", None, "direct"),
    ("direct", "", "transaction", "transaction"),
    ("direct", "transaction", None, "transaction"),
    ("direct", "transaction", "direct", "refused"),
    ("direct", "either", None, "direct"),
]


@pytest.mark.parametrize(("default", "declared", "asked", "mode"), MODES)
def test_the_mode_is_the_narrowest_that_was_decided(
    tmp_path: Path,
    projects: list[Project],
    default: str,
    declared: str,
    asked: str | None,
    mode: str,
) -> None:
    project = Project(tmp_path / "project", default, declared)
    projects.append(project)
    result = project.run(asked)
    if mode == "refused":
        assert result.outcome is Outcome.REJECTED
        assert result.reason_codes == ("CHANGES_NOT_PERMITTED",)
        assert result.violations[0].field == "sandbox.filesystem.changes"
        assert not (project.work / "file").exists()
    else:
        assert result.outcome is Outcome.SUCCEEDED, result.violations
        assert result.workspace is not None
        assert result.workspace.mode == mode
        assert (project.work / "file").read_text() == "x\n"


def test_a_tool_that_was_not_approved_for_it_does_not_run(
    tmp_path: Path, projects: list[Project]
) -> None:
    project = Project(tmp_path / "project", "transaction", "")
    projects.append(project)
    file = project.root / "tools" / "shell" / "tool.yaml"
    file.write_text(f"{file.read_text()}\nworkspace: direct\n")
    result = project.run()
    assert result.outcome is Outcome.REJECTED
    assert result.reason_codes == ("TOOL_CHANGED",)
    approve(
        project.root,
        project.runtime.keyring,
        "shell",
        by="user:maker",
        evidence="e",
        date="2026-11-15",
    )
    assert project.run().outcome is Outcome.SUCCEEDED
    # Who approved it was shown that it permits more.
    *_, last = history(project.root, project.runtime.keyring.trusted, "TL-010")
    assert last.scope_change is ScopeChange.EXPANDED


def test_another_word_is_refused_where_it_stands(tmp_path: Path, projects: list[Project]) -> None:
    project = Project(tmp_path / "project", "transaction", "")
    projects.append(project)
    with pytest.raises(ContractInvalid, match=r"sandbox\.filesystem\.changes"):
        project.run("overlay")
