"""Every command on a disk without room, or read-only: a sentence with the remedy, never a name of
an exception; and with room again everything works."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from acceptance.conftest import make_project

pytestmark = pytest.mark.sandbox

#: Runs in a mount namespace of its own, with the project on a small tmpfs.
_PROGRAM = """
import json, os, subprocess, sys
from pathlib import Path

disk = Path(sys.argv[1]); disk.mkdir()
mount = lambda *words: subprocess.run(["mount", *words], check=True)
mount("-t", "tmpfs", "-o", "size=24M,mode=755", "tmpfs", str(disk))
command = [sys.executable, "-m", "actum.doors.cli.main"]
project = disk / "p"

def actum(*words, stdin="", cwd=project):
    done = subprocess.run([*command, *words], input=stdin, capture_output=True, text=True, cwd=cwd)
    return done.returncode, done.stdout[-2000:] + done.stderr[-2000:]

def say(case, words, answer):
    print(json.dumps([case, words[0], *answer]), flush=True)

assert actum("init", str(project), "--runner", "local", cwd=disk)[0] == 0
(project / "agents").mkdir()
steps = [{"tool": "shell", "stdin": "echo x > made"}]
(project / "agents/agent-1.yaml").write_text(json.dumps({"agent_id": "agent-1", "steps": steps}))
item = {"id": "i", "agent_id": "agent-1", "description": "x", "dependencies": []}
(project / "item.yaml").write_text(json.dumps(item))
ITEM = ("item", "run", "item.yaml")
EXEC = ("exec", "shell", "--stdin", "-")
for words in (EXEC, ITEM, EXEC):
    say("room", words, actum(*words, stdin="echo x > f"))
for left in (0, 40_960, 73_728, 151_552):
    room = os.statvfs(disk)
    with (disk / "filler").open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, max(1, room.f_bavail * room.f_frsize - left))
    for words in (EXEC, ITEM, ("receipts", "list")):
        say(f"full {left}", words, actum(*words, stdin="echo x > f"))
    (disk / "filler").unlink()
mount("-o", "remount,ro", str(disk))
for words in (EXEC, ITEM, ("receipts", "list"), ("init", "new", "--runner", "local")):
    say("read-only", words, actum(*words, stdin="true"))
mount("-o", "remount,rw", str(disk))
for words in (EXEC, ("verify", "--all")):
    say("again", words, actum(*words, stdin="echo x > f"))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a disk that is full")
def test_on_a_disk_without_room_every_command_says_what_to_do(tmp_path: Path) -> None:
    own_mounts = ["unshare", "--mount", "--propagation", "private"]
    done = subprocess.run(
        [*own_mounts, sys.executable, "-c", _PROGRAM, tmp_path / "disk"],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    bad = [each for each in answers if "Actum failed" in each[3] or "Traceback" in each[3]]
    assert bad == []
    faults = [each for each in answers if each[2] == 70]
    for case, word, _code, text in faults:
        said = ("Free space", "read-only", "It is safe in the database")
        assert any(remedy in text for remedy in said), (case, word, text)
    assert {word for case, word, *_ in faults if case.startswith("full")} >= {"exec", "item"}
    closed = [each[1] for each in faults if each[0] == "read-only"]
    assert closed[:3] == ["exec", "item", "receipts"]
    assert [each[2] for each in answers if each[0] in ("room", "again")] == [0] * 5


def test_a_store_that_another_process_holds_is_named(tmp_path: Path) -> None:
    project = make_project(tmp_path / "d")
    holder = sqlite3.connect(project.folder / ".actum/actum.db", isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    try:
        ran = project.actum("exec", "shell", "--stdin", "-", stdin=b"true")
        held = project.actum("receipts", "list")  # it has to write out the record first
    finally:
        holder.execute("ROLLBACK")
        holder.close()
    assert ran.code == 0, ran.aside  # its record is durable in the journal
    assert held.code == 70
    assert "held by another process" in held.aside
    assert "Try again" in held.aside
    assert project.actum("receipts", "list").code == 0
