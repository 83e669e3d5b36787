"""Ways around what a transaction holds back, and around what it says of its state."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from actum import Outcome, Runtime
from actum.errors import Refused
from actum.evidence.records.audit import Decision
from hostile.jail import Jail

pytestmark = pytest.mark.sandbox

_CONFIG = (
    'printf "[core]\\n\\trepositoryformatversion = 0\\n\\tbare = false\\n\\tworktree = .\\n'
    '\\tfsmonitor = \\"touch %s; false\\"\\n" "$1" > PLACE/config'
)
_SEED = "g=/tmp/seed/.git; (cd /tmp; git init -q seed; cd seed; echo x > f; git add f)"
#: With a common directory, git takes the work tree from the git directory's own configuration.
_ELSEWHERE = (
    f"{_SEED}; mkdir y x; cp -r $g/objects $g/refs y/; {_CONFIG.replace('PLACE', 'y')};"
    " printf '[extensions]\\n\\tworktreeConfig = true\\n' >> y/config;"
    " printf '[core]\\n\\tworktree = .\\n' > x/config.worktree;"
    " cp $g/HEAD $g/index x/; echo ../y > x/commondir"
)
_HOOK = (
    'mkdir -p there/hooks; cd there/hooks; printf \'#!/bin/sh\\ntouch "%s"\\n\' "$1"'
    " > post-index-change; chmod +x post-index-change"
)

#: Scripts that run one after the other, each as an execution; and where the host's git runs.
PLANTS: dict[str, tuple[tuple[str, ...], str]] = {
    "a git directory whose objects are elsewhere": ((_ELSEWHERE,), "x"),
    "a bare repository in a folder with an unprintable name, in two runs": (
        (
            f"{_SEED}; mkdir \"$(printf 'b\\001')\"; cp -r $g/objects $g/refs $g/index b*/",
            f"{_SEED}; cp $g/HEAD b*/; cd b*; {_CONFIG.replace('PLACE', '.')}",
        ),
        "b\1",
    ),
    "the configuration of a bare repository that exists": (
        (_CONFIG.replace("PLACE", "there"),),
        "there",
    ),
    "a hook of a bare repository that exists": ((_HOOK,), "there"),
}


@pytest.fixture
def project(own_jail: Jail) -> Jail:
    """A project with a bare repository in it, as projects have them for their tests."""
    there = own_jail.root / "there"
    there.mkdir()
    subprocess.run(["git", "init", "-q", own_jail.elsewhere / "s"], check=True)
    (own_jail.elsewhere / "s" / "f").write_text("x")
    subprocess.run(["git", "-C", own_jail.elsewhere / "s", "add", "f"], check=True)
    for name in ("objects", "refs"):
        shutil.copytree(own_jail.elsewhere / "s" / ".git" / name, there / name)
    for name in (".git/HEAD", ".git/index", "f"):
        shutil.copy(own_jail.elsewhere / "s" / name, there / os.path.basename(name))
    (there / "config").write_text(
        "[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = .\n"
    )
    return own_jail


@pytest.mark.parametrize("plant", PLANTS)
def test_no_git_directory_is_planted(project: Jail, plant: str) -> None:
    scripts, place = PLANTS[plant]
    canary = project.elsewhere / "canary"
    *first, last = [project.sh(script, str(canary), cwd=project.root) for script in scripts]
    assert all(each.workspace and each.workspace.state == "committed" for each in first)
    assert last.ok, last.result
    assert last.workspace is not None
    assert last.workspace.state == "held", last.workspace
    ask = f"cd '{project.root / place}' && touch f && git status"
    project.outside(f"{{ {ask}; }} >/dev/null 2>&1; true")
    assert not canary.exists()
    request = project.runtime.approvals.decide(
        last.workspace.request_id, Decision.ALLOW, by="user:boss", why="control"
    )
    transactions = project.runtime.transactions
    if transactions.approved(request) == "conflict":
        kept = transactions.find(last.execution_id)
        assert transactions.decide(kept, commit=True, over=True) == "committed"
    project.outside(f"{{ {ask}; }} >/dev/null 2>&1; true")
    assert canary.exists()


def test_another_project_in_the_folder_is_governed_too(own_jail: Jail) -> None:
    inner = own_jail.root / "inner"
    (inner / ".actum").mkdir(parents=True)
    result = own_jail.sh(
        "mkdir -p inner/tools/x; echo x > inner/tools/x/tool.yaml", cwd=own_jail.root
    )
    assert result.workspace is not None
    assert result.workspace.state == "held"


def test_what_a_link_in_a_governing_folder_leads_to_is_governed_too(own_jail: Jail) -> None:
    """`actum work` follows the link."""
    agents, shared = own_jail.root / "agents", own_jail.root / "shared"
    for folder in (agents, shared):
        folder.mkdir()
    for name in ("led-to", "other"):
        (shared / name).write_text("x")
    (agents / "agent-1.yaml").symlink_to("../shared/led-to")
    led_to, other = (
        own_jail.sh(f"echo y > shared/{name}", cwd=own_jail.root).workspace
        for name in ("led-to", "other")
    )
    assert led_to is not None
    assert led_to.state == "held", led_to
    assert other is not None
    assert other.state == "committed"


def test_what_waited_is_judged_again_when_a_person_decides(own_jail: Jail) -> None:
    """One half of a repository waits for another reason, and the other half is committed."""
    transactions = own_jail.runtime.transactions
    head = own_jail.sh("mkdir bare; echo ref: refs/heads/m > bare/HEAD", changes="hold")
    rest = own_jail.sh("mkdir -p bare/objects bare/refs; touch bare/config")
    assert rest.workspace is not None
    assert rest.workspace.state == "committed"
    kept = transactions.find(head.execution_id)
    with pytest.raises(Refused, match="bare/HEAD") as refused:
        transactions.decide(kept, commit=True)
    assert refused.value.code == "CHANGES_GOVERN"
    assert not (own_jail.work / "bare" / "HEAD").exists()
    # The control: without the other half it governs nothing.
    (own_jail.work / "bare" / "refs").rmdir()
    assert transactions.decide(transactions.find(head.execution_id), commit=True) == "committed"
    assert (own_jail.work / "bare" / "HEAD").exists()


def test_what_another_execution_has_made_too_is_no_obstacle(own_jail: Jail) -> None:
    transactions = own_jail.runtime.transactions
    held = own_jail.sh("mkdir out; echo held > out/one", changes="hold")
    own_jail.sh("mkdir out; echo now > out/two")
    assert transactions.decide(transactions.find(held.execution_id), commit=True) == "committed"
    assert sorted(os.listdir(own_jail.work / "out")) == ["one", "two"]
    transactions.undo(transactions.find(held.execution_id))
    assert os.listdir(own_jail.work / "out") == ["two"]


def test_changes_that_are_missing_among_those_that_wait_are_found(own_jail: Jail) -> None:
    transactions = own_jail.runtime.transactions
    held = own_jail.sh("echo one > one; echo two > two", changes="hold")
    (layer,) = (own_jail.root / ".actum" / "transactions").glob(f"{held.execution_id}-*/*/*/**/two")
    layer.unlink()
    with pytest.raises(Refused, match="does not hold"):
        transactions.decide(transactions.find(held.execution_id), commit=True)
    assert not (own_jail.work / "one").exists()


def test_a_project_below_a_protected_name_is_not_held_as_a_whole(
    tmp_path: Path, probe: Path
) -> None:
    jail = Jail(tmp_path / ".vscode" / ".github", probe, transactions=True)
    result = jail.sh("echo x > file")
    jail.close()
    assert result.workspace is not None
    assert result.workspace.state == "committed"


def test_changes_that_cannot_be_compared_are_dropped_and_the_tool_has_run(own_jail: Jail) -> None:
    """A path that is too long for any program: the tool has run, so this is no refusal."""
    program = "import os\nfor _ in range(2_300): os.mkdir('d'); os.chdir('d')"
    result = own_jail.python(program, timeout="1m")
    assert result.outcome is Outcome.SUCCEEDED
    assert result.workspace is not None
    assert result.workspace.state == "discarded"
    assert "longer than" in result.workspace.why[0]
    assert not (own_jail.work / "d").exists()
    assert own_jail.runtime.transactions.all() == ()


def test_an_approval_is_needed_however_long_the_inbox_is(
    own_jail: Jail,
) -> None:
    result = own_jail.sh("echo >> actum.toml", cwd=own_jail.root)
    runtime = own_jail.runtime
    with runtime.database.transaction() as cursor:
        cursor.execute(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10001)"
            " INSERT INTO approvals (request_id, kind, gate, call_sha256, state, requested_at,"
            " expires_at, document) SELECT 'r' || i, 'escalation', 'EXIT-126', '', 'noted',"
            " '2099-01-01T00:00:00.000Z', '2099-01-01T00:00:00.000Z', '{}' FROM n"
        )
    kept = runtime.transactions.find(result.execution_id)
    with pytest.raises(Refused, match="approvals approve"):
        runtime.transactions.decide(kept, commit=True)


def test_a_copy_of_a_project_leaves_the_original_alone(own_jail: Jail, tmp_path: Path) -> None:
    (own_jail.work / "file").write_text("before")
    done = own_jail.sh("echo after > file")
    held = own_jail.sh("echo held > file", changes="hold")
    own_jail.close()
    copy = tmp_path / "copy"
    # An ordinary user cannot read what the overlay has left in its `work`; the rest is copied.
    subprocess.run(["cp", "-a", own_jail.root, copy], check=False, stderr=subprocess.DEVNULL)
    assert sorted(os.listdir(own_jail.root)) == sorted(os.listdir(copy))
    with Runtime.open(copy) as runtime:
        transactions = runtime.transactions
        with pytest.raises(Refused, match="of another folder"):
            transactions.undo(transactions.find(done.execution_id))
        with pytest.raises(Refused, match="of another folder"):
            transactions.decide(transactions.find(held.execution_id), commit=True)
    assert (own_jail.work / "file").read_text() == "after\n"
