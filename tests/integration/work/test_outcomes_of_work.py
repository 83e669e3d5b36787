"""Every way a work item can end, what the state is then, and that its receipt holds."""

from __future__ import annotations

import json
import os
import re
import threading
import time
import uuid
from pathlib import Path

import pytest
from blake3 import blake3

from actum import Runtime
from actum.evidence.verify.work_findings import read_work_receipt
from hostile.jail import alive, marker

from .shop import add_agent, item, make_project, opened

pytestmark = pytest.mark.sandbox


def _predicate(rt: Runtime, path: str) -> dict:
    """What a receipt says, once its signature is believed."""
    return read_work_receipt(json.loads(Path(path).read_bytes()), rt.keyring.trusted)


@pytest.mark.req(
    *("002-16", "002-17", "002-18", "002-19", "002-20", "002-21", "002-22", "002-23", "002-24"),
    *("002-25", "002-26", "002-27", "002-44", "002-45", "002-46"),
)
def test_success_tells_exactly_what_was_done(tmp_path: Path) -> None:
    project = make_project(tmp_path / "p", {"edit.txt": "1", "drop.txt": "2", "same.txt": "3"})
    (project / ".gitignore").write_text("*\n")
    add_agent(
        project,
        "printf 11 > edit.txt; rm drop.txt; mkdir -p deep/er; printf new > 'deep/er/a b.txt'",
        "printf 3 > same.txt; ln -s edit.txt link; printf x > scratch; rm scratch",
    )
    with opened(project) as rt:
        before = rt.state_hash()
        result = rt.work(item())
        assert result.status == "success", result
        assert uuid.UUID(result.receipt_id)
        assert result.modified_files == (str(project / "edit.txt"),)
        assert result.created_files == (
            str(project / "deep/er/a b.txt"),
            str(project / "link"),
        )
        assert result.deleted_files == (str(project / "drop.txt"),)
        assert re.fullmatch("[0-9a-f]{64}", result.output_hash)
        assert Path(result.receipt_path).name == "RECEIPT.json"
        assert result.output_hash == rt.state_hash() != before
        assert result.artifact_hashes == {
            str(project / "edit.txt"): blake3(b"11").hexdigest(),
            str(project / "deep/er/a b.txt"): blake3(b"new").hexdigest(),
            str(project / "link"): blake3(b"edit.txt").hexdigest(),
        }
        metrics = result.metrics
        assert (metrics.tool_ops_count, metrics.files_touched, metrics.delta_size) == (2, 4, 4)
        assert metrics.execution_time_ms > 0
        assert (metrics.tests_passed, metrics.tests_failed) == (None, None)
        said = _predicate(rt, result.receipt_path)
        assert (said["status"], said["before_hash"], said["after_hash"]) == (
            "success",
            before,
            result.output_hash,
        )
        assert said["receipt_id"] == result.receipt_id
        assert [op["outcome"] for op in said["capsule"]["tool_trace"]] == ["SUCCEEDED"] * 2
        assert sum(said["delta_counts"].values()) == metrics.delta_size
        assert said["isolation"]["engine"] == "overlay"
        for op in said["capsule"]["tool_trace"]:
            assert rt.services.receipts.find(op["receipt_id"]).execution_id == op["execution_id"]
    assert (project / "edit.txt").stat().st_uid == os.geteuid()
    assert set(result.document()) == {
        *("status", "receipt_id", "receipt_path", "modified_files", "created_files"),
        *("deleted_files", "output_hash", "artifact_hashes", "metrics", "proof_script"),
    }


@pytest.mark.req("002-42", "002-43", "002-82", "002-15", "002-30", "002-50", "002-28", "002-29")
def test_tests_run_on_a_view_that_is_thrown_away(tmp_path: Path) -> None:
    project = make_project(
        tmp_path / "p", {"test_it.py": "def test_a():\n    assert open('n').read() == '2'\n"}
    )
    command = "echo 'def test_b(): pass' >> test_it.py; touch junk; " + _PYTEST
    with opened(project) as rt:
        add_agent(project, "printf 1 > n")
        before = rt.state_hash()
        failed = rt.work(item(test_command=command))
        assert (failed.status, failed.error) == ("failure", "Tests failed")
        assert rt.state_hash() == before
        assert (failed.metrics.tests_passed, failed.metrics.tests_failed) == (1, 1)
        assert failed.test_output is not None
        assert "1 failed, 1 passed" in failed.test_output
        said = _predicate(rt, failed.receipt_path)
        assert said["before_hash"] == said["after_hash"] == before
        add_agent(project, "printf 2 > n")  # fix and retry
        passed = rt.work(item(test_command=command))
        assert passed.status == "success", passed
        assert (passed.metrics.tests_passed, passed.metrics.tests_failed) == (2, 0)
        assert passed.created_files == (str(project / "n"),)
    assert not (project / "junk").exists()
    assert "test_b" not in (project / "test_it.py").read_text()


#: What pytest prints at its end, from a runner that is on every host.
_PYTEST = """python3 - <<'END'
import sys
source = {}
exec(open('test_it.py').read(), source)
failed = 0
tests = [name for name in source if name.startswith('test_')]
for name in tests:
    try:
        source[name]()
    except AssertionError:
        failed += 1
parts = [f'{failed} failed'] * bool(failed) + [f'{len(tests) - failed} passed']
print('====', ', '.join(parts), 'in 0.01s ====')
sys.exit(bool(failed))
END
"""


@pytest.mark.req("002-83", "002-84", "002-85", "002-9", "002-32")
@pytest.mark.parametrize("slow", ["agent", "tests"])
def test_the_timeout_covers_agent_and_tests(tmp_path: Path, slow: str) -> None:
    project = make_project(tmp_path / "p")
    mark = marker()
    nap = f"echo started > mark; (sleep {mark} & sleep {mark})"
    add_agent(project, nap if slow == "agent" else "echo 1 > mark")
    with opened(project) as rt:
        before = rt.state_hash()
        result = rt.work(
            item(
                constraints={"timeout_ms": 4_000},
                **({"test_command": nap} if slow == "tests" else {}),
            )
        )
        assert result.status == "timeout", result
        assert result.error == "The work item took longer than its 4000 ms."
        # Twice the time would be too late.
        assert 4_000 <= result.metrics.execution_time_ms < 8_000
        assert rt.state_hash() == before
        assert _predicate(rt, result.receipt_path)["status"] == "timeout"
    assert alive(mark) == []


@pytest.mark.req("002-13", "002-14")
def test_missing_files_fail_the_run(tmp_path: Path) -> None:
    project = make_project(tmp_path / "p", {"in.txt": ""})
    add_agent(project, "echo ran > ran")
    with opened(project) as rt:
        missing = rt.work(item(input_files=["in.txt", "absent.txt"]))
        assert (missing.status, missing.error) == ("failure", "Input file missing: absent.txt")
        assert missing.metrics.tool_ops_count == 0
        lacking = rt.work(item(input_files=["in.txt"], output_files=["/out.txt"]))
        assert (lacking.status, lacking.error) == ("failure", "Output file missing: /out.txt")
        assert lacking.metrics.tool_ops_count == 1
        assert not (project / "ran").exists()
        assert rt.work(item(input_files=["/in.txt"], output_files=["ran"])).status == "success"


@pytest.mark.req("002-59", "002-60")
def test_the_same_run_from_the_same_state_is_a_duplicate_in_another_process_too(
    tmp_path: Path,
) -> None:
    project = make_project(tmp_path / "p", {"n": "1"})
    add_agent(project, "printf 2 > n")
    with opened(project) as rt:
        first = rt.work(item())
        assert first.status == "success"
    (project / "n").write_text("1")
    with opened(project) as rt:
        again = rt.work(item(id="another-name", budget={"complexity": "high"}))
        assert again.status == "denied"
        assert again.denial_reason is not None
        assert again.denial_reason.startswith("Duplicate run (already in history): ")
        assert (project / "n").read_text() == "1"
        # From another state it is another run.
        (project / "other").write_text("")
        assert rt.work(item()).status == "success"


@pytest.mark.req("002-37", "002-55", "002-56", "002-7")
def test_the_guard_stops_early(tmp_path: Path) -> None:
    project = make_project(tmp_path / "p")
    add_agent(project, "echo 1 > a", "echo 2 > b", "echo 3 > c")
    with opened(project) as rt:
        few_ops = rt.work(item(constraints={"max_tool_ops": 2}))
        assert few_ops.denial_reason == "Exceeded max tool ops: 3 > 2"
        assert few_ops.metrics.tool_ops_count == 2  # the third was never made
        few_files = rt.work(item(constraints={"max_files": 1}))
        assert few_files.denial_reason == "Exceeded max files: 2 > 1"
        assert few_files.metrics.tool_ops_count == 2
        add_agent(project, "i=0; while :; do i=$((i+1)); echo $i > f$i; done")
        runaway = rt.work(item(constraints={"timeout_ms": 600_000}))
        assert runaway.status == "denied", runaway
        assert runaway.denial_reason is not None
        assert runaway.denial_reason.startswith("Exceeded max files: ")
        assert not list(project.glob("f*"))


def test_a_runaway_cannot_fill_the_disk(tmp_path: Path) -> None:
    project = make_project(tmp_path / "p")
    add_agent(project, "dd if=/dev/zero of=big bs=1M count=400 2>&1")
    with opened(project) as rt:
        before = rt.state_hash()
        result = rt.work(item())
        assert result.status == "failure", result
        assert rt.state_hash() == before
    assert not (project / "big").exists()


def test_what_is_no_file_is_not_let_in(tmp_path: Path) -> None:
    project = make_project(tmp_path / "p")
    add_agent(project, "mkfifo pipe")
    with opened(project) as rt:
        result = rt.work(item())
        assert result.denial_reason == "Neither file, folder nor link: pipe"
    assert not (project / "pipe").exists()


def test_what_governs_cannot_be_changed_and_the_home_is_not_there(tmp_path: Path) -> None:
    project = make_project(tmp_path / "p")
    add_agent(project, "(echo x >> actum.toml) || (ls -A .actum > seen) || echo both > both")
    with opened(project) as rt:
        result = rt.work(item())
        assert result.status == "success", result
        assert result.created_files == (str(project / "both"), str(project / "seen"))
    assert (project / "seen").read_text() == ""


def test_somebody_else_changing_the_workspace_meanwhile_is_a_failure(tmp_path: Path) -> None:
    project = make_project(tmp_path / "p", {"n": "1"})
    add_agent(
        project, "echo here > /artifacts/x; while [ ! -e go ]; do sleep 0.1; done; echo 2 > mine"
    )

    def meddle() -> None:
        while not list((project / ".actum").glob("work/*/rooms/*/owner")):
            time.sleep(0.05)
        (project / "go").write_text("3")  # seen through the overlay, as the kernel likes

    with opened(project) as rt:
        rt.state_hash()
        thread = threading.Thread(target=meddle)
        thread.start()
        result = rt.work(item(constraints={"timeout_ms": 20_000}))
        thread.join()
        assert result.status in ("failure", "timeout")
        assert result.error is not None
        assert "changed by someone else" in result.error
    assert (project / "go").read_text() == "3"
    assert not (project / "mine").exists()


@pytest.mark.parametrize("engine", ["overlay", "copy"])
def test_both_engines_come_to_the_same(tmp_path: Path, engine: str) -> None:
    project = make_project(tmp_path / "p", {"d/a": "1", "d/b": "2"})
    add_agent(project, "mv d e; printf 3 > e/a; mkdir d; chmod 700 d")
    with opened(project) as rt:
        result = rt.work_items.run(item(), engine=engine)
        assert result.status == "success", result
        assert result.output_hash == rt.state_hash()
        assert _predicate(rt, result.receipt_path)["isolation"]["engine"] == engine
        assert result.deleted_files == (str(project / "d/a"), str(project / "d/b"))
        assert result.created_files == (str(project / "e/a"), str(project / "e/b"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can work in another user's project")
@pytest.mark.parametrize("engine", ["overlay", "copy"])
def test_what_is_new_belongs_to_whoever_owns_the_project(tmp_path: Path, engine: str) -> None:
    project = make_project(tmp_path / "p", {"sub/a.txt": "1"})
    add_agent(project, "mkdir -p sub/n/n; echo x > sub/n/n/x; echo 2 > sub/a.txt; ln -s x sub/l")
    for path in (project, *(path for name in ("sub", "agents") for path in _all(project / name))):
        os.chown(path, 1234, 2345, follow_symlinks=False)
    with opened(project) as rt:
        result = rt.work_items.run(item(), engine=engine)
    assert result.status == "success", result
    owners = {
        str(path.relative_to(project)): (path.lstat().st_uid, path.lstat().st_gid)
        for path in _all(project / "sub")
    }
    assert set(owners) == {"sub", "sub/a.txt", "sub/n", "sub/n/n", "sub/n/n/x", "sub/l"}
    assert set(owners.values()) == {(1234, 2345)}, owners


def _all(folder: Path) -> list[Path]:
    return [folder, *folder.rglob("*")]
