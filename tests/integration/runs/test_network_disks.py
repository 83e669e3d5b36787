"""A project on a file system that may be a network's has no durable runs.

The kernel cannot tell what is behind FUSE, so a real FUSE mount is refused as sshfs would be.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from acceptance.terminal import Terminal

from .runs_project import make_project, work_file

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="a FUSE mount of another process needs root"),
    pytest.mark.skipif(shutil.which("bindfs") is None, reason="bindfs is not installed"),
]


@pytest.fixture
def mounted(tmp_path: Path) -> Iterator[Path]:
    """The same folder through FUSE."""
    make_project(tmp_path / "disk/project")
    (tmp_path / "disk/project/work.yaml").write_text(work_file())
    (tmp_path / "fuse").mkdir()
    subprocess.run(["bindfs", tmp_path / "disk", tmp_path / "fuse"], check=True)
    try:
        yield tmp_path / "fuse/project"
    finally:
        subprocess.run(["umount", "-l", tmp_path / "fuse"], check=True)


def test_runs_of_a_project_on_fuse_are_refused(mounted: Path, tmp_path: Path) -> None:
    through, disk = Terminal(mounted), Terminal(tmp_path / "disk/project")
    run_id = disk.actum("runs", "submit", "work.yaml").text.strip()
    for words in (
        ("runs", "submit", "work.yaml"),
        ("runs", "continue", run_id),
        ("runs", "submit", "work.yaml", "--wait"),
        ("worker", "--once"),
        ("worker",),
    ):
        said = through.actum(*words)
        assert said.code == 3, (words, said)
        assert "RUNS_NEED_LOCAL_DISK" in said.aside
        assert str(mounted) in said.aside
    # The control: the same home on its own disk has the one run, and carries it out.
    runs = disk.json("runs", "list").json["runs"]
    assert [(run["runId"], run["status"]) for run in runs] == [(run_id, "queued")]
    assert disk.actum("worker", "--once").code == 0
    assert disk.json("runs", "list").json["runs"][0]["status"] == "complete"
