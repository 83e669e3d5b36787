"""What a person finds later about a piece of work: said, changed, tested, left behind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from blake3 import blake3

from actum import Runtime
from actum.contract.canonical import sha256_bytes
from actum.evidence.records.evidence_record import EvidenceRecords
from actum.evidence.verify.work_findings import read_work_receipt

from .shop import add_agent, item, make_project, opened

pytestmark = pytest.mark.sandbox

SCRIPT = "echo 2 >> edit.txt; echo said; echo oops >&2; echo made > $ACTUM_ARTIFACTS/made.txt"


@pytest.mark.req("000-193")
def test_command_output_exit_code_changes_tests_and_artifacts_are_all_on_record(
    tmp_path: Path,
) -> None:
    project = make_project(tmp_path / "p", {"edit.txt": "1\n", "same.txt": "1\n"})
    test = "grep -q 2 edit.txt && echo checked"
    add_agent(project, SCRIPT)
    with opened(project) as rt:
        result = rt.work(item(test_command=test))
        assert result.status == "success", result
        told = read_work_receipt(
            json.loads(Path(result.receipt_path).read_bytes()), rt.keyring.trusted
        )
        (operation,) = told["capsule"]["tool_trace"]
        records = EvidenceRecords(rt.database)
        (record,) = records.of_execution(operation["execution_id"])
        # Exact command, what it said, where all of that is, and how it ended.
        assert record["command"]["argv"] == ["sh", "-s", "--"]
        assert record["command"]["executable"] == str(Path("/bin/sh").resolve())
        assert record["command"]["working_directory"] == str(project)
        assert record["command"]["stdin_bytes"] == len(SCRIPT)
        assert record["exit_code"] == 0
        assert record["output"]["stdout"]["summary"] == "said\n"
        assert record["output"]["stderr"]["summary"] == "oops\n"
        assert record["full_output"]["stdout_sha256"] == sha256_bytes(b"said\n")
        assert record["full_output"]["stderr_sha256"] == sha256_bytes(b"oops\n")
        # Artifacts, by a reference under which they are found.
        (artifact,) = record["files"]
        assert (artifact["path"], artifact["kind"]) == ("made.txt", "artifact")
        assert rt.blobs.read(artifact["blake3"]) == b"made\n"
        # The evidence record says what was changed when the operation had ended.
        edited = {"action": "modified", "path": str(project / "edit.txt")}
        changed = record["diff_summary"]
        assert (changed["created"], changed["modified"], changed["deleted"]) == (0, 1, 0)
        assert (changed["files"], changed["unnamed"]) == ([edited], 0)
        assert record["tests"] is None  # this operation ran none
        # The tests are an execution too. Its record has their result, and what they saw.
        (tested,) = [
            each
            for each in map(json.loads, (row[0] for row in all_records(rt)))
            if each["purpose"] == "test of work item work-item-1"
        ]
        assert tested["tests"] == {"exit_code": 0, "passed": None, "failed": None}
        assert tested["diff_summary"] == changed
        # What changed, and nothing else; and the tests, which saw exactly that.
        before, after = (f"f644:{blake3(text).hexdigest()}" for text in (b"1\n", b"1\n2\n"))
        assert told["capsule"]["deltas"] == {
            "deltaPi": [],
            "deltaQ": [],
            "deltaLambda": [],
            "deltaO": [["modified", "edit.txt", before, after]],
        }
        assert told["tests"]["exit_code"] == 0
        assert told["tests"]["command_sha256"] == sha256_bytes(test.encode())
        assert told["tests"]["output_sha256"] == sha256_bytes(b"checked\n")

        # The control: work that changes nothing and has no tests claims neither.
        add_agent(project, "true")
        idle = rt.work(item(id="work-item-2"))
        said = read_work_receipt(
            json.loads(Path(idle.receipt_path).read_bytes()), rt.keyring.trusted
        )
        assert not any(said["capsule"]["deltas"].values())
        assert said["tests"] is None
        (operation,) = said["capsule"]["tool_trace"]
        (record,) = records.of_execution(operation["execution_id"])
        assert (record["diff_summary"], record["tests"]) == (None, None)


@pytest.mark.req("000-193")
def test_the_record_of_tests_has_their_counts_also_where_they_failed(tmp_path: Path) -> None:
    project = make_project(tmp_path / "p", {"edit.txt": "1\n"})
    add_agent(project, "echo 2 >> edit.txt")
    said = "== 3 passed, 2 failed in 0.10s =="
    with opened(project) as rt:
        result = rt.work(item(test_command=f"echo '{said}'; exit 1"))
        assert result.status == "failure"
        tests = [json.loads(row[0])["tests"] for row in all_records(rt)]
    assert [each for each in tests if each] == [{"exit_code": 1, "passed": 3, "failed": 2}]


@pytest.mark.req("000-193")
def test_the_record_of_an_execution_lists_its_own_changes(tmp_path: Path) -> None:
    project = make_project(tmp_path / "p", {"edit.txt": "1\n", "gone.txt": "1\n"})
    script = "echo 2 >> edit.txt; rm gone.txt; mkdir new; echo 3 > new/made.txt"
    with opened(project) as rt:
        records = EvidenceRecords(rt.database)

        def diff(script: str, **words: Any) -> tuple[Any, Any]:
            result = rt.exec("shell", stdin=script, cwd=project, **words).check()
            (record,) = records.of_execution(result.execution_id)
            return record["diff_summary"], result.workspace

        found, workspace = diff(script)
        assert workspace is not None
        assert found == {
            "state": "committed",
            "created": 2,
            "modified": 1,
            "deleted": 1,
            "sha256": workspace.diff_sha256,
            "files": [
                {"action": "modified", "path": str(project / "edit.txt")},
                {"action": "deleted", "path": str(project / "gone.txt")},
                {"action": "created", "path": str(project / "new")},
                {"action": "created", "path": str(project / "new/made.txt")},
            ],
            "unnamed": 0,
        }
        dropped, _ = diff("echo 4 > other.txt", changes="discard")
        assert (dropped["state"], dropped["created"]) == ("discarded", 1)
        assert diff("cat edit.txt")[0] is None  # nothing changed
        many, _ = diff("mkdir many; cd many; for i in $(seq 150); do echo > $i; done")
        assert (many["created"], len(many["files"]), many["unnamed"]) == (151, 100, 51)


def all_records(rt: Runtime) -> list[tuple[str]]:
    return list(rt.database.rows("SELECT document FROM evidence_records ORDER BY rowid"))
