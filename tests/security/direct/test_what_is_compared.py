"""A tool that writes directly can create names that no cover was on. Each is reported.

Direct mode does not prevent them: where git would execute what was planted, the test has it do so
afterwards, as the control that the report is about something real.
"""

from __future__ import annotations

import base64
import json
import os
from pathlib import Path

import pytest

from actum import Outcome, Result
from actum.capture.model import Workspace
from actum.evidence.records.evidence_record import EvidenceRecords
from hostile.jail import Jail

pytestmark = pytest.mark.sandbox

_HOOK = 'printf \'#!/bin/sh\\ntouch "%s"\\n\' "$1" > HOOK; chmod +x HOOK'
_MONITOR = '[core]\\n\\trepositoryformatversion = 0\\n\\tfsmonitor = \\"touch %s; false\\"\\n'
_COPY = f'cp -r lib/.git e; printf "{_MONITOR}" "$1" > e/config'
_BARE = (
    "mkdir -p DIR; cp -r lib/.git/objects lib/.git/refs lib/.git/HEAD lib/.git/index DIR/;"
    f' printf "{_MONITOR}\\tbare = false\\n\\tworktree = .\\n" "$1" > DIR/config'
)

#: How a tool plants it (with the canary as $1), the path that is named, and what on the host would
#: execute it.
PLANTS: dict[str, tuple[str, str, str]] = {
    "a repository in the root": (
        f'git init -q .; printf "{_MONITOR}" "$1" > .git/config',
        ".git",
        "git status",
    ),
    "a repository in a folder": (
        f'git init -q new; printf "{_MONITOR}" "$1" > new/.git/config',
        "new/.git",
        "cd new && git status",
    ),
    "a repository in a folder whose name is no text": (
        "d=$(printf 'b\\377'); git init -q $d;" + f' printf "{_MONITOR}" "$1" > $d/.git/config',
        "b%FF/.git",
        "cd b* && git status",
    ),
    "a repository, prepared and renamed": (
        f'git init -q x; printf "{_MONITOR}" "$1" > x/.git/config; mkdir -p a/b; mv x a/b/y',
        "a/b/y/.git",
        "cd a/b/y && git status",
    ),
    "a gitfile": (
        f"{_COPY}; mkdir f; echo gitdir: ../e > f/.git",
        "f/.git",
        "cd f && git status",
    ),
    "the configuration of a repository": (
        f'printf "{_MONITOR}" "$1" > lib/.git/config',
        "lib/.git/config",
        "cd lib && git status",
    ),
    "a hook of a repository": (
        _HOOK.replace("HOOK", "lib/.git/hooks/post-index-change"),
        "lib/.git/hooks/post-index-change",
        "cd lib && touch tracked && git status",
    ),
    "a common directory": (
        f"{_COPY}; echo ../../e > lib/.git/commondir",
        "lib/.git/commondir",
        "cd lib && git status",
    ),
    "a submodule's configuration": (
        f'printf "{_MONITOR}\\tworktree = ../../../sub\\n" "$1" > lib/.git/modules/sub/config',
        "lib/.git/modules/sub/config",
        "cd lib && git status",
    ),
    "a module that is not initialised yet": (
        "cp -r lib/.git/modules/sub lib/.git/modules/later;"
        + _HOOK.replace("HOOK", "lib/.git/modules/later/hooks/post-checkout"),
        "lib/.git/modules/later",
        "",
    ),
    "a submodule's gitfile": (
        f"{_COPY}; echo gitdir: ../../e > lib/sub/.git",
        "lib/sub/.git",
        "cd lib/sub && git status",
    ),
    "a bare repository without the name": (
        _BARE.replace("DIR", "data"),
        "data",
        "cd data && git status",
    ),
    "a git directory whose objects lie elsewhere": (
        "mkdir -p y/hooks x; cp -r lib/.git/objects lib/.git/refs y/; cp lib/.git/HEAD x/;"
        + _HOOK.replace("HOOK", "y/hooks/reference-transaction")
        + "; echo ../y > x/commondir",
        "x",
        "cd x && git update-ref refs/heads/new HEAD",
    ),
    "a folder made bare, its repository disabled": (
        f"{_BARE.replace('DIR', 'lib')}; rm lib/.git/HEAD",
        "lib",
        "cd lib && git status",
    ),
    "a rebase to be continued": (
        'mkdir lib/.git/rebase-merge; echo "exec touch $1" > lib/.git/rebase-merge/git-rebase-todo',
        "lib/.git/rebase-merge",
        "",
    ),
    "attributes": (
        "mkdir -p lib/.git/info; echo '* filter=x' > lib/.git/info/attributes",
        "lib/.git/info/attributes",
        "",
    ),
    "an agent": ("mkdir agents; echo x > agents/agent-1.yaml", "agents", ""),
    "an executor": ("mkdir executors; echo x > executors/x.py", "executors", ""),
    "another project": ("mkdir -p sub2/.actum; echo x > sub2/.actum/key", "sub2/.actum", ""),
    "an editor's tasks": ("mkdir .vscode; echo '{}' > .vscode/tasks.json", ".vscode", ""),
    "a shell's environment": ("mkdir -p a/b; echo 'touch /x' > a/b/.envrc", "a/b/.envrc", ""),
    "a workflow": (
        "mkdir -p .github/workflows; echo x > .github/workflows/ci.yml",
        ".github/workflows",
        "",
    ),
}


def _workspace(result: Result) -> Workspace:
    assert result.workspace is not None, result.violations
    return result.workspace


@pytest.mark.parametrize("plant", PLANTS)
def test_what_is_planted_is_named(repository: Jail, plant: str) -> None:
    script, path, trigger = PLANTS[plant]
    root, canary = repository.root, repository.elsewhere / "canary"
    result = repository.sh(f"set -e; {script}", str(canary), cwd=root)
    assert result.result is not None
    assert result.result.exit_code == 0, result.result.stderr
    assert result.outcome is Outcome.POLICY_VIOLATION
    assert result.reason_codes == ("POLICY_VIOLATION",)
    assert str(root / path) in _workspace(result).why, result.workspace
    assert str(root / path) in (result.result.error_reason or "")
    if trigger:
        assert not canary.exists()
        repository.outside(f"{{ {trigger}; }} >/dev/null 2>&1; true", cwd=root)
        assert canary.exists()


def test_the_root_made_bare_is_named_although_its_repository_is_covered(own_jail: Jail) -> None:
    root, canary = own_jail.root, own_jail.elsewhere / "canary"
    own_jail.outside("git init -q .", cwd=root)
    script = (
        "cp -r .git/objects .git/refs .git/HEAD .;"
        f' printf "{_MONITOR}\\tbare = false\\n\\tworktree = .\\n" "$1" > config; rm -f .git/HEAD'
    )
    result = own_jail.sh(script, str(canary), cwd=root)
    assert result.outcome is Outcome.POLICY_VIOLATION
    assert _workspace(result).why == (str(root),)
    assert (root / ".git" / "HEAD").exists()
    # The control: without the cover, git would have taken the root for the repository.
    own_jail.outside("git status", cwd=root)
    assert not canary.exists()
    own_jail.outside("rm .git/HEAD; git status", cwd=root)
    assert canary.exists()


HARMLESS = {
    "files and folders": "mkdir -p a/b; echo x > a/b/c; rm -r a; echo y > lib/tracked",
    "git in a repository": (
        "cd lib; git add tracked; echo y > new; git add new; git commit -q -m second;"
        " git branch other; git switch -q other; git stash list; git tag v1"
    ),
    "the same content again": "cp lib/.git/config c; cat c > lib/.git/config; chmod -R u+w lib",
    "a repository that goes with its folder": "rm -rf lib",
    "reading what is covered": "cat actum.toml tools.lock > /dev/null; ls tools rules > /dev/null",
    "parts of a repository that are none": "mkdir -p d/objects d/refs; echo x > d/config",
}


@pytest.mark.parametrize("work", HARMLESS)
def test_what_governs_nothing_is_not(repository: Jail, work: str) -> None:
    result = repository.sh(f"set -e; {HARMLESS[work]}", cwd=repository.root)
    assert result.outcome is Outcome.SUCCEEDED, result.result
    found = _workspace(result)
    assert (found.mode, found.state) == ("direct", "direct")
    assert (found.why, found.changed_by_host) == ((), ())
    assert found.compared


def test_it_is_compared_again_each_time(repository: Jail) -> None:
    """The list of folders is kept from one run to the next."""
    harmless = "mkdir -p one/two three; echo x > one/two/file"
    for plant, path in (("one/two", "one/two/.git"), ("three", "three/.git")):
        assert repository.sh(harmless, cwd=repository.root).outcome is Outcome.SUCCEEDED
        result = repository.sh(f"git init -q {plant}", cwd=repository.root)
        assert result.outcome is Outcome.POLICY_VIOLATION
        assert _workspace(result).why == (str(repository.root / path),)
    # What is there by now is known, and is no finding of the next run.
    assert repository.sh(harmless, cwd=repository.root).outcome is Outcome.SUCCEEDED


def test_what_the_exit_code_says_stays_visible(own_jail: Jail) -> None:
    result = own_jail.sh("mkdir agents; exit 3", cwd=own_jail.root)
    assert result.outcome is Outcome.POLICY_VIOLATION
    assert result.result is not None
    assert result.result.exit_code == 3


def test_a_tool_that_is_stopped_is_compared_as_well(own_jail: Jail) -> None:
    result = own_jail.sh("mkdir agents; sleep 60", cwd=own_jail.root, timeout="1s")
    assert result.outcome is Outcome.POLICY_VIOLATION
    assert _workspace(result).why == (str(own_jail.root / "agents"),)


def test_another_name_of_a_covered_file_is_no_edit_of_the_host(own_jail: Jail) -> None:
    rule = own_jail.root / "rules" / "README.md"
    os.link(rule, own_jail.root / "alias")
    result = own_jail.sh("echo more >> alias", cwd=own_jail.root)
    assert rule.read_text().endswith("more\n")
    assert result.outcome is Outcome.POLICY_VIOLATION
    assert _workspace(result).why == (str(rule),)


def test_what_cannot_be_compared_any_more_is_no_success(
    own_jail: Jail, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("actum.runners.folder_index.MOST_FOLDERS", 200)
    few = own_jail.sh("mkdir d; cd d; mkdir $(seq 50)")
    assert few.outcome is Outcome.SUCCEEDED
    assert _workspace(few).compared
    many = own_jail.sh("mkdir e; cd e; mkdir $(seq 300)")
    assert many.outcome is Outcome.POLICY_VIOLATION
    assert not _workspace(many).compared
    # A project that is too large from the beginning can be worked in, and every result says so.
    after = own_jail.sh("echo x > file")
    assert after.outcome is Outcome.SUCCEEDED
    assert not _workspace(after).compared


def test_the_records_say_in_which_mode_it_ran(own_jail: Jail) -> None:
    result = own_jail.sh("mkdir agents", cwd=own_jail.root)
    envelope = json.loads(Path(result.receipt_path).read_text())
    predicate = json.loads(base64.b64decode(envelope["payload"]))["predicate"]
    assert predicate["workspace"]["mode"] == "direct"
    assert predicate["workspace"]["why"] == [str(own_jail.root / "agents")]
    assert predicate["policy"]["document"]["filesystem"]["changes"] == "direct"
    assert predicate["ending"]["kind"] == "GoverningChanged"
    assert result.document()["workspace"]["mode"] == "direct"
    records = EvidenceRecords(own_jail.runtime.database)
    record = records.of_execution(result.execution_id)[-1]
    assert record["workspace"]["mode"] == "direct"
    assert all(finding.passed for finding in own_jail.runtime.verifier.verify_all())
