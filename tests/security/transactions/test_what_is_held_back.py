"""Names that decide what is executed later never reach the host without a person's word.

Each chain ended with a program of the tool's being run on the host, by Actum or by git. In every
one the tool succeeds inside; the host's files stay as they were, and the changes wait.
"""

from __future__ import annotations

import os
import subprocess
import threading
from pathlib import Path

import pytest

from actum.errors import Refused
from actum.evidence.records.audit import Decision
from hostile.jail import Jail

pytestmark = pytest.mark.sandbox

_HOOK = 'printf \'#!/bin/sh\\ntouch "%s"\\n\' "$1" > HOOK; chmod +x HOOK'
_MONITOR = '[core]\\n\\trepositoryformatversion = 0\\n\\tfsmonitor = \\"touch %s; false\\"\\n'
_BARE = (
    "mkdir -p DIR; cp -r .git/objects .git/refs .git/HEAD .git/index DIR/;"
    f' printf "{_MONITOR}\\tbare = false\\n\\tworktree = .\\n" "$1" > DIR/config'
)

#: How a tool plants it (with the canary as $1), and what on the host would execute it.
CHAINS: dict[str, tuple[str, str]] = {
    "a hook": (_HOOK.replace("HOOK", ".git/hooks/pre-commit"), "git commit -q --allow-empty -m x"),
    "a hook that status runs": (
        _HOOK.replace("HOOK", ".git/hooks/post-index-change"),
        "touch tracked; git status",
    ),
    "the configuration": (f'printf "{_MONITOR}" "$1" > .git/config', "git status"),
    "the configuration, renamed over": (
        f'printf "{_MONITOR}" "$1" > c; mv c .git/config',
        "git status",
    ),
    "a common directory": (
        f'cp -r .git o; printf "{_MONITOR}" "$1" > o/config; echo ../o > .git/commondir',
        "git status",
    ),
    "a submodule's configuration": (
        f'printf "{_MONITOR}" "$1" > .git/modules/sub/config',
        "git status",
    ),
    "a module that is not initialised yet": (
        "cp -r .git/modules/sub .git/modules/later;"
        + _HOOK.replace("HOOK", ".git/modules/later/hooks/post-checkout"),
        "",
    ),
    "a gitfile in place of the directory": (
        f'cp -r .git e; printf "{_MONITOR}" "$1" > e/config; rm -rf .git; echo gitdir: e > .git',
        "git status",
    ),
    "the root as a bare repository": (f"{_BARE.replace('DIR', '.')}; rm .git/HEAD", "git status"),
    "a bare repository without the name": (
        _BARE.replace("DIR", "data"),
        "cd data && git status",
    ),
    "a repository in a subfolder": (
        f'git init -q nested; printf "{_MONITOR}" "$1" > nested/.git/config',
        "cd nested && git status",
    ),
    "a rebase to be continued": (
        'mkdir .git/rebase-merge; echo "exec touch $1" > .git/rebase-merge/git-rebase-todo',
        "",
    ),
    "attributes": ("mkdir -p .git/info; echo '* filter=x' > .git/info/attributes", ""),
    "an agent": ("mkdir -p agents; echo x > agents/agent-1.yaml", ""),
    "an executor": ("mkdir -p executors; echo x > executors/x.py", ""),
    "a tool": ("mkdir tools/evil; echo x > tools/evil/tool.yaml", ""),
    "the settings": ("echo >> actum.toml", ""),
    "the settings, renamed over": ("cp actum.toml x; echo >> x; mv x actum.toml", ""),
    "the lock": ("echo >> tools.lock", ""),
    "a rule": ("echo x > rules/evil", ""),
    "another project": ("mkdir -p sub2/.actum; echo x > sub2/.actum/key", ""),
    "an editor's tasks": ("mkdir .vscode; echo '{}' > .vscode/tasks.json", ""),
    "a shell's environment": ("echo 'touch /x' > .envrc", ""),
    "a workflow": ("mkdir -p .github/workflows; echo x > .github/workflows/ci.yml", ""),
}


@pytest.fixture
def repository(own_jail: Jail) -> Jail:
    def git(*words: str) -> None:
        subprocess.run(
            ["git", "-c", "protocol.file.allow=always", *words], cwd=own_jail.root, check=True
        )

    source = own_jail.elsewhere / "source"
    for folder in (source, own_jail.root):
        subprocess.run(["git", "init", "-q", folder], check=True)
        for name, text in (("user.name", "t"), ("user.email", "t@t")):
            subprocess.run(["git", "-C", folder, "config", name, text], check=True)
    subprocess.run(["git", "-C", source, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
    (own_jail.root / "tracked").write_text("x")
    git("add", "tracked")
    git("submodule", "--quiet", "add", str(source), "sub")
    git("commit", "-q", "-m", "first")
    return own_jail


@pytest.mark.parametrize("chain", CHAINS)
def test_it_is_held_and_nothing_of_it_is_on_the_host(repository: Jail, chain: str) -> None:
    plant, trigger = CHAINS[chain]
    canary = repository.elsewhere / "canary"
    before = _listing(repository.root)
    result = repository.sh(plant, str(canary), cwd=repository.root)
    assert result.ok, result.result
    assert result.workspace is not None
    assert result.workspace.state == "held", result.workspace
    assert result.workspace.request_id
    assert _listing(repository.root) == before
    if trigger:
        repository.outside(f"{{ {trigger}; }} >/dev/null 2>&1; true", cwd=repository.root)
        assert not canary.exists()
        # The control: once a person has let it in, the host does execute it.
        repository.runtime.approvals.decide(
            result.workspace.request_id, Decision.ALLOW, by="user:boss", why="control"
        )
        request = repository.runtime.approvals.find(result.workspace.request_id)
        transactions = repository.runtime.transactions
        if transactions.approved(request) == "conflict":  # the host's git has written its index
            kept = transactions.find(result.execution_id)
            assert transactions.decide(kept, commit=True, over=True) == "committed"
        repository.outside(f"{{ {trigger}; }} >/dev/null 2>&1; true", cwd=repository.root)
        assert canary.exists()


EVERYDAY = {
    "add and commit": "echo y > new; git add new; git commit -q -m second; git log --oneline",
    "branch": "git branch other; git switch -q other; echo z > z; git add z; git commit -q -m z",
    "stash": "echo changed > tracked; git stash -q; git stash pop -q",
    "rebase": (
        "git switch -q -c topic; echo t > t; git add t; git commit -q -m t;"
        " git switch -q -; echo m > m; git add m; git commit -q -m m; git rebase -q HEAD topic"
    ),
    "merge": (
        "git switch -q -c side; echo s > s; git add s; git commit -q -m s;"
        " git switch -q -; git merge -q --no-ff -m merged side"
    ),
    "tag, reset and cherry-pick": (
        "git tag v1; echo a > a; git add a; git commit -q -m a; git reset -q --hard v1;"
        " git cherry-pick ORIG_HEAD"
    ),
    "amend and revert": (
        "echo b > b; git add b; git commit -q -m b; git commit -q --amend -m c;"
        " git revert --no-edit HEAD"
    ),
}


@pytest.mark.parametrize("work", EVERYDAY)
def test_everyday_git_touches_none_of_them(repository: Jail, work: str) -> None:
    result = repository.sh(f"set -e; {EVERYDAY[work]}", cwd=repository.root)
    assert result.ok, result.result
    assert result.workspace is not None
    assert result.workspace.state == "committed", result.workspace
    status = repository.outside(
        "git fsck --strict 2>&1; git status --porcelain", cwd=repository.root
    )
    assert "error" not in status


def test_four_that_loop_on_a_rename_plant_nothing_while_the_host_saves(repository: Jail) -> None:
    """A bind mount loses its cover when the host renames over it. A layer has no such moment."""
    settings = repository.root / "actum.toml"
    honest = settings.read_bytes()
    loop = """
import os, sys, time
for number in range(4):
    if os.fork() == 0:
        until = time.monotonic() + 4
        while time.monotonic() < until:
            with open(f"p{number}", "w") as file: file.write("evil")
            try: os.rename(f"p{number}", "actum.toml")
            except OSError: pass
        os._exit(0)
for _ in range(4): os.wait()
"""
    done = threading.Event()
    saves = 0

    def save() -> None:
        nonlocal saves
        while not done.is_set() and saves < 20:
            fresh = repository.elsewhere / "fresh"
            fresh.write_bytes(honest)
            os.rename(fresh, settings)
            saves += 1
            assert settings.read_bytes() == honest
            done.wait(0.15)

    editor = threading.Thread(target=save)
    editor.start()
    result = repository.python(loop, cwd=repository.root)
    done.set()
    editor.join()
    assert saves > 5
    assert settings.read_bytes() == honest
    assert result.workspace is not None
    assert result.workspace.state in ("held", "conflict")


def test_who_denies_it_drops_it(own_jail: Jail) -> None:
    result = own_jail.sh("mkdir agents; echo x > agents/a", cwd=own_jail.root)
    assert result.workspace is not None
    runtime = own_jail.runtime
    kept = runtime.transactions.find(result.execution_id)
    with pytest.raises(Refused, match="approvals approve"):
        runtime.transactions.decide(kept, commit=True)
    request = result.workspace.request_id
    denied = runtime.approvals.decide(request, Decision.DENY, by="user:boss", why="no")
    assert runtime.transactions.approved(denied) == "discarded"
    assert not (own_jail.root / "agents").exists()
    assert runtime.transactions.all() == ()


def test_an_approval_is_for_the_changes_that_were_shown(own_jail: Jail) -> None:
    """Files of the home are not trusted: the digest in the request decides."""
    result = own_jail.sh("echo >> actum.toml", cwd=own_jail.root)
    assert result.workspace is not None
    runtime = own_jail.runtime
    record = runtime.transactions.find(result.execution_id).folder / "record.json"
    record.write_text(record.read_text().replace('"modified"', '"created"', 1))
    decided = runtime.approvals.decide(
        result.workspace.request_id, Decision.ALLOW, by="user:boss", why="yes"
    )
    with pytest.raises(Refused, match="does not hold the changes"):
        runtime.transactions.approved(decided)


def _listing(root: Path) -> dict[str, tuple[int, bytes]]:
    found = {}
    for path in sorted(root.rglob("*")):
        relative = str(path.relative_to(root))
        if not relative.startswith(".actum"):
            look = path.lstat()
            content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
            found[relative] = (look.st_mode, content)
    return found
