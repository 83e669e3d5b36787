"""Git that Actum itself starts on the host executes nothing that a repository says.

Each `Plant` is one way in which a repository makes git on the host run a command. The positive
control is git as a person starts it: there, the command runs.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from actum import Runtime
from actum.contract.model import RunnerKind
from actum.project import create
from actum.work.replay_script import head_commit

pytestmark = pytest.mark.sandbox

_ACTUM = (sys.executable, "-P", "-m", "actum.doors.cli.main")
_GIT = ("git", "-c", "user.name=t", "-c", "user.email=t@t", "-c", "protocol.file.allow=always")
_ENVIRONMENT = {
    **{name: text for name, text in os.environ.items() if not name.startswith("GIT_")},
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_EDITOR": "true",
}


@dataclass(frozen=True)
class Repository:
    root: Path
    canaries: Path

    def git(self, *words: str, at: str = ".", check: bool = True) -> None:
        done = subprocess.run(
            [*_GIT, *words], cwd=self.root / at, env=_ENVIRONMENT, capture_output=True, text=True
        )
        assert not check or done.returncode == 0, (words, done.stderr)

    def commit(self, *names: str, at: str = ".") -> None:
        self.git("add", "--", *(names or (".",)), at=at)
        self.git("commit", "-q", "-m", "more", at=at)

    def canary(self, name: str) -> str:
        """A command for git: an absolute path of a program that leaves a file."""
        program = self.canaries / f"run-{name}"
        self.program(program, name)
        return str(program)

    def program(self, at: Path, name: str) -> None:
        at.parent.mkdir(parents=True, exist_ok=True)
        at.write_text(f"#!/bin/sh\n: > {self.canaries}/sung-{name}\nexec cat\n")
        at.chmod(0o755)

    def configure(self, key: str, value: str, *, file: str = ".git/config") -> None:
        self.git("config", "--file", file, key, value)

    def sung(self) -> set[str]:
        return {each.name.removeprefix("sung-") for each in self.canaries.glob("sung-*")}


def _fsmonitor(repository: Repository) -> None:
    repository.configure("core.fsmonitor", repository.canary("fsmonitor"))


def _hooks(repository: Repository) -> None:
    for name in ("pre-commit", "post-index-change", "post-checkout", "reference-transaction"):
        repository.program(repository.root / ".git/hooks" / name, "hooks")


def _hooks_in_the_tree(repository: Repository) -> None:
    repository.program(repository.root / "hooks/post-checkout", "hooks_in_the_tree")
    repository.configure("core.hooksPath", "hooks")


def _elsewhere(repository: Repository, name: str) -> Path:
    """Another repository, whose configuration runs a command."""
    other = repository.canaries / f"other-{name}"
    repository.git("clone", "-q", "--no-hardlinks", ".", str(other))
    repository.configure("core.fsmonitor", repository.canary(name), file=str(other / ".git/config"))
    return other


def _commondir(repository: Repository) -> None:
    other = _elsewhere(repository, "commondir")
    (repository.root / ".git/commondir").write_text(f"{other}/.git\n")


def _gitfile(repository: Repository) -> None:
    other = _elsewhere(repository, "gitfile")
    (repository.root / ".git").rename(repository.canaries / "moved")
    (repository.root / ".git").write_text(f"gitdir: {other}/.git\n")


def _worktree_configuration(repository: Repository) -> None:
    repository.configure("core.repositoryFormatVersion", "1")
    repository.configure("extensions.worktreeConfig", "true")
    repository.configure(
        "core.fsmonitor",
        repository.canary("worktree_configuration"),
        file=".git/config.worktree",
    )


def _worktree(repository: Repository) -> None:
    repository.git("worktree", "add", "-q", "--detach", str(repository.canaries / "tree"))
    other = _elsewhere(repository, "worktree")
    (repository.root / ".git/worktrees/tree/commondir").write_text(f"{other}/.git\n")


def _submodule(repository: Repository) -> None:
    other = repository.canaries / "module"
    repository.git("init", "-q", str(other))
    (other / "file").write_text("in the module")
    repository.commit(at=str(other))
    repository.git("submodule", "--quiet", "add", str(other), "sm")
    repository.commit(".gitmodules", "sm")
    configuration = ".git/modules/sm/config"
    repository.configure("core.fsmonitor", repository.canary("submodule"), file=configuration)


def _submodule_that_is_not_there_yet(repository: Repository) -> None:
    _submodule(repository)
    repository.git("submodule", "--quiet", "deinit", "--force", "sm")


def _nested(repository: Repository) -> None:
    repository.git("init", "-q", "nested")
    canary = repository.canary("nested")
    repository.configure("core.fsmonitor", canary, file="nested/.git/config")


def _gitlink(repository: Repository) -> None:
    repository.git("init", "-q", "linked")
    (repository.root / "linked/file").write_text("in it")
    repository.commit(at="linked")
    repository.commit("linked")
    canary = repository.canary("gitlink")
    repository.configure("core.fsmonitor", canary, file="linked/.git/config")


def _make_bare(repository: Repository, folder: Path, name: str) -> None:
    for part in ("objects", "refs"):
        (folder / part).mkdir(parents=True)
    (folder / "HEAD").write_text("ref: refs/heads/main\n")
    file = str(folder / "config")
    repository.configure("core.repositoryFormatVersion", "0", file=file)
    repository.configure("core.worktree", str(folder), file=file)
    repository.configure("core.fsmonitor", repository.canary(name), file=file)


def _bare(repository: Repository) -> None:
    _make_bare(repository, repository.root / "bare", "bare")


def _bare_root(repository: Repository) -> None:
    (repository.root / ".git/HEAD").unlink()
    _make_bare(repository, repository.root, "bare_root")


def _rebase(repository: Repository) -> None:
    (repository.root / "rebased").write_text("x")
    repository.commit("rebased")
    repository.git("-c", "sequence.editor=sed -i '1i break'", "rebase", "-q", "-i", "HEAD~1")
    todo = repository.root / ".git/rebase-merge/git-rebase-todo"
    todo.write_text(f"exec {repository.canary('rebase')} < /dev/null\n")


def _filters(repository: Repository) -> None:
    (repository.root / ".gitattributes").write_text("filtered filter=f\n")
    (repository.root / "filtered").write_text("content")
    repository.commit(".gitattributes", "filtered")
    for verb in ("clean", "smudge"):
        repository.configure(f"filter.f.{verb}", repository.canary("filters"))
    repository.configure("filter.f.required", "true")


def _included(repository: Repository) -> None:
    repository.configure("core.fsmonitor", repository.canary("included"), file="in-tree.config")
    repository.configure("include.path", "../in-tree.config")


def _textconv(repository: Repository) -> None:
    repository.configure("diff.converted.textconv", repository.canary("textconv"))
    (repository.root / ".git/info/attributes").write_text("* diff=converted\n")


def _merge_driver(repository: Repository) -> None:
    repository.git("checkout", "-q", "-b", "side")
    (repository.root / "file").write_text("two sides")
    repository.commit("file")
    repository.git("checkout", "-q", "main")
    (repository.root / "file").write_text("to one thing")
    repository.commit("file")
    repository.configure("merge.driven.driver", repository.canary("merge_driver"))
    (repository.root / ".git/info/attributes").write_text("* merge=driven\n")


@dataclass(frozen=True)
class Plant:
    plant: Callable[[Repository], None]
    host: tuple[str, ...]  #: what a person says to git
    at: str = "."

    @property
    def name(self) -> str:
        return self.plant.__name__.strip("_")


#: The replay script of earlier versions said the last words.
_WORKTREE = ("worktree", "add", "--detach", "../canaries/new")
_PLANTS = (
    Plant(_fsmonitor, ("status",)),
    Plant(_hooks, ("commit", "--allow-empty", "-m", "x")),
    Plant(_hooks, _WORKTREE),
    Plant(_hooks_in_the_tree, _WORKTREE),
    Plant(_commondir, ("status",)),
    Plant(_gitfile, ("status",)),
    Plant(_worktree_configuration, ("status",)),
    Plant(_worktree, ("status",), at="../canaries/tree"),
    Plant(_submodule, ("status",)),
    Plant(_submodule_that_is_not_there_yet, ("submodule", "update", "--init")),
    Plant(_nested, ("status",), at="nested"),
    Plant(_gitlink, ("status",)),
    Plant(_bare, ("status",), at="bare"),
    Plant(_bare_root, ("status",)),
    Plant(_rebase, ("rebase", "--continue")),
    Plant(_filters, _WORKTREE),
    Plant(_included, ("status",)),
    Plant(_textconv, ("log", "-p")),
    Plant(_merge_driver, ("merge", "side")),
)
#: Several at once, in an order in which each can still be planted.
_TOGETHER: dict[str, tuple[Callable[[Repository], None], ...]] = {
    "configuration": (
        *(_gitlink, _submodule, _worktree, _merge_driver, _textconv, _nested, _bare, _rebase),
        *(_filters, _worktree_configuration, _included, _fsmonitor, _hooks),
    ),
    "hooks in the tree": (_submodule_that_is_not_there_yet, _hooks_in_the_tree),
    "commondir": (_commondir,),
    "bare root": (_bare_root,),
    "gitfile": (_gitfile,),
}


def _repository(folder: Path) -> Repository:
    (folder / "canaries").mkdir()
    repository = Repository(folder / "project", folder / "canaries")
    repository.root.mkdir(exist_ok=True)
    repository.git("init", "-q", "--initial-branch=main")
    (repository.root / "file").write_text("content\n")
    repository.commit("file")
    return repository


@pytest.mark.parametrize("plant", _PLANTS, ids=lambda plant: f"{plant.name} {plant.host[0]}")
def test_git_as_a_person_starts_it_runs_the_command(tmp_path: Path, plant: Plant) -> None:
    repository = _repository(tmp_path)
    plant.plant(repository)
    for each in repository.canaries.glob("sung-*"):
        each.unlink()
    os.utime(repository.root / "file", (1, 1))
    repository.git(*plant.host, at=plant.at, check=False)
    assert repository.sung()


@pytest.mark.req("002-65")
@pytest.mark.parametrize("together", _TOGETHER)
def test_actum_runs_none_of_them(tmp_path: Path, together: str) -> None:
    project = tmp_path / "project"
    create(project, RunnerKind.LOCAL, by="user:tester", date="2026-11-16")
    (project / "agents").mkdir()
    steps = [{"tool": "shell", "stdin": "cat file file > twice"}]
    agent = {"agent_id": "agent-1", "steps": steps}
    (project / "agents/agent-1.yaml").write_text(yaml.safe_dump(agent))
    repository = _repository(tmp_path)
    for plant in _TOGETHER[together]:
        plant(repository)
    before = sorted(repository.root.glob(".git/**/*"))
    for each in repository.canaries.glob("sung-*"):
        each.unlink()

    item = {"id": "i", "agent_id": "agent-1", "description": "Some work", "dependencies": []}
    with Runtime.open(project, pool=False) as runtime:
        result = runtime.work(item)
        assert result.status == "success", result
        assert result.proof_script is not None
        assert runtime.exec("git", "status", "--short", cwd=project).result is not None
    replayed = _on_the_host(project, result.proof_script)
    assert "Replay successful" in replayed
    _on_the_host(project, *_ACTUM, "doctor")

    assert repository.sung() == set()
    assert sorted(repository.root.glob(".git/**/*")) == before
    plain = head_commit(project) is not None
    assert plain == (together not in ("bare root", "gitfile"))
    assert ("git checkout" in Path(result.proof_script).read_text()) == plain
    assert "Note:" not in replayed


def _on_the_host(folder: Path, *words: str) -> str:
    environment = {**os.environ, "GIT_DIR": str(folder / ".git")}  # as in a hook of git
    done = subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr
