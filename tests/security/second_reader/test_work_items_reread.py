"""Work items read a second time: no folder but the project's own is ever changed, nothing that
people wrote is lost, and nothing that an agent leaves is run on the host."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from actum import Runtime
from actum.contract.model import RunnerKind
from actum.errors import ActumError
from actum.project import create
from actum.work import item_process
from actum.work.work_items import WorkItems, WorkLost
from actum.workspace import commit
from actum.workspace.commit import Step
from actum.workspace.tree import Kind

pytestmark = pytest.mark.sandbox

_ACTUM = (sys.executable, "-P", "-m", "actum.doors.cli.main")
#: Runs in the work item's own process, before its door opens.
_STRUCK = (
    "import os, sys; sys.path[:0] = sys.argv[2:]; from actum.workspace import commit, space\n"
    "def strike(*_): os._exit(9)\n"
    "{function} = strike\n"
    "from actum.doors.work_item_process import main; main()"
)
_APPLY, _INTENT, _KEEP = "commit.apply", "commit.write_intent", "space.Space._keep"


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
        patch.setattr(item_process, "_BOOT", _STRUCK.format(function=function))
        patch.setattr(WorkItems, "_ended", gone)
        with pytest.raises(WorkLost):
            rt.work(item(**more))


def _run_of(rt: Runtime, receipt_id: str) -> str:
    found = rt.work_items.records.of_receipt(receipt_id)
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
            rt.work_items.restore(run_id, project / "inner")
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


def test_a_mounted_file_is_refused_before_anything_is_decided(project: Path) -> None:
    """A name that something is mounted on cannot be replaced: a commit would never end."""
    script = """
        set -e
        mount --bind actum.toml a.txt
        before=$("$@" item hash 2>&1) && exit 90
        code=0; "$@" item run item.json > said 2>&1 || code=$?
        cat said; ls .actum/work/*/ | grep -q intent.json && exit 91
        umount a.txt; exit $code
    """
    add_agent(project, "echo changed > a.txt; echo new > new.txt")
    (project / "item.json").write_text(json.dumps(item()))
    wrapped = ["unshare", "-m", "sh", "-c", script, "sh", *_ACTUM]
    if os.geteuid() != 0:
        wrapped[1:2] = ["-Urm"]
    done = subprocess.run(wrapped, cwd=project, text=True, capture_output=True, check=False)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "a.txt: this is a mount point in the workspace" in done.stdout
    assert (project / "a.txt").read_text() == "alpha\n"
    assert not (project / "new.txt").exists()


def test_a_commit_from_another_file_system_replaces_only_its_own_paths(tmp_path: Path) -> None:
    base = tmp_path / "base"
    base.mkdir()
    (base / ".actum-new-0").write_text("mine")
    with tempfile.TemporaryDirectory(dir="/dev/shm") as elsewhere:
        stage = Path(elsewhere) / "room/new"
        stage.mkdir(parents=True)
        assert stage.stat().st_dev != base.stat().st_dev
        (stage / "0").write_text("new")
        folder = os.open(base, os.O_RDONLY | os.O_DIRECTORY)
        try:
            commit.apply([Step(path=b"a", kind=Kind.FILE, staged="0")], folder, stage)
        finally:
            os.close(folder)
    assert (base / "a").read_text() == "new"
    assert (base / ".actum-new-0").read_text() == "mine"
    assert len(list(base.iterdir())) == 2


def test_a_run_that_was_undone_and_done_again_counts_for_its_dependents(project: Path) -> None:
    add_agent(project, "echo new > new.txt")
    add_agent(project, "echo more > more.txt", number=2)
    with opened(project) as rt:
        undone = rt.work_items.undo(rt.work(item()).receipt_id)
        next_one = item(id="next", agent_id="agent-2", dependencies=["work-item-1"])
        with pytest.raises(ActumError):
            rt.work(next_one)
        rt.work_items.undo(undone.receipt_id)
        assert (project / "new.txt").exists()
        assert rt.work(next_one).status == "success"


def test_a_bind_mount_of_the_project_is_no_place_for_a_replay(
    project: Path, tmp_path: Path
) -> None:
    add_agent(project, "echo new > new.txt")
    with opened(project) as rt:
        run_id = _run_of(rt, rt.work(item()).receipt_id)
    (project / "new.txt").unlink()
    alias = tmp_path / "alias"
    alias.mkdir()
    script = 'mount --bind "$PWD" "$1"; run=$2; alias=$1; shift 2; "$@" item again "$run" "$alias"'
    wrapped = ["unshare", "-m", "sh", "-c", script, "sh", str(alias), run_id, *_ACTUM]
    if os.geteuid() != 0:
        wrapped[1:2] = ["-Urm"]
    done = subprocess.run(wrapped, cwd=project, text=True, capture_output=True, check=False)
    assert not (project / "new.txt").exists()
    assert done.returncode == 3, done.stdout + done.stderr


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads what its owner closed")
@pytest.mark.parametrize(
    "script", ["chmod 0 a.txt", "mkdir x; echo 1 > x/f; chmod 0 x", "rm d/b.txt; chmod 0 d"]
)
def test_a_run_that_closes_files_to_their_owner_is_denied(project: Path, script: str) -> None:
    """Its process has privileges in its user namespace; an undo has none, and could not read."""
    add_agent(project, script)
    with opened(project) as rt:
        before = rt.state_hash()
        result = rt.work(item())
        assert result.status == "denied", result
        assert result.denial_reason is not None
        assert result.denial_reason.startswith("Closed to the owner of the project: ")
        assert rt.state_hash() == before
    assert _actum(project, "doctor").returncode == 0


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads what its owner closed")
def test_a_project_with_a_closed_file_is_refused_by_name(project: Path) -> None:
    add_agent(project, "echo x > new.txt")
    (project / "a.txt").chmod(0)
    done = _actum(project, "item", "hash")
    assert done.returncode == 3
    assert "a.txt cannot be read" in done.stderr
    with opened(project) as rt:
        result = rt.work(item())
    assert (result.status, result.metrics.tool_ops_count) == ("failure", 0)
    (project / "a.txt").chmod(0o600)
    with opened(project) as rt:
        assert rt.work(item()).status == "success"


def test_a_path_that_is_no_utf_8_is_refused_by_name(tmp_path: Path) -> None:
    project = Path(os.fsdecode(os.fsencode(tmp_path) + b"/\xff"))
    create(project, RunnerKind.LOCAL, by="user:tester", date="2026-11-16")
    add_agent(project, "echo x > new.txt")
    with opened(project) as rt, pytest.raises(ActumError) as refused:
        rt.work(item())
    assert refused.value.code == "WORKSPACE_PATH_NOT_UTF8"


def test_a_marker_that_an_agent_leaves_makes_no_project_removable(project: Path) -> None:
    """Agents may use any name. Only where a folder is shows whether it was made to be removed."""
    add_agent(project, "echo > .actum-removable; echo > d/.actum-removable")
    with opened(project) as rt:
        assert rt.work(item()).status == "success"
    for folder in (project, project / "d"):
        done = _actum(project, "item", "clear", str(folder))
        assert (folder / ".actum-removable").exists()
        assert done.returncode == 3, done.stdout + done.stderr
