"""`actum gc --keep`: contents go by their age, records stay, and verification says what went."""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from acceptance.conftest import make_project
from actum import Runtime
from actum.errors import Refused
from actum.evidence.expiry import Expiry
from actum.value import replace

pytestmark = pytest.mark.sandbox

LARGE = 300_000  #: over the size of content that goes into the database
_SCRIPT = """
printf small-{name} > "$ACTUM_ARTIFACTS/small"
head -c {size} /dev/zero | tr '\\0' '{letter}' > "$ACTUM_ARTIFACTS/large"
echo printed-{name}
echo changed-{name} > {name}.txt
"""


class Home:
    """One execution from 40 days ago and one from now, each with output, files and changes."""

    def __init__(self, folder: Path) -> None:
        self.project = make_project(folder)
        self.folder = folder
        self.home = folder / ".actum"
        self.old = self.run("old", "o", timedelta(days=40))
        self.new = self.run("new", "n", timedelta())

    def run(self, name: str, letter: str, ago: timedelta) -> dict[str, Any]:
        with Runtime.open(self.folder, session="kept", pool=False) as rt:
            rt.services = replace(rt.services, clock=lambda: datetime.now(UTC) - ago)
            script = _SCRIPT.format(name=name, letter=letter, size=LARGE)
            wanted = {"outputs.artifacts": ["small", "large"]}
            result = rt.exec("shell", stdin=script, set=wanted, cwd=self.folder).check()
            found: dict[str, Any] = result.document()
        then = time.time() - ago.total_seconds()
        for artifact in found["result"]["artifacts"]:
            path = self.home / "evidence" / artifact["blake3"][:2] / artifact["blake3"]
            if path.exists():
                os.utime(path, (then, then))
        for record in (self.home / "transactions").glob(f"{found['execution_id']}-*/record.json"):
            os.utime(record, (then, then))
        return found

    def get(self, of: dict[str, Any], name: str) -> Any:
        return self.project.json("evidence", "get", of["receipt_id"], name)

    def gc(self, *words: str) -> Any:
        answer = self.project.json("gc", *words)
        assert answer.code == 0, answer.aside
        return answer.json


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Home:
    return Home(tmp_path_factory.mktemp("expiry") / "d")


def _holds(database: Path, content: bytes) -> bool:
    return any(
        content in path.read_bytes() for path in database.parent.glob("actum.*") if path.is_file()
    )


def test_what_is_older_goes_and_the_records_say_so(shared: Home):
    before = shared.gc("--keep", "30d", "--dry-run")
    assert before["dry_run"] is True
    counts = {name: each["count"] for name, each in before["removed"].items()}
    assert (counts["raw outputs"], counts["collected files"], counts["changes"]) == (1, 2, 1)
    assert before["removed"]["collected files"]["bytes"] == LARGE + len("small-old")
    for name in ("small", "large", "stdout"):
        assert shared.get(shared.old, name).code == 0

    done = shared.gc("--keep", "30d")
    assert done["removed"] == before["removed"]
    for name, code in (
        ("small", "CONTENT_REMOVED"),
        ("large", "CONTENT_REMOVED"),
        ("stdout", "OUTPUT_REMOVED"),
    ):
        gone = shared.get(shared.old, name)
        assert (gone.code, gone.json["error"]["code"]) == (3, code)
        assert "actum gc" in gone.json["error"]["message"]
        assert shared.get(shared.new, name).code == 0
    assert not _holds(shared.home / "actum.db", b"small-old")
    assert _holds(shared.home / "actum.db", b"small-new")

    # Records, receipts and evidence records are all there.
    assert shared.project.json("receipts", "show", shared.old["receipt_id"]).code == 0
    record = shared.project.json("evidence", "show", shared.old["receipt_id"]).json["evidence"][0]
    assert len(record["files"]) == 2
    for words in (("--all",), (shared.old["receipt_id"],)):
        verified = shared.project.json("verify", *words)
        assert verified.code == 0, verified.text
        removed = [
            each for each in verified.json["findings"] if "removed by gc on" in each["detail"]
        ]
        assert len(removed) == 2

    # Changes that were kept for an undo.
    undo = shared.project.json("undo", shared.old["execution_id"])
    assert (undo.code, undo.json["error"]["code"]) == (3, "CHANGES_REMOVED")
    assert shared.project.actum("diff", shared.new["execution_id"]).code == 0
    (entry, *_) = [
        each for each in shared.project.json("log", "-n", "9").json["log"] if each["kind"] == "gc"
    ]
    assert entry["outcome"] == "removed"
    again = shared.gc("--keep", "30d")
    assert {each["count"] for each in again["removed"].values()} == {0}


def test_a_content_that_is_missing_without_a_record_is_still_reported(tmp_path: Path):
    home = Home(tmp_path / "d")
    database = sqlite3.connect(home.home / "actum.db")
    with database:
        database.execute("DELETE FROM blobs WHERE content = ?", (b"small-old",))
    database.close()
    assert home.project.actum("verify", "--all").code == 1
    assert home.project.actum("verify", home.old["receipt_id"]).code == 1
    # A record that is not in the signed log excuses nothing.
    blake3 = next(
        each["blake3"] for each in home.old["result"]["artifacts"] if each["name"] == "small"
    )
    forged = {"v": 3, "kind": "REMOVED", "ts": "2026-01-01T00:00:00.000Z", "contents": [blake3]}
    database = sqlite3.connect(home.home / "actum.db")
    with database:
        (last,) = database.execute("SELECT max(seq) FROM audit").fetchone()
        database.execute(
            "INSERT INTO audit (seq, record, nodes) VALUES (?, ?, ?)",
            (last + 1, json.dumps(forged).encode(), b"\0" * 32),
        )
    database.close()
    assert home.project.actum("verify", "--all").code == 1
    assert home.project.actum("verify", home.old["receipt_id"]).code == 1


def test_the_same_content_again_stays(tmp_path: Path):
    home = Home(tmp_path / "d")
    again = home.run("old", "o", timedelta())
    assert home.gc("--keep", "30d")["removed"]["collected files"]["count"] == 0
    for name in ("small", "large"):
        assert home.get(home.old, name).code == 0
        assert home.get(again, name).code == 0


def test_content_that_is_stored_again_after_its_removal_is_expected_again(tmp_path: Path):
    home = Home(tmp_path / "d")
    assert home.gc("--keep", "30d")["removed"]["collected files"]["count"] == 2
    again = home.run("old", "o", timedelta())
    for name in ("small", "large"):
        assert home.get(again, name).code == 0
    assert home.project.actum("verify", "--all").code == 0
    large = next(each for each in again["result"]["artifacts"] if each["name"] == "large")
    path = home.home / "evidence" / large["blake3"][:2] / large["blake3"]
    home.gc()
    path.unlink()
    assert home.project.actum("verify", "--all").code == 1


class _Killed(Exception):
    pass


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[tuple[Home, Runtime]]:
    home = Home(tmp_path / "d")
    with Runtime.open(home.folder, session="kept", pool=False) as rt:
        yield home, rt


@pytest.mark.parametrize("where", ["remove_large", "remove_output"])
def test_a_crash_leaves_each_item_there_or_gone(
    opened: tuple[Home, Runtime], where: str, monkeypatch: pytest.MonkeyPatch
):
    home, rt = opened
    expiry = Expiry(rt.database, rt.services.ledger.log, rt.blobs, rt.services.sessions)
    owner = rt.blobs if where == "remove_large" else rt.services.sessions

    def die(*_arguments: Any) -> None:
        raise _Killed

    monkeypatch.setattr(owner, where, die)
    now = datetime.now(UTC)
    with pytest.raises(_Killed):
        expiry.remove(now - timedelta(days=30), now)
    monkeypatch.undo()
    verified = home.project.json("verify", "--all")
    assert verified.code == 0, verified.text
    left = home.gc("--keep", "30d")
    assert left["files"] >= 1
    assert home.project.actum("verify", "--all").code == 0
    assert home.get(home.old, "large").code == 3
    assert home.get(home.old, "stdout").code == 3
    assert home.get(home.new, "large").code == 0


def test_nothing_of_an_open_execution_or_a_waiting_decision_is_removed(tmp_path: Path):
    home = Home(tmp_path / "d")
    held = home.project.shell("mkdir -p rules; echo x > rules/new").json["workspace"]
    for record in (home.home / "transactions").glob("*/record.json"):
        os.utime(record, (0, 0))
    started = home.project.start("exec", "shell", "--stdin", "-", "--session", "kept")
    assert started.stdin is not None
    started.stdin.write(b"echo begun; sleep 8; echo done > $ACTUM_ARTIFACTS/end")
    started.stdin.close()
    started.stdin = None
    home.gc("--keep", "1h")
    _, said = started.communicate(timeout=120)
    assert started.returncode == 0, said
    assert home.project.actum("approvals", "show", held["request_id"]).code == 0
    decided = ("approve", held["request_id"], "--by", "boss", "--why", "test")
    assert home.project.actum("approvals", *decided).code == 0
    assert (home.folder / "rules/new").exists()
    assert home.project.actum("verify", "--all").code == 0


@pytest.mark.parametrize("keep", ["59m", "0s", "soon", "-1d", "30"])
def test_an_age_that_is_too_short_or_no_age_is_a_usage_error(shared: Home, keep: str):
    answer = shared.project.actum("gc", "--keep", keep)
    assert answer.code == 2
    assert "--keep" in answer.aside


def test_contents_of_the_library_say_that_they_were_removed(opened: tuple[Home, Runtime]):
    home, rt = opened
    expiry = Expiry(rt.database, rt.services.ledger.log, rt.blobs, rt.services.sessions)
    now = datetime.now(UTC)
    assert len(expiry.remove(now - timedelta(days=30), now).contents) == 2
    with pytest.raises(Refused, match="removed by `actum gc"):
        rt.evidence(home.old["receipt_id"]).read("small")
    assert rt.evidence(home.new["receipt_id"]).read("small") == b"small-new"
