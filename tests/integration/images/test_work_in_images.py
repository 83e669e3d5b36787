"""Work items, retries, kept tools and transactions of tools that run in an image."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from actum import Runtime
from actum.contract.model import RunnerKind
from actum.project import create
from common.imaged_tools import add_image, give_image
from common.images import host_rootfs

pytestmark = pytest.mark.sandbox


def _project(folder: Path, *, python: bool = False) -> Path:
    create(folder, RunnerKind.LOCAL, by="user:tester", date="2026-11-16")
    image = add_image(folder, host_rootfs(folder.parent / "image.tar", python=python))
    give_image(folder, image.reference, "shell", *(["snippet", "python"] if python else []))
    return folder


def test_a_work_item_whose_tool_runs_in_an_image(tmp_path: Path) -> None:
    project = _project(tmp_path / "p")
    (project / "agents").mkdir()
    script = "cat /etc/in-image > of-image; test -e /usr/share || echo no > no"
    agent = {"agent_id": "agent-1", "steps": [{"tool": "shell", "stdin": script}]}
    (project / "agents/agent-1.yaml").write_text(json.dumps(agent))
    item = {"id": "work-item-1", "agent_id": "agent-1", "description": "x", "dependencies": []}
    with Runtime.open(project, pool=False) as rt:
        result = rt.work(item)
        assert result.status == "success", result
        assert (project / "of-image").read_text() == "of the image\n"
        assert (project / "no").read_text() == "no\n"
        assert all(finding.passed for finding in rt.verifier.verify_all())


def test_changes_in_an_image_are_a_transaction(tmp_path: Path) -> None:
    project = _project(tmp_path / "p")
    with Runtime.open(project) as rt:
        (project / "file").write_text("before")
        result = rt.shell("echo after > file; echo new > new", changes="discard", cwd=project)
        assert result.check() and (project / "file").read_text() == "before"
        result = rt.shell("echo after > file; echo new > new", cwd=project).check()
        assert (project / "file").read_text() == "after\n" and (project / "new").exists()
        rt.transactions.undo(rt.transactions.find(result.execution_id))
        assert (project / "file").read_text() == "before"


def test_python_snippets_and_sessions_in_an_image(tmp_path: Path) -> None:
    project = _project(tmp_path / "p", python=True)
    code = "import os, sys; [sys.version_info[0], os.path.exists('/usr/share'), sum(x)]"
    with Runtime.open(project) as rt:
        for _ in range(3):  # also when interpreters wait for those of the host
            assert rt.python(code, params={"x": [1, 2]}).check().output == [3, False, 3]
        with rt.python_session() as session:
            session.run("y = 20").check()
            value = session.run("import os; [y + 1, os.path.exists('/etc/in-image')]").check()
            assert value.output == [21, True]


def test_one_pool_serves_the_host_and_images(tmp_path: Path) -> None:
    """Prepared sandboxes are the same; what one was used for shows in no other."""
    project = _project(tmp_path / "p")
    script = "cat /etc/in-image 2> /dev/null; test -e /usr/share && echo host; true"
    with Runtime.open(project) as rt:
        image = rt.images.list()[0].reference
        for reference, said in [(image, "of the image\n"), ("host", "host\n")] * 3:
            give_image(project, reference, "shell")
            assert rt.shell(script, cwd=project).check().result.stdout == said


def test_level_d2_is_refused(tmp_path: Path) -> None:
    project = _project(tmp_path / "p")
    with Runtime.open(project) as rt:
        result = rt.shell("true", cwd=project, set={"determinism": "D2"})
        assert result.reason_codes == ("DETERMINISM_UNSUPPORTED",)
        assert rt.shell("true", cwd=project, set={"determinism": "D1"}).check()
