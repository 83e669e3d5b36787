"""Work items read a second time: no folder but the project's own is ever changed, nothing that
people wrote is lost, and nothing that an agent leaves is run on the host."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from actum import Runtime
from actum.agents.workshop import WorkLost, Workshop
from actum.contract.model import RunnerKind
from actum.engine.project import create
from actum.engine.work import process
from actum.errors import ActumError

pytestmark = pytest.mark.sandbox

_ACTUM = (sys.executable, "-P", "-m", "actum.doors.cli.main")
#: Runs in the work item's own process, before its door opens.
_STRUCK = (
    "import os, sys; sys.path[:0] = sys.argv[2:]; from actum.workspace import commit\n"
    "def strike(*_): os._exit(9)\n"
    "commit.{function} = strike\n"
    "from actum.doors.chamber import main; main()"
)
_APPLY, _INTENT = "apply", "write_intent"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    create(folder, RunnerKind.LOCAL, by="user:tester", date="2026-11-16")
    (folder / "a.txt").write_text("alpha\n")
    (folder / "d").mkdir()
    (folder / "d/b.txt").write_text("beta\n")
    return folder


def add_agent(project: Path, script: str, number: int = 1) -> None:
    """An agent that runs one shell script."""
    (project / "agents").mkdir(exist_ok=True)
    document = {
        "agent_id": f"agent-{number}",
        "steps": [{"tool": "shell", "stdin": script}],
    }
    (project / f"agents/agent-{number}.yaml").write_text(yaml.safe_dump(document))


def item(**more: Any) -> dict[str, Any]:
    return {"id": "work-item-1", "agent_id": "agent-1", "description": "A piece of work", **more}


def opened(project: Path) -> Runtime:
    return Runtime.open(project, pool=False)


def _actum(project: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*_ACTUM, *words], cwd=project, text=True, capture_output=True, timeout=120, check=False
    )


def _crash(project: Path, function: str, **more: Any) -> None:
    """Run the item; its process and its asker are gone when it comes to that function."""

    def gone(*_arguments: object, **_more: object) -> None:
        raise WorkLost("the asker is gone too", remedy="")

    with pytest.MonkeyPatch.context() as patch, opened(project) as rt:
        patch.setattr(process, "_BOOT", _STRUCK.format(function=function))
        patch.setattr(Workshop, "_ended", gone)
        with pytest.raises(WorkLost):
            rt.work(item(**more))


def _run_of(rt: Runtime, receipt_id: str) -> str:
    found = rt.workshop.records.of_receipt(receipt_id)
    assert found is not None
    return found


@pytest.mark.parametrize("by", ["the next work item", "its replay script"])
def test_no_module_of_the_project_is_imported_on_the_host(
    project: Path, tmp_path: Path, by: str
) -> None:
    """An agent that leaves a `json` package must not have it run outside of the sandbox."""
    mark = tmp_path / "escaped"
    planted = f"open({str(mark)!r}, 'w')\nraise SystemExit('planted')\n"
    add_agent(project, f"mkdir json && cat > json/__init__.py <<'END'\n{planted}END\n")
    with opened(project) as rt:
        result = rt.work(item())
    assert result.status == "success", result.reason
    assert (project / "json/__init__.py").read_text() == planted
    if by == "its replay script":
        assert result.proof_script is not None
        replayed = subprocess.run(
            ["bash", result.proof_script], cwd=project, text=True, capture_output=True, check=False
        )
        assert not mark.exists()
        assert replayed.returncode == 0, replayed.stdout + replayed.stderr
        return
    add_agent(project, "echo more > more.txt")
    (project / "item.json").write_text('{"id": "next", "agent_id": "agent-1", "description": "x"}')
    done = _actum(project, "item", "run", "item.json")
    assert not mark.exists()
    assert done.returncode == 0, done.stdout + done.stderr


def test_restoring_into_the_project_is_refused(project: Path) -> None:
    """A copy of a folder into itself has no end."""
    add_agent(project, "echo new > new.txt")
    with opened(project) as rt:
        run_id = _run_of(rt, rt.work(item()).receipt_id)
        before = rt.state_hash()
        with pytest.raises(ActumError) as refused:
            rt.workshop.restore(run_id, project / "inner")
        assert refused.value.code == "REPLAY_IN_PROJECT"
        assert rt.state_hash() == before
    assert not (project / "inner").exists()


def test_an_undo_in_a_copy_of_a_project_leaves_the_original_alone(
    project: Path, tmp_path: Path
) -> None:
    add_agent(project, "echo changed > a.txt")
    with opened(project) as rt:
        receipt = rt.work(item()).receipt_id
        left = rt.state_hash()
    copy = tmp_path / "copy"
    shutil.copytree(project, copy, symlinks=True)
    done = _actum(copy, "undo", receipt)
    assert (project / "a.txt").read_text() == "changed\n"
    assert done.returncode == 3, done.stdout + done.stderr
    with opened(project) as rt:
        assert rt.state_hash() == left


def test_recovery_in_a_copy_of_a_project_leaves_the_original_alone(
    project: Path, tmp_path: Path
) -> None:
    """The copy was made between the crash and its recovery; its intent is about another folder."""
    add_agent(project, "echo changed > a.txt; rm d/b.txt")
    _crash(project, _APPLY)
    copy = tmp_path / "copy"
    shutil.copytree(project, copy, symlinks=True)
    assert _actum(project, "item", "hash").returncode == 0
    assert (project / "a.txt").read_text() == "changed\n"
    (project / "a.txt").write_text("edited since\n")
    (project / "d/b.txt").write_text("written since\n")
    _actum(copy, "item", "hash")
    assert (project / "a.txt").read_text() == "edited since\n"
    assert (project / "d/b.txt").read_text() == "written since\n"


def test_a_file_that_was_edited_after_the_crash_is_kept_where_a_folder_must_come(
    project: Path,
) -> None:
    add_agent(project, "rm a.txt; mkdir a.txt; echo x > a.txt/inner")
    _crash(project, _APPLY)
    (project / "a.new").write_text("hours of work\n")
    (project / "a.new").rename(project / "a.txt")  # as editors write
    assert _actum(project, "item", "hash").returncode == 0
    found = [path for path in project.rglob("*") if path.is_file() and not path.is_symlink()]
    assert any(path.read_bytes() == b"hours of work\n" for path in found)


def test_a_loss_back_to_the_last_committed_state_is_damage(project: Path) -> None:
    """The state on record is newer than that of the last commit: files of people came since."""
    add_agent(project, "echo new > new.txt")
    add_agent(project, "echo newer > newer.txt", number=2)
    with opened(project) as rt:
        assert rt.work(item()).status == "success"
    (project / "notes.txt").write_text("mine\n")
    _crash(project, _INTENT, id="work-item-2", agent_id="agent-2")
    (project / "notes.txt").unlink()
    done = _actum(project, "verify", "--all")
    again = _actum(project, "verify", "--all")
    assert "DAMAGED" in done.stdout + again.stdout, done.stdout + again.stdout
