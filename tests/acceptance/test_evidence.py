"""`actum verify` holds what was recorded against what is there now, and names what differs."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from actum import Runtime
from actum.doors.cli.main import main
from common.journals import rewrite

from .terminal import Terminal

pytestmark = pytest.mark.sandbox


def run_with_files(project: Terminal) -> dict[str, str]:
    answer = project.shell(
        'echo {} > "$ACTUM_ARTIFACTS/r.json"; echo text > out.txt',
        *("--set", 'outputs.artifacts=["r.json"]', "--set", 'outputs.output_files=["out.txt"]'),
    )
    assert answer.code == 0, answer.stdout
    document: dict[str, str] = answer.json
    return document


def flip(path: Path, position: int, bit: int = 0) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1 << bit
    path.chmod(0o600)
    path.write_bytes(content)


def test_what_was_just_recorded_verifies_in_every_form(fresh: Terminal):
    done = run_with_files(fresh)
    for words in (
        (),
        (done["receipt_id"],),
        (done["execution_id"],),
        (done["receipt_path"],),
        ("--all",),
    ):
        answer = fresh.actum("verify", *words)
        assert answer.code == 0, answer.text
        assert "Verified" in answer.text.splitlines()[-1]


def test_a_receipt_file_with_any_byte_flipped_fails_and_is_named(
    fresh: Terminal, capsys: pytest.CaptureFixture[str]
):
    path = Path(run_with_files(fresh)["receipt_path"])
    sound = path.read_bytes()
    for position in [*range(0, len(sound), 89), len(sound) - 1]:
        flip(path, position, bit=position % 7)
        with pytest.raises(SystemExit) as ended:
            main(["verify", str(path), "--home", str(fresh.folder)])
        captured = capsys.readouterr()
        assert ended.value.code == 1, position
        assert "receipt" in captured.out + captured.err
        path.write_bytes(sound)
    flip(path, len(sound) // 2)
    for words in ((), ("--all",), (path.stem,), (str(path),)):
        answer = fresh.actum("verify", *words)
        assert answer.code == 1
        assert path.stem in answer.text + answer.aside


@pytest.mark.parametrize("size", [1, 300_000], ids=["small", "large"])
@pytest.mark.parametrize("name", ["artifact/f", "output_file/f"])
def test_a_kept_file_with_a_byte_flipped_fails_and_is_named(fresh: Terminal, name: str, size: int):
    kind = name.partition("/")[0]
    place = {"artifact": '"$ACTUM_ARTIFACTS/f"', "output_file": "f"}[kind]
    declared = {"artifact": 'outputs.artifacts=["f"]', "output_file": 'outputs.output_files=["f"]'}
    script = f"head -c {size} /dev/zero > {place}"
    done = fresh.shell(script, "--set", declared[kind]).json
    assert done["outcome"] == "SUCCEEDED"
    assert fresh.actum("verify").code == 0
    damage_evidence(fresh, done["result"]["artifacts"][0]["blake3"])
    for words in ((), (done["receipt_id"],), ("--all",)):
        answer = fresh.json("verify", *words)
        assert answer.code == 1
        broken = [each["subject"] for each in answer.json["findings"] if not each["passed"]]
        assert f"file {name}" in broken
        assert all(subject.startswith("file ") for subject in broken)


def damage_evidence(project: Terminal, blake3: str) -> None:
    """Small files are rows of the database, large ones are files of their own."""
    for kept in (project.folder / ".actum/evidence").rglob(blake3):
        flip(kept, 0)
        return
    with closing(sqlite3.connect(project.folder / ".actum/actum.db")) as database, database:
        changed = database.execute("UPDATE blobs SET content = x'01' WHERE blake3 = ?", (blake3,))
        assert changed.rowcount == 1


def test_a_changed_audit_record_fails_and_is_named(fresh: Terminal):
    fresh.shell("true")
    with closing(sqlite3.connect(fresh.folder / ".actum/actum.db")) as database, database:
        (newest,) = database.execute("SELECT max(seq) FROM audit").fetchone()
        # The store itself refuses changes; someone with the file in hand is not bound by that.
        for (trigger,) in database.execute(
            "SELECT name FROM sqlite_master WHERE type = 'trigger'"
        ).fetchall():
            database.execute(f"DROP TRIGGER {trigger}")
        database.execute(
            "UPDATE audit SET record = CAST(replace(CAST(record AS TEXT), 'SUCCEEDED', 'REJECTED')"
            " AS BLOB) WHERE seq = ?",
            (newest,),
        )
    answer = fresh.actum("verify", "--all")
    assert answer.code == 1
    assert f"BROKEN audit record {newest}" in answer.text


def test_a_receipt_alone_verifies_with_the_key_that_was_handed_out(fresh: Terminal, tmp_path: Path):
    done = run_with_files(fresh)
    key = tmp_path / "theirs.pub"
    key.write_text(fresh.json("keys", "show").json["pem"])
    elsewhere = Terminal(tmp_path)
    words = ("verify", done["receipt_path"], "--key", str(key))
    assert elsewhere.actum(*words).code == 0
    flip(Path(done["receipt_path"]), 400)
    assert elsewhere.actum(*words).code == 1


def test_receipts_and_traces_are_found_by_any_of_their_ids(fresh: Terminal):
    done = fresh.shell("true").json
    shown = [
        fresh.json("receipts", "show", done[name]).json for name in ("receipt_id", "execution_id")
    ]
    assert shown[0] == shown[1]
    assert shown[0]["envelope"] == json.loads(Path(done["receipt_path"]).read_text())
    traces = [
        fresh.json("trace", done[name]).json["events"]
        for name in ("execution_id", "trace_id", "receipt_id")
    ]
    assert traces[0] == traces[1] == traces[2]
    assert [each["event_type"] for each in traces[0]] == [
        "tool_run_start",
        "tool_run_resource_applied",
        "tool_run_output_captured",
        "tool_run_end",
    ]
    assert fresh.actum("trace", "nothing").code == 3


def test_a_changed_journal_is_named_and_what_is_filed_is_looked_at(fresh: Terminal):
    run_with_files(fresh)
    project = fresh.folder
    with Runtime.open(project) as runtime:
        for _ in range(2):
            assert runtime.exec("shell", stdin="true", cwd=project).outcome == "SUCCEEDED"
        sound = (project / ".actum" / "actum.journal").read_bytes()
        rewrite(project / ".actum", 0, lambda payload: payload[:-1] + b"?", tidy=True)
        answer = fresh.actum("verify", "--all", "--json")
        assert answer.code == 1
        broken = [each for each in answer.json["findings"] if not each["passed"]]
        assert [(each["subject"], each["check"]) for each in broken] == [("journal", "frames")]
        assert "frame 0 was not written by this home's key" in broken[0]["detail"]
        assert len(answer.json["findings"]) > 10
        answer = fresh.shell("true")  # and nothing starts in such a home
        assert answer.code != 0
        assert "AUDIT_LOG_FAILED" in answer.text + answer.aside
        (project / ".actum" / "actum.journal").write_bytes(sound)
    assert fresh.actum("verify", "--all").code == 0
