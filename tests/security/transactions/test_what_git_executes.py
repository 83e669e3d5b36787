"""Every way that was found to make the host's git execute a file, one by one.

Each is held back, and executes nothing meanwhile. The control of each: committed by a person, it
does execute. What git does not execute is committed at once, and its control is that git runs.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from actum.evidence.records.audit import Decision
from actum.value import value
from hostile.jail import Jail

pytestmark = pytest.mark.sandbox

_SCRIPT = 'printf \'#!/bin/sh\\ntouch "%s"\\n\' "$1" > FILE; chmod +x FILE'
#: A filter has to give back what it reads, or git stops.
_FILTER = 'printf \'#!/bin/sh\\ntouch "%s"\\ncat "$@"\\n\' "$1" > FILE; chmod +x FILE'
_MONITORS = '[core]\\n\\trepositoryformatversion = 0\\n\\tfsmonitor = \\"touch %s; false\\"\\n'
_MONITOR = f'printf "{_MONITORS}" "$1"'


@value(kw_only=False)
class Way:
    """How a tool plants it, with the canary as $1, and what on the host executes it."""

    plant: str
    trigger: str
    before: str = ""  #: what the project's people have set up before
    once: bool = False  #: the trigger itself makes what the tool plants


def script(file: str) -> str:
    return _SCRIPT.replace("FILE", file)


def filter_at(file: str) -> str:
    return _FILTER.replace("FILE", file)


_STATUS = "touch tracked; git status"
_COMMIT = "git commit -q --allow-empty -m x"
_BARE = (
    "cp -r .git/objects .git/refs .git/index .; echo 'ref: refs/heads/main' > HEAD;"
    f" {_MONITOR} > config; printf '\\tbare = false\\n\\tworktree = .\\n' >> config"
)
_REBASE = (
    "mkdir .git/rebase-merge; cd .git/rebase-merge; git rev-parse HEAD | tee orig-head onto;"
    ' echo "exec touch $1" > git-rebase-todo; : > done; echo 0 > msgnum; echo 1 > end;'
    " echo refs/heads/main > head-name; : > interactive"
)

WAYS: dict[str, Way] = {
    "core.fsmonitor": Way(f"{_MONITOR} > .git/config", "git status"),
    "hooks/pre-commit": Way(script(".git/hooks/pre-commit"), _COMMIT),
    "hooks/post-index-change": Way(script(".git/hooks/post-index-change"), _STATUS),
    "commondir": Way(
        f"cp -r .git other; {_MONITOR} > other/config; echo ../other > .git/commondir",
        "git status",
    ),
    "config.worktree": Way(
        f"{_MONITOR} > .git/config.worktree",
        "git status",
        before="git config extensions.worktreeConfig true",
    ),
    "worktrees/x/commondir": Way(
        f"cp -r .git other; {_MONITOR} > other/config;"
        " echo ../../../other > .git/worktrees/tree/commondir",
        "cd ../tree && git status",
        before="git worktree add -q ../tree",
    ),
    "modules/sub/config": Way(
        'cp .git/modules/sub/config c; printf \'[core]\\n\\tfsmonitor = "touch %s; false"\\n\' "$1"'
        " >> c; mv c .git/modules/sub/config",
        "git status",
    ),
    "a module that is not initialised": Way(
        "cp -r .git/modules/sub .git/modules/later;"
        + script(".git/modules/later/hooks/post-checkout"),
        "git -c protocol.file.allow=always submodule update --init later",
        before="git -c protocol.file.allow=always submodule --quiet add ../source later;"
        " git commit -qm later; git submodule --quiet deinit -f later; rm -rf .git/modules/later",
        once=True,
    ),
    "a repository in a subfolder": Way(
        f"git init -q nested; {_MONITOR} > nested/.git/config", "cd nested && git status"
    ),
    "a repository in a subfolder that the tool has committed as a submodule": Way(
        "git init -q nested; git -C nested -c user.name=t -c user.email=t@t commit -q --allow-empty"
        f" -m x; git add nested; git commit -qm nested; {_MONITOR} > nested/.git/config",
        "git status",
    ),
    "a bare repository in a subfolder": Way(
        f"mkdir data; cp -r .git data/git; mv data/git/* data; {_MONITOR} > data/config;"
        " printf '\\tbare = false\\n\\tworktree = .\\n' >> data/config",
        "cd data && git status",
    ),
    ".git/HEAD removed, and the root a bare repository": Way(
        f"{_BARE}; rm .git/HEAD", "git status"
    ),
    ".git/refs removed, and the root a bare repository": Way(
        f"{_BARE}; rm -r .git/refs", "git status"
    ),
    "a gitfile in the place of .git": Way(
        f"cp -r .git other; {_MONITOR} > other/config; rm -rf .git; echo gitdir: other > .git",
        "git status",
    ),
    "a rebase that is continued": Way(_REBASE, "git rebase --continue"),
    "info/attributes that choose an existing textconv": Way(
        "mkdir -p .git/info; echo 'tracked diff=shown' > .git/info/attributes",
        "git log -p",
        before="git config diff.shown.textconv 'touch CANARY; cat'",
    ),
    "info/attributes that choose an existing merge driver": Way(
        "mkdir -p .git/info; echo 'tracked merge=mine' > .git/info/attributes",
        "git merge --abort; git merge side",
        before="git config merge.mine.driver 'touch CANARY; false';"
        " git switch -qc side; echo s > tracked; git commit -qam s;"
        " git switch -q -; echo m > tracked; git commit -qam m",
    ),
    # What the configuration names.
    "core.hooksPath": Way(
        f"mkdir -p .hooks; {script('.hooks/pre-commit')}",
        _COMMIT,
        before="git config core.hooksPath .hooks",
    ),
    "core.hooksPath, the whole work tree": Way(
        script("pre-commit"), _COMMIT, before='git config core.hooksPath "$PWD"'
    ),
    "core.hooksPath, absolute": Way(
        f"mkdir -p deep/hooks; {script('deep/hooks/pre-commit')}",
        _COMMIT,
        before='git config core.hooksPath "$PWD/deep/hooks"',
    ),
    "core.hooksPath, by a link to a folder": Way(
        f"mkdir evil; {script('evil/pre-commit')}; ln -s evil .hooks",
        _COMMIT,
        before="git config core.hooksPath .hooks/",
    ),
    "a hook that is a link to a script of the project": Way(
        f"mkdir -p scripts; {script('scripts/check.sh')}",
        _COMMIT,
        before="mkdir scripts; echo : > scripts/check.sh;"
        " ln -s ../../scripts/check.sh .git/hooks/pre-commit",
    ),
    "include.path": Way(
        f"{_MONITOR} > shared.config",
        "git status",
        before="git config include.path ../shared.config",
    ),
    "include.path of an included file": Way(
        f"{_MONITOR} > second.config",
        "git status",
        before="printf '[include]\\n\\tpath = second.config\\n' > first.config;"
        " git config include.path ../first.config",
    ),
    "includeIf": Way(
        f"{_MONITOR} > main.config",
        "git status",
        before="git config includeIf.onbranch:main.path ../main.config",
    ),
    "filter.*.clean": Way(
        filter_at("clean.sh"),
        "echo new > tracked; git add tracked",
        before="git config filter.f.clean ./clean.sh; echo '* filter=f' > .git/info/attributes",
    ),
    "filter.*.smudge with an interpreter": Way(
        filter_at("tools.d/smudge.sh").replace("printf", "mkdir -p tools.d; printf", 1),
        "rm tracked; git checkout tracked",
        before="git config filter.f.smudge 'sh tools.d/smudge.sh'; mkdir -p .git/info;"
        " echo '* filter=f' > .git/info/attributes",
    ),
    "diff.*.textconv": Way(
        filter_at("conv"),
        "git log -p",
        before="git config diff.f.textconv ./conv; mkdir -p .git/info;"
        " echo '* diff=f' > .git/info/attributes",
    ),
    "diff.external": Way(
        script("differ"),
        "echo new > tracked; git diff",
        before="git config diff.external ./differ",
    ),
    "core.fsmonitor that is a file": Way(
        script("monitor"), "git status", before="git config core.fsmonitor ./monitor"
    ),
    "core.editor": Way(
        script("edit"), "git commit --allow-empty", before="git config core.editor ./edit"
    ),
    "an alias": Way(script("run.sh"), "git check", before="git config alias.check '!sh run.sh'"),
    "an alias that finds the work tree itself": Way(
        f"mkdir -p bin; {script('bin/run')}",
        "git check",
        before="git config alias.check '!\"$(git rev-parse --show-toplevel)/bin/run\"'",
    ),
    "an alias that changes the folder": Way(
        f"mkdir -p bin; {script('bin/run')}",
        "git check",
        before="git config alias.check '!cd bin && ./run'",
    ),
    "gpg.program": Way(
        script("sign"),
        "git commit -q --allow-empty -S -m x",
        before="git config gpg.program ./sign; git config user.signingKey x",
    ),
    "credential.helper": Way(
        script("helper"),
        "printf 'protocol=https\\nhost=h\\n\\n' | GIT_TERMINAL_PROMPT=0 git credential fill",
        before="git config credential.helper '!./helper'",
    ),
    "init.templateDir": Way(
        f"mkdir -p template/hooks; {script('template/hooks/post-commit')}",
        "git init -q ../made; cd ../made; git -c user.name=t -c user.email=t@t commit -q"
        " --allow-empty -m x",
        before='git config --global init.templateDir "$PWD/template"',
    ),
    "core.hooksPath of the user": Way(
        f"mkdir -p .hooks; {script('.hooks/pre-commit')}",
        _COMMIT,
        before="git config --global core.hooksPath .hooks",
    ),
    "the user's configuration, a link into the project": Way(
        'printf "[core]\\n\\tfsmonitor = \\"touch %s; false\\"\\n" "$1" > dot.gitconfig',
        "git status",
        before="cp ~/.gitconfig dot.gitconfig; ln -sf $PWD/dot.gitconfig ~/.gitconfig",
    ),
    "core.hooksPath of a submodule": Way(
        f"mkdir -p sub/.hooks; {script('sub/.hooks/pre-commit')}",
        f"cd sub && git -c user.name=t -c user.email=t@t {_COMMIT.removeprefix('git ')}",
        before="git -C sub config core.hooksPath .hooks",
    ),
    "core.hooksPath of another work tree": Way(
        f"mkdir -p tree/.hooks; {script('tree/.hooks/pre-commit')}",
        f"cd tree && {_COMMIT}",
        before="git worktree add -q tree; git config extensions.worktreeConfig true;"
        " git -C tree config --worktree core.hooksPath .hooks",
    ),
}

#: Changes that git does not execute, and a command of the host that would.
HARMLESS: dict[str, tuple[str, str]] = {
    "a remote of the old kind": (
        "mkdir -p .git/remotes; printf 'URL: ext::touch %s\\n' \"$1\" > .git/remotes/foo",
        "git fetch foo",
    ),
    "alternates": (
        "mkdir -p .git/objects/info; echo /nowhere > .git/objects/info/alternates",
        "git status",
    ),
    "a hook in a folder that no configuration names": (
        f"mkdir -p .hooks; {script('.hooks/pre-commit')}",
        _COMMIT,
    ),
}


@pytest.fixture
def repository(own_jail: Jail, monkeypatch: pytest.MonkeyPatch) -> Jail:
    """A project in git with a submodule, and a user with an empty configuration."""
    home = own_jail.elsewhere / "user"
    home.mkdir()
    (home / ".gitconfig").write_text("[user]\n\tname = t\n\temail = t@t\n")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    source = own_jail.root.parent / "source"
    _host(
        own_jail.root,
        f"git init -q -b main {source}; git -C {source} commit -q --allow-empty -m x;"
        " git init -q -b main .; echo x > tracked; git add tracked;"
        " mkdir -p .git/hooks .git/info; git config user.name t; git config user.email t@t;"
        f" git -c protocol.file.allow=always submodule --quiet add {source} sub;"
        " git commit -qm first",
    )
    return own_jail


def _host(folder: Path, text: str) -> None:
    subprocess.run(["/bin/sh", "-ec", text], cwd=folder, check=True, capture_output=True)


def _try(jail: Jail, trigger: str) -> None:
    jail.outside(f"{{ {trigger}; }} >/dev/null 2>&1; true", cwd=jail.root)


@pytest.mark.parametrize("way", WAYS)
def test_it_is_held_and_the_host_executes_it_only_when_a_person_has_committed_it(
    repository: Jail, way: str
) -> None:
    it = WAYS[way]
    canary = repository.elsewhere / "canary"
    _host(repository.root, it.before.replace("CANARY", str(canary)) or ":")
    result = repository.sh(f"set -e; {it.plant}", str(canary), cwd=repository.root)
    assert result.ok, result.result
    assert result.workspace is not None
    assert result.workspace.state == "held", result.workspace
    if not it.once:
        _try(repository, it.trigger)
    assert not canary.exists()
    runtime = repository.runtime
    request = runtime.approvals.decide(
        result.workspace.request_id, Decision.ALLOW, by="user:boss", why="control"
    )
    if runtime.transactions.approved(request) == "conflict":  # the host's git has written there
        kept = runtime.transactions.find(result.execution_id)
        assert runtime.transactions.decide(kept, commit=True, over=True) == "committed"
    _try(repository, it.trigger)
    assert canary.exists()


@pytest.mark.parametrize("what", HARMLESS)
def test_what_git_does_not_execute_is_committed(repository: Jail, what: str) -> None:
    plant, trigger = HARMLESS[what]
    canary = repository.elsewhere / "canary"
    result = repository.sh(plant, str(canary), cwd=repository.root)
    assert result.workspace is not None
    assert result.workspace.state == "committed", result.workspace
    _try(repository, trigger)
    assert not canary.exists()
    _host(repository.root, "git rev-parse HEAD")


def test_an_update_command_in_gitmodules_is_held_though_git_refuses_it(repository: Jail) -> None:
    canary = repository.elsewhere / "canary"
    plant = 'git config -f .gitmodules submodule.sub.update "!touch $1"'
    result = repository.sh(plant, str(canary), cwd=repository.root)
    assert result.workspace is not None
    assert result.workspace.state == "held"


def test_a_configuration_that_is_none_closes_its_work_tree(repository: Jail) -> None:
    """Nothing is known of what it names then; git itself runs nothing with it."""
    (repository.root / "broken").write_text("[core\n")
    before = repository.sh("echo x > file", cwd=repository.root)
    assert before.workspace is not None
    assert before.workspace.state == "committed"
    _host(repository.root, "printf '[include]\\n\\tpath = ../broken\\n' >> .git/config")
    after = repository.sh("echo y > file", cwd=repository.root)
    assert after.workspace is not None
    assert after.workspace.state == "held"
    assert after.workspace.why == (str(repository.root / "file"),)


def test_git_is_never_run(
    repository: Jail, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    (programs / "git").write_text(f"#!/bin/sh\n: > {tmp_path}/ran\n")
    (programs / "git").chmod(0o755)
    monkeypatch.setenv("PATH", str(programs))
    subprocess.run(["git"], check=True)  # the control
    (tmp_path / "ran").unlink()
    result = repository.sh("echo x > file", cwd=repository.root)
    assert result.workspace is not None
    assert result.workspace.state == "committed"
    assert not (tmp_path / "ran").exists()
