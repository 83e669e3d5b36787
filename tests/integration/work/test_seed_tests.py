"""The contract's own three tests and its usage example, as written there."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from .shop import add_agent, item, make_project, opened, run_program

pytestmark = pytest.mark.sandbox


@pytest.mark.req("002-78", "002-35", "002-47", "002-48", "002-86", "002-32")
def test_1_atomicity_on_failure(tmp_path: Path) -> None:
    project = make_project(tmp_path / "p", {"a.txt": "one"})
    add_agent(project, "echo two > a.txt; echo new > b.txt; rm -r agents", "exit 3")
    with opened(project) as rt:
        before_hash = rt.state_hash()
        result = rt.work(item())
        assert result.status == "failure"
        assert rt.state_hash() == before_hash
    assert result.error is not None
    assert result.error.startswith("Tool error: TL-010: TOOL_ERROR")
    assert result.denial_reason is None
    assert result.output_hash == before_hash
    assert (project / "a.txt").read_text() == "one"
    assert (result.created_files, result.modified_files, result.deleted_files) == ((), (), ())


@pytest.mark.req("002-79", "002-10", "002-39", "002-40", "002-81", "002-33", "002-53", "002-54")
def test_2_admission_enforcement(tmp_path: Path) -> None:
    project = make_project(tmp_path / "p")
    add_agent(project, "echo 1 > one; echo 2 > two")
    with opened(project) as rt:
        before_hash = rt.state_hash()
        result = rt.work(item(constraints={"max_files": 1}))
        assert result.status == "denied"
        assert result.denial_reason is not None
        assert "Exceeded max files" in result.denial_reason
        assert result.denial_reason == "Exceeded max files: 2 > 1"
        assert rt.state_hash() == before_hash
        # The same work with room for it is let in: it was the rule, and nothing else.
        assert rt.work(item(constraints={"max_files": 2})).status == "success"


@pytest.mark.req(
    *("002-80", "002-63", "002-31", "002-64", "002-65", "002-67", "002-68", "002-70"),
    "002-71",
)
@pytest.mark.parametrize("repository", [False, True])
def test_3_replay_determinism(tmp_path: Path, repository: bool) -> None:
    project = make_project(tmp_path / "p", {"a.txt": "one\n", "gone/x": "x", "keep me.txt": ""})
    (project / "keep me.txt").chmod(0o600)
    add_agent(project, "cat a.txt a.txt > twice.txt; rm -r gone; mkdir empty; chmod 755 a.txt")
    if repository:
        git = ["git", "-C", str(project), "-c", "user.name=t", "-c", "user.email=t@t"]
        subprocess.run([*git, "init", "-q"], check=True)
        subprocess.run([*git, "add", "-A", "--", "a.txt", "gone", "agents"], check=True)
        subprocess.run([*git, "commit", "-qm", "before"], check=True)
    with opened(project) as rt:
        result1 = rt.work(item())
        assert result1.status == "success", result1
        assert result1.proof_script is not None
        script = Path(result1.proof_script).read_text()
        assert script.startswith("#!/usr/bin/env bash\n")
        assert "\nset -euo pipefail\n" in script
        assert ("git checkout" in script) == repository
        runs = rt.database.row("SELECT count(*) FROM work_runs")
        for _ in range(2):  # idempotent
            done = subprocess.run([result1.proof_script], capture_output=True, text=True)
            assert done.returncode == 0, done.stderr
            assert "Replay successful: hash verified" in done.stdout
            assert result1.output_hash == rt.state_hash()
        assert rt.database.row("SELECT count(*) FROM work_runs") == runs
        assert len(list((project / ".actum" / "work").iterdir())) == 1


@pytest.mark.req("002-65")
@pytest.mark.parametrize("digest", ["sha1", "sha256"])
def test_a_replay_checks_out_the_commit_from_before(tmp_path: Path, digest: str) -> None:
    project = make_project(tmp_path / "it's: a project", {"a.txt": "one\n", "untracked": "x"})
    add_agent(project, "echo two > a.txt")
    git = ["git", "-C", str(project), "-c", "user.name=t", "-c", "user.email=t@t"]
    subprocess.run([*git, "init", "-q", f"--object-format={digest}"], check=True)
    subprocess.run([*git, "add", "a.txt"], check=True)
    subprocess.run([*git, "commit", "-qm", "before"], check=True)
    with opened(project) as rt:
        result = rt.work(item())
        assert result.proof_script is not None, result
    subprocess.run([*git, "commit", "-qam", "after"], check=True)
    first, restore = "# 1. Restore input state", '"${ACTUM[@]}" item restore'
    script = Path(result.proof_script).read_text()
    assert script.index(first) < script.index("git checkout") < script.index(restore)
    stopped = script.partition(restore)[0] + f'cp -r "$PLACE/state" {tmp_path}/seen\n'
    subprocess.run(["bash", "-c", stopped], check=True)
    assert [each.name for each in (tmp_path / "seen").iterdir()] == ["a.txt"]
    assert (tmp_path / "seen/a.txt").read_text() == "one\n"
    assert (project / "a.txt").read_text() == "two\n"


@pytest.mark.req("002-66")
def test_a_replay_gives_the_same_item_to_the_same_agent(tmp_path: Path) -> None:
    """The agent writes its whole item, so the hash differs if the item does."""
    project = make_project(tmp_path / "p")
    result = run_program(
        project,
        """
        import json, os, shutil
        item = json.load(open(os.environ["ACTUM_ITEM"]))
        shutil.copy(os.environ["ACTUM_ITEM"], "item.json")
        open(item["agent_id"] + "-" + item["id"], "w").close()
        """,
        id="work-item-7",
        description="Say who you are",
    )
    assert result.status == "success", result
    assert (project / "agent-1-work-item-7").exists()
    assert result.proof_script is not None
    assert Path(result.proof_script).name == "replay-agent-1.sh"
    done = subprocess.run([result.proof_script], capture_output=True, text=True)
    assert (done.returncode, "hash verified" in done.stdout) == (0, True), done


def test_a_replay_goes_on_without_a_commit_that_is_gone(tmp_path: Path) -> None:
    project = make_project(tmp_path / "p", {"a.txt": "one\n"})
    add_agent(project, "echo two > b.txt")
    git = ["git", "-C", str(project), "-c", "user.name=t", "-c", "user.email=t@t"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "before"], check=True)
    with opened(project) as rt:
        result = rt.work(item())
        assert result.proof_script is not None, result
    shutil.rmtree(project / ".git")
    done = subprocess.run([result.proof_script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Note: git cannot check out" in done.stderr
    assert "Replay successful: hash verified" in done.stdout


@pytest.mark.req("002-67", "002-68", "002-69")
def test_a_replay_that_comes_out_differently_says_so(tmp_path: Path) -> None:
    project = make_project(tmp_path / "p")
    add_agent(project, "od -An -N8 -tx8 /dev/urandom > number")
    with opened(project) as rt:
        result = rt.work(item())
        assert result.proof_script is not None
    done = subprocess.run([result.proof_script], capture_output=True, text=True)
    assert done.returncode == 1, done
    assert "ERROR: Hash mismatch" in done.stdout


@pytest.mark.req("002-68")
def test_a_replay_expects_the_recorded_hash_whatever_the_project_is_now(tmp_path: Path) -> None:
    project = make_project(tmp_path / "p")
    add_agent(project, "echo more >> log")
    with opened(project) as rt:
        first, second = rt.work(item()), rt.work(item(id="work-item-2"))
        assert (first.status, second.status) == ("success", "success"), (first, second)
        assert first.output_hash != second.output_hash == rt.state_hash()
        assert first.proof_script is not None
    done = subprocess.run([first.proof_script], capture_output=True, text=True)
    assert (done.returncode, "hash verified" in done.stdout) == (0, True), done


@pytest.mark.req("002-88", "002-89", "002-90", "002-46")
@pytest.mark.skipif(shutil.which("node") is None, reason="no node here")
def test_the_usage_example(tmp_path: Path) -> None:
    project = make_project(
        tmp_path / "p",
        {
            "validate-contract.mjs": "import { readFileSync } from 'node:fs';\n"
            "const name = process.argv[2];\n"
            "const text = readFileSync(`docs/contracts/${name}.contract.md`, 'utf8');\n"
            "if (!text.includes(name)) process.exit(1);\n"
            "console.log('valid');\n",
        },
    )
    work_item = {
        "id": "work-item-1",
        "agent_id": "agent-1",
        "description": "Implement KnowledgeStore contract",
        "dependencies": [],
        "constraints": {
            "max_files": 5,
            "max_tool_ops": 20,
            "max_delta_size": 50,
            "timeout_ms": 60000,
        },
        "budget": {"time_estimate_ms": 30000, "complexity": "medium"},
        "output_files": ["/docs/contracts/KnowledgeStore.contract.md"],
        "test_command": "node validate-contract.mjs KnowledgeStore",
    }
    writes = "mkdir -p docs/contracts; echo '# {}' > docs/contracts/KnowledgeStore.contract.md"
    with opened(project) as rt:
        add_agent(project, "true")
        missing = rt.work(work_item)
        assert missing.status == "failure"
        assert missing.error == ("Output file missing: /docs/contracts/KnowledgeStore.contract.md")
        add_agent(project, writes.format("Something"))
        wrong = rt.work(work_item)
        assert (wrong.status, wrong.error) == ("failure", "Tests failed")
        add_agent(project, writes.format("KnowledgeStore"))
        result = rt.work(work_item)
        assert result.status == "success", result
        assert result.receipt_id
        assert result.output_hash == rt.state_hash()
        assert result.test_output == "valid\n"
        made = str(project / "docs/contracts/KnowledgeStore.contract.md")
        assert result.created_files == (made,)
