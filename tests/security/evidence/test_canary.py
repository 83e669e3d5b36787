"""A marker that goes in and comes out everywhere is found only where raw bytes may rest.

Those places are the session store, which dies with its session, and the evidence store: the tables
`evidence_records` and `blobs`, and the folder `evidence/`. Everywhere else there are digests.
"""

from __future__ import annotations

import base64
import logging
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from actum import Runtime
from actum.contract.model import RunnerKind
from actum.project import create

MARK = "canary-7f3a91c2"
#: The same bytes in the other forms in which they could lie around.
FORMS = {
    MARK.encode(),
    MARK.encode().hex().encode(),
    MARK.encode("utf-16-le"),
    *(base64.b64encode(pad + MARK.encode())[4:-4] for pad in (b"", b"a", b"ab")),
}
EVIDENCE_TABLES = {"evidence_records", "blobs"}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    root = tmp_path / "project"
    create(root, RunnerKind.LOCAL, by="user:test", date="2031-01-01")
    (root / "given.txt").write_text(f"{MARK} in a file")
    return root


def run_everything(project: Path, session: str | None) -> list[str]:
    """The marker as stdin, environment, file, argument, output, artifact, refusal."""
    said: list[str] = []
    with Runtime.open(project, session=session) as runtime:
        script = (
            "cat given.txt; echo $LANG; echo out $0; echo err >&2;"
            f" echo {MARK} | tee /dev/stderr; echo {MARK} > $ACTUM_ARTIFACTS/made.txt; exit 3"
        )
        ran = runtime.exec(
            "shell",
            stdin=script,
            cwd=project,
            env={"LANG": f"{MARK}.UTF-8"},
            files=("given.txt",),
            purpose=f"look at {MARK}",
            set={"outputs.artifacts": ["made.txt"]},
        )
        assert ran.result is not None, ran
        assert MARK in ran.result.stdout
        assert MARK in ran.result.stderr
        searched = runtime.exec("ripgrep", parameters={"pattern": MARK, "path": "."}, cwd=project)
        assert searched.result is not None, searched
        assert MARK in searched.result.stdout
        refused = runtime.exec("git", "push", MARK, f"$({MARK})", cwd=project)
        assert refused.outcome == "REJECTED"
        killed = runtime.exec("shell", stdin=f"echo {MARK}; sleep 60", cwd=project, timeout="1s")
        assert killed.outcome == "TIMED_OUT"
        for broken in ({"tool_id": "TL-010", MARK: 1}, f"{MARK}: [", MARK.encode()):
            with pytest.raises(Exception) as caught:
                runtime.execute(broken)
            said.append(type(caught.value).__name__)
        # The inputs are the caller's own bytes; records about them are not.
        for result in (ran, killed, searched):
            assert MARK not in (result.result.error_reason or "") if result.result else True
    return said


def holders(home: Path) -> set[str]:
    """Every file, and every table of the database, that holds the marker in any form."""
    found = set()
    with sqlite3.connect(home / "actum.db") as connection:
        # All into the one file, and nothing left of what was overwritten.
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        tables = [
            name
            for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        ]
        for table in tables:
            for row in connection.execute(f"SELECT * FROM {table}"):
                raw = b"\x00".join(
                    value if isinstance(value, bytes) else str(value).encode() for value in row
                )
                if any(form in raw for form in FORMS):
                    found.add(f"table {table}")
    connection.close()
    for path in home.rglob("*"):
        if path.is_file() and not path.name.startswith("actum.db"):
            raw = path.read_bytes()
            if any(form in raw or form in str(path).encode() for form in FORMS):
                found.add(path.relative_to(home).parts[0])
    return found


@pytest.mark.sandbox
@pytest.mark.req("000-80")
def test_the_marker_rests_only_in_the_session_and_evidence_stores(
    project: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    assert run_everything(project, "kept") != []
    found = holders(project / ".actum")
    assert found == {"session", *(f"table {name}" for name in EVIDENCE_TABLES)}
    assert MARK not in caplog.text


@pytest.mark.sandbox
@pytest.mark.req("000-80")
def test_when_the_session_ends_its_bytes_are_gone_and_the_evidence_is_not(project: Path) -> None:
    home = project / ".actum"
    run_everything(project, "kept")
    assert "session" in holders(home)
    with Runtime.open(project) as runtime:
        runtime.services.sessions.end("kept")
    assert holders(home) == {f"table {name}" for name in EVIDENCE_TABLES}
    run_everything(project, None)  # a session of its own ends when the runtime is closed
    assert "session" not in holders(home)


@pytest.mark.sandbox
def test_the_scan_would_see_the_marker_in_any_other_table(project: Path) -> None:
    """The control: the scan is not blind."""
    home = project / ".actum"
    with Runtime.open(project) as runtime:
        runtime.exec("shell", stdin="true", cwd=project)
        with runtime.database.transaction() as cursor:
            cursor.execute("UPDATE executions SET session = ?", (f"x{MARK}",))
    (home / "keys" / "note.txt").write_bytes(base64.b64encode(f"hello {MARK}!".encode()))
    assert {"table executions", "keys"} <= holders(home)


@pytest.mark.sandbox
def test_neither_our_own_lines_nor_a_fault_repeat_the_marker(project: Path) -> None:
    (project / "tools.lock").write_text("{}")  # nothing may run: what is said about it?
    command = [sys.executable, "-m", "actum.doors.cli.main", "exec", "shell"]
    for extra in ([], ["--json"]):
        ended = subprocess.run(
            [*command, "--stdin", "-", "--env", f"LANG={MARK}", "--cwd", str(project), *extra],
            input=f"echo {MARK}".encode(),
            capture_output=True,
            cwd=project,
            check=False,
        )
        assert ended.returncode == 3, ended
        assert MARK.encode() not in ended.stdout + ended.stderr
