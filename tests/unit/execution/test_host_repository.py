"""What Actum reads of a repository, and the one question that it asks the user's own git."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from actum.work.replay_script import head_commit
from actum.workspace.host_git import takes_bare_repositories

_COMMIT = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def git(tmp_path: Path) -> Path:
    git = tmp_path / "project" / ".git"
    (git / "refs/heads").mkdir(parents=True)
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    (git / "refs/heads/main").write_text(f"{_COMMIT}\n")
    return git


def test_a_commit_is_read_where_it_is_plain(git: Path) -> None:
    assert head_commit(git.parent) == _COMMIT
    (git / "refs/heads/main").unlink()
    assert head_commit(git.parent) is None
    packed = f"# pack-refs with: peeled\n{'f' * 40} refs/heads/other\n{_COMMIT} refs/heads/main\n"
    (git / "packed-refs").write_text(packed)
    assert head_commit(git.parent) == _COMMIT
    (git / "HEAD").write_text("a" * 64)
    assert head_commit(git.parent) == "a" * 64


@pytest.mark.parametrize("name", ["HEAD", "refs/heads/main"])
def test_no_link_pipe_or_endless_file_is_read(git: Path, tmp_path: Path, name: str) -> None:
    content = (git / name).read_text()
    (git / name).unlink()
    (tmp_path / "elsewhere").write_text(content)
    (git / name).symlink_to(tmp_path / "elsewhere")
    assert head_commit(git.parent) is None
    (git / name).unlink()
    os.mkfifo(git / name)
    assert head_commit(git.parent) is None
    (git / name).unlink()
    with (git / name).open("w") as file:
        file.write(content)
        file.truncate(1 << 40)
    assert head_commit(git.parent) is None


@pytest.mark.parametrize("ref", ["../../elsewhere", "/elsewhere", "refs/../../../elsewhere"])
def test_a_reference_leads_out_of_no_repository(git: Path, tmp_path: Path, ref: str) -> None:
    (tmp_path / "elsewhere").write_text(_COMMIT)
    (git / "HEAD").write_text(f"ref: {ref.replace('/elsewhere', f'{tmp_path}/elsewhere')}\n")
    assert head_commit(git.parent) is None
    (git / "HEAD").write_text(f"ref: {ref}\n")
    assert head_commit(git.parent) is None


def test_the_question_is_about_the_user_and_not_about_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    for command in (
        ("init", "-q"),
        ("config", "safe.bareRepository", "explicit"),
        ("config", "include.path", str(tmp_path / "included")),
    ):
        subprocess.run(["git", *command], cwd=project, check=True)
    planted = project / "git"
    planted.write_text(f"#!/bin/sh\n: > {tmp_path}/canary\n")
    planted.chmod(0o755)
    monkeypatch.chdir(project)
    monkeypatch.setenv("PATH", f"{project}:{os.environ['PATH']}")
    monkeypatch.setenv("GIT_DIR", str(project / ".git"))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "global"))
    (tmp_path / "global").write_text("")
    assert takes_bare_repositories()
    (tmp_path / "global").write_text("[safe]\n\tbareRepository = explicit\n")
    assert not takes_bare_repositories()
    (tmp_path / "global").write_text("[safe]\n\tbareRepository = all\n")
    assert takes_bare_repositories()
    assert not (tmp_path / "canary").exists()
    subprocess.run(["git", "status"], check=True)
    assert (tmp_path / "canary").exists()
