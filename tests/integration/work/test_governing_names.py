"""A work item that changes a name which decides what is executed later is denied."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from actum.evidence.verify.work_findings import read_work_receipt
from hostile.jail import marker

from .shop import add_agent, item, make_project, opened, wake_together

pytestmark = pytest.mark.sandbox

_REMEDY = (
    ". They decide what is executed later. Make this change yourself, or run the tool with"
    " `actum exec` and approve the held change."
)


def _names(project: Path) -> set[str]:
    return {
        os.path.relpath(os.path.join(folder, name), project)
        for folder, folders, files in os.walk(project)
        for name in (*folders, *files)
        if not os.path.relpath(folder, project).startswith(".actum")
    }


@pytest.mark.parametrize("engine", ["overlay", "copy"])
@pytest.mark.parametrize(
    ("script", "named"),
    [
        ("echo x > other/agents/agent-9.yaml", "other/agents/agent-9.yaml"),
        ("mkdir executors; echo x > executors/x.py", "executors, executors/x.py"),
        ("mkdir -p sub/.git; echo x > sub/.git/config", "sub/.git, sub/.git/config"),
        (
            "mkdir -p b/objects b/refs; echo x > b/HEAD; echo x > b/config",
            "b/HEAD, b/config, b/objects, b/refs",
        ),
        ("echo x > .envrc", ".envrc"),
        # Named by the configuration of the project's repository only.
        ("echo x > scripts/pre-commit", "scripts/pre-commit"),
    ],
    ids=["agents", "executors", "nested-git", "bare", "envrc", "hooks-path"],
)
def test_an_item_that_changes_a_governing_name_is_denied(
    tmp_path: Path, engine: str, script: str, named: str
) -> None:
    project = make_project(
        tmp_path / "p",
        {
            "other/.actum/key": "",
            "other/agents/agent-1.yaml": "",
            ".git/config": "[core]\n\thooksPath = scripts\n",
            "scripts/README": "",
        },
    )
    add_agent(project, f"echo x > beside; {script}")
    add_agent(project, "echo x > beside; mkdir b; echo x > b/config", number=2)
    with opened(project) as rt:
        before, names = rt.state_hash(), _names(project)
        denied = rt.work_items.run(item(test_command="true"), engine=engine)
        assert denied.status == "denied", denied
        assert denied.denial_reason == f"Governing names changed: {named}{_REMEDY}"
        assert denied.test_output is None, "its tests ran"
        assert (denied.output_hash, rt.state_hash()) == (before, before)
        assert _names(project) == names
        envelope = rt.work_items.records.envelope(denied.receipt_id)
        assert envelope is not None
        receipt = read_work_receipt(envelope, rt.keyring.trusted)
        assert (receipt["status"], receipt["after_hash"]) == ("denied", before)

        ordinary = rt.work_items.run(item(id="y", agent_id="agent-2"), engine=engine)
        assert ordinary.status == "success", ordinary
    assert (project / "beside").read_text() == "x\n"
    assert (project / "b/config").exists()


def test_two_items_side_by_side_do_not_make_a_repository_together(tmp_path: Path) -> None:
    """Neither half is one; so the second is judged again when it is committed."""
    project = make_project(tmp_path / "p", {"b/README": ""})
    naps = [marker(), marker()]
    add_agent(project, f"sleep {naps[0]}; mkdir b/objects b/refs")
    add_agent(project, f"sleep {naps[1]}; echo x > b/HEAD; echo x > b/config", number=2)
    with opened(project) as rt, ThreadPoolExecutor(2) as pool:
        items = (item(id="x"), item(id="y", agent_id="agent-2"))
        running = [pool.submit(rt.work, each) for each in items]
        wake_together(naps)
        results = [each.result() for each in running]
        assert sorted(result.status for result in results) == ["denied", "success"], results
        denied = next(result for result in results if result.status == "denied")
        assert (denied.denial_reason or "").startswith("Governing names changed: b/")
    assert not ((project / "b/HEAD").exists() and (project / "b/objects").exists())
