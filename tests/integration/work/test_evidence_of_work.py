"""What a person finds later about a piece of work: said, changed, tested, left behind."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from blake3 import blake3

from actum.contract.canonical import sha256_bytes
from actum.evidence.record import EvidenceRecords
from actum.evidence.work_findings import read_work_receipt

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
        assert record["command"]["argv"][0] == "sh"
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
