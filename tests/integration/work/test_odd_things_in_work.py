"""What file systems can hold beside plain files: a work item keeps it, refuses it, or says so."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from .shop import add_agent, item, make_project, opened

pytestmark = pytest.mark.sandbox

_MANY = {"constraints": {"max_files": 20_000, "max_delta_size": 40_000}}


def test_names_of_one_new_file_stay_names_of_one_file(tmp_path: Path) -> None:
    project = make_project(tmp_path / "p")
    add_agent(project, "mkdir d; printf x > one; ln one two; ln one d/three; printf x > apart")
    with opened(project) as rt:
        assert rt.work(item()).status == "success"
    inodes = {name: (project / name).stat().st_ino for name in ("one", "two", "d/three", "apart")}
    assert inodes["one"] == inodes["two"] == inodes["d/three"] != inodes["apart"]
    assert (project / "one").stat().st_nlink == 3


def test_a_write_to_one_name_of_a_file_is_a_change_of_that_name_only(tmp_path: Path) -> None:
    project = make_project(tmp_path / "p", {"one": "old"})
    os.link(project / "one", project / "two")
    add_agent(project, "printf new > one")
    with opened(project) as rt:
        result = rt.work(item())
        assert result.modified_files == (str(project / "one"),)
        assert ((project / "one").read_text(), (project / "two").read_text()) == ("new", "old")
        rt.work_items.undo(result.receipt_id)
        assert (project / "one").read_text() == "old"


@pytest.mark.parametrize("engine", ["overlay", "copy"])
def test_a_pipe_or_socket_that_is_there_stays_there(tmp_path: Path, engine: str) -> None:
    project = make_project(tmp_path / "p")
    os.mkfifo(project / "pipe")
    os.mknod(project / "socket", stat.S_IFSOCK | 0o644)  # `bind` takes no path as long as this
    add_agent(project, "printf x > file")
    add_agent(project, "rm -f pipe; printf y > pipe", number=2)
    with opened(project) as rt:
        result = rt.work_items.run(item(), engine=engine)
        assert result.status == "success", result
        assert result.created_files == (str(project / "file"),)
        denied = rt.work_items.run(item(agent_id="agent-2"), engine=engine)
        assert (denied.status, denied.denial_reason) == (
            "denied",
            "Neither file, folder nor link: pipe",
        )
        rt.work_items.undo(result.receipt_id)
    assert stat.S_ISFIFO((project / "pipe").stat().st_mode)
    assert stat.S_ISSOCK((project / "socket").stat().st_mode)
    assert not (project / "file").exists()


def test_what_is_no_file_is_not_let_in(tmp_path: Path) -> None:
    project = make_project(tmp_path / "p")
    add_agent(project, "mkfifo pipe; printf x > file")
    with opened(project) as rt:
        result = rt.work(item())
    assert (result.status, result.denial_reason) == (
        "denied",
        "Neither file, folder nor link: pipe",
    )
    assert not (project / "file").exists()


def test_ten_thousand_files_the_longest_names_and_the_deepest_path(tmp_path: Path) -> None:
    project = make_project(tmp_path / "p")
    deepest = 4_095 - len(str(project)) - 1
    script = f"""
    mkdir many long; i=0; while [ $i -lt 10000 ]; do printf $i > many/$i; i=$((i+1)); done
    name=$(printf '%0255d' 7); printf l > long/$name; ln -s $name long/link
    step=$(printf '%0100d' 0); left={deepest}
    while [ $left -gt 220 ]; do mkdir $step; cd $step; left=$((left - 101)); done
    printf deep > f
    """
    add_agent(project, script)
    with opened(project) as rt:
        result = rt.work(item(**_MANY))
        assert result.status == "success", (result.error, result.denial_reason)
        assert len(result.created_files) == 10_003
        assert result.output_hash == rt.state_hash()
        assert (project / "long" / ("7".zfill(255))).read_text() == "l"
        deep = next(name for name in result.created_files if len(name) > 3_000)
        assert Path(deep).read_text() == "deep"
        rt.work_items.undo(result.receipt_id)
        assert not (project / "many").exists()
        assert not (project / "0".zfill(100)).exists()
