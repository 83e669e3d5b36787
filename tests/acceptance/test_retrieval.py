"""Evidence is found by its reference, and files and raw output are fetched, as users do it."""

from __future__ import annotations

import base64
import hashlib
import os
from pathlib import Path

import pytest

from actum import Refused, Runtime

from .terminal import Answer, Terminal

pytestmark = pytest.mark.sandbox

#: One that the database holds, and one that is a file of the home.
SIZES = (10, 300_000)


def left(project: Terminal, content: bytes, ref: str, *words: str) -> Answer:
    (project.folder / "given").write_bytes(content)
    script = 'cp given "$ACTUM_ARTIFACTS/made.bin"; cp given kept.bin; echo said; echo also >&2'
    spec = '[{"name": "report", "path": "made.bin", "type": "binary"}]'
    answer = project.shell(
        script,
        *("--set", f"outputs.artifacts={spec}", "--set", 'outputs.output_files=["kept.bin"]'),
        *("--set", f'metadata.evidence_ref="{ref}"', *words),
    )
    assert answer.code == 0, answer.stdout
    return answer


@pytest.mark.req("000-30", "000-76", "000-77", "000-80")
@pytest.mark.parametrize("size", SIZES)
def test_files_outlive_their_session_and_are_fetched_by_reference(fresh: Terminal, size: int):
    content = os.urandom(size)
    done = left(fresh, content, "ticket-7", "--session", "long").json
    assert done["evidence_ref"] == "ticket-7"
    assert fresh.actum("session", "end", "long").code == 0
    sha256 = hashlib.sha256(content).hexdigest()
    for words in (
        ("ticket-7", "report"),
        ("ticket-7", "made.bin"),
        ("ticket-7", "kept.bin"),
        (done["execution_id"], "report"),
        (done["receipt_id"], "report"),
        (sha256,),
        (done["result"]["artifacts"][0]["blake3"],),
    ):
        assert fresh.actum("evidence", "get", *words).stdout == content, words
    assert fresh.actum("evidence", "get", "ticket-7", "report", "-o", "out.bin").code == 0
    assert (fresh.folder / "out.bin").read_bytes() == content
    document = fresh.json("evidence", "get", "ticket-7", "report").json
    assert base64.b64decode(document["content_base64"]) == content
    assert (document["sha256"], document["size"]) == (sha256, size)
    with Runtime.open(fresh.folder) as runtime:
        found = runtime.evidence("ticket-7")
        assert found.read("report") == found.read("kept.bin") == found.read(sha256) == content
        assert [(each.name, each.kind) for each in found.files] == [
            ("kept.bin", "output_file"),
            ("report", "artifact"),
        ]


@pytest.mark.req("000-73", "000-74", "000-80")
def test_raw_output_is_fetched_until_its_session_ends(fresh: Terminal):
    done = left(fresh, b"x", "run-1", "--session", "long").json
    assert fresh.actum("evidence", "get", "run-1", "stdout").stdout == b"said\n"
    assert fresh.actum("evidence", "get", "run-1", "stderr").stdout == b"also\n"
    digest = done["streams"]["stderr"]["sha256"]
    assert fresh.actum("evidence", "get", digest).stdout == b"also\n"
    assert fresh.actum("session", "end", "long").code == 0
    for words in (("run-1", "stdout"), (digest,)):
        gone = fresh.json("evidence", "get", *words)
        assert (gone.code, gone.json["error"]["code"]) == (3, "OUTPUT_REMOVED")
    (record,) = fresh.json("evidence", "show", "run-1").json["evidence"]
    assert record["output"]["stdout"]["summary"] == "said\n"


@pytest.mark.req("000-30")
def test_the_reference_of_a_result_resolves_to_its_record(fresh: Terminal):
    done = fresh.shell("echo here").json
    assert done["evidence_ref"].startswith("evidence:")
    names = (done["evidence_ref"], done["execution_id"], done["receipt_id"])
    for name in (*names, done["evidence_ref"].removeprefix("evidence:")):
        (record,) = fresh.json("evidence", "show", name).json["evidence"]
        assert record["execution_id"] == done["execution_id"]
        assert record["receipt_id"] == done["receipt_id"]
        assert record["output"]["stdout"]["summary"] == "here\n"
        assert '"here\\n"' in fresh.actum("evidence", "show", name).text
    with Runtime.open(fresh.folder) as runtime:
        assert runtime.evidence(done["evidence_ref"]).record == record
        mine = runtime.exec("shell", stdin="echo mine", cwd=fresh.folder)
        assert runtime.evidence(mine.evidence_ref).record["execution_id"] == mine.execution_id
        assert runtime.evidence(mine.evidence_ref).read("stdout") == b"mine\n"


@pytest.mark.req("000-30")
def test_a_refused_request_has_evidence_too(fresh: Terminal):
    words = ("--stdin", "-", "--set", 'metadata.evidence_ref="no-1"', "--cwd", "/")
    done = fresh.json("exec", "shell", *words, stdin=b"true").json
    assert done["outcome"] == "REJECTED"
    (record,) = fresh.json("evidence", "show", "no-1").json["evidence"]
    assert (record["outcome"], record["receipt_id"]) == ("REJECTED", done["receipt_id"])


@pytest.mark.req("000-30")
def test_executions_that_share_a_reference_are_all_found(fresh: Terminal):
    first, second = left(fresh, b"1", "shared").json, left(fresh, b"2", "shared").json
    records = fresh.json("evidence", "show", "shared").json["evidence"]
    wanted = [first["execution_id"], second["execution_id"]]
    assert [each["execution_id"] for each in records] == wanted
    answer = fresh.json("evidence", "get", "shared", "report")
    assert (answer.code, answer.json["error"]["code"]) == (3, "EVIDENCE_AMBIGUOUS")
    assert fresh.actum("evidence", "get", wanted[0], "report").stdout == b"1"
    assert fresh.actum("evidence", "get", wanted[1], "report").stdout == b"2"


def test_what_is_not_there_is_refused_by_name(fresh: Terminal):
    done = left(fresh, b"x", "here").json
    nowhere = "0" * 64
    for words, code in (
        (("show", "elsewhere"), "EVIDENCE_UNKNOWN"),
        (("get", "elsewhere", "report"), "EVIDENCE_UNKNOWN"),
        (("get", nowhere), "EVIDENCE_UNKNOWN"),
        (("get", done["streams"]["stdout"]["sha256"][:-1] + "!"), "EVIDENCE_UNKNOWN"),
        (("get", "here", "../report"), "OUTPUT_UNKNOWN"),
    ):
        answer = fresh.json("evidence", *words)
        assert (answer.code, answer.json["error"]["code"]) == (3, code), words
    with Runtime.open(fresh.folder) as runtime, pytest.raises(Refused, match="elsewhere"):
        runtime.evidence("elsewhere")


def test_a_digest_gets_the_file_that_has_it_and_not_one_that_is_named_after_it(fresh: Terminal):
    digest = hashlib.sha256(b"genuine").hexdigest()
    imitation = f'printf imitated > "$ACTUM_ARTIFACTS/{digest}"'
    assert fresh.shell(imitation).code == 0
    answer = fresh.json("evidence", "get", digest)
    assert (answer.code, answer.json["error"]["code"]) == (3, "EVIDENCE_UNKNOWN")
    done = fresh.shell(f'{imitation}; printf genuine > "$ACTUM_ARTIFACTS/made"').json
    for words in ((digest,), (done["execution_id"], digest), (done["execution_id"], "made")):
        assert fresh.actum("evidence", "get", *words).stdout == b"genuine", words


@pytest.mark.parametrize("field", ["receipt_id", "execution_id", "evidence_ref"])
def test_a_later_request_cannot_take_over_an_id(fresh: Terminal, field: str):
    """Requesters choose `evidence_ref` and `execution_id`."""
    first = fresh.shell("echo genuine", "--session", "s").json
    taken = first[field]
    later = ["--session", "s", "--set", f'metadata.evidence_ref="{taken}"']
    assert fresh.shell("echo imitated", *later).code == 0
    if field == "receipt_id":
        assert fresh.shell("echo imitated", "--set", f'execution_id="{taken}"').code == 0
    (record,) = fresh.json("evidence", "show", taken).json["evidence"]
    assert record["execution_id"] == first["execution_id"]
    assert fresh.actum("evidence", "get", taken, "stdout").stdout == b"genuine\n"


def test_a_later_execution_cannot_hide_a_reference_behind_its_id(fresh: Terminal):
    first = left(fresh, b"1", "ticket-8").json
    assert fresh.shell("echo imitated", "--set", 'execution_id="ticket-8"').code == 0
    (record,) = fresh.json("evidence", "show", "ticket-8").json["evidence"]
    assert record["execution_id"] == first["execution_id"]


def test_a_file_is_not_written_through_a_link_that_a_tool_left(fresh: Terminal, tmp_path: Path):
    other = tmp_path / "other"
    other.write_text("mine")
    script = f'printf chosen > "$ACTUM_ARTIFACTS/made"; ln -s {other} out; echo old > there'
    done = fresh.shell(script).json
    get = ("evidence", "get", done["execution_id"], "made", "-o")
    assert (fresh.folder / "out").is_symlink()
    refused = fresh.actum(*get, "out")
    assert (refused.code, "symbolic link" in refused.aside) == (2, True)
    assert other.read_text() == "mine"
    assert fresh.actum(*get, "there").code == 0  # the control
    assert (fresh.folder / "there").read_text() == "chosen"
