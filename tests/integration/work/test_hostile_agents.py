"""Agents that attack: the way to the host, the door, the workspace and the time. Each is held, its
item ends by itself with a reason, and of what it did nothing is left but what was let in."""

from __future__ import annotations

import json
import os
import textwrap
from pathlib import Path
from typing import Any

import pytest

from .shop import add_program, item, make_project, opened, run_program

pytestmark = pytest.mark.sandbox

#: For programs that speak to the host in the carrier's place: they have the same user.
_WAY = """
import json, os, signal, socket, subprocess, time
CARRIER = os.getppid()
def say(line):
    with open(f"/proc/{CARRIER}/fd/1", "wb", buffering=0) as way:
        way.write(line + b"\\n")
def connect():
    host, port = os.environ["ACTUM_TOOLS"].split(":")
    return socket.create_connection((host, int(port)))
def call(*words, stdin=""):
    more = ["--stdin"] if stdin else []
    return subprocess.run(["actum-tool", "call", *words, *more], input=stdin, text=True,
        capture_output=True)
"""
_LISTENS_NO_MORE = "malformed message"

ENDED = {
    "stops its carrier": (
        "os.kill(CARRIER, signal.SIGSTOP); time.sleep(600)",
        ("timeout", "longer than its 5000 ms"),
    ),
    "never reads what is large": (
        """
        os.kill(CARRIER, signal.SIGSTOP)
        asks = {"ask": "call", "call": {"tool": "shell", "stdin": "head -c 90000 /dev/zero"}}
        for number in range(20): say(json.dumps({"id": number, "asks": asks}).encode())
        time.sleep(600)
        """,
        ("timeout", "longer than its 5000 ms"),
    ),
    "kills its carrier": (
        "os.kill(CARRIER, signal.SIGKILL); time.sleep(600)",
        ("failure", "it ended early: killed by SIGKILL"),
    ),
    "says 100 MB without an end": (
        """
        with open(f"/proc/{CARRIER}/fd/1", "wb", buffering=0) as way:
            for _ in range(100): way.write(b"x" * 1_000_000)
        time.sleep(600)
        """,
        ("failure", "message_bytes"),
    ),
    "greets again": (
        "say(b'{\"hello\": 1}'); time.sleep(600)",
        ("failure", _LISTENS_NO_MORE),
    ),
    "nests 100,000 lists": (
        "say(b'[' * 100_000 + b']' * 100_000); time.sleep(600)",
        ("failure", _LISTENS_NO_MORE),
    ),
    "counts to 10^5000": (
        "say(b'{\"id\": 1' + b'0' * 5_000 + b'}'); time.sleep(600)",
        ("failure", _LISTENS_NO_MORE),
    ),
    "is nobody in particular": (
        'say(b\'{"id": NaN, "asks": {}}\'); time.sleep(600)',
        ("failure", _LISTENS_NO_MORE),
    ),
    "says one thing twice": (
        'say(b\'{"ended": 1, "ended": 0}\'); time.sleep(600)',
        ("failure", _LISTENS_NO_MORE),
    ),
    "speaks no UTF-8": (
        'say(b\'{"ended": "\\xff\\xfe"}\'); time.sleep(600)',
        ("failure", _LISTENS_NO_MORE),
    ),
    "asks for ever what there is": (
        """
        with connect() as line, line.makefile("rwb") as lines:
            while True:
                lines.write(b'{"ask": "tools"}\\n'); lines.flush()
                if not lines.readline(): break
        time.sleep(600)
        """,
        ("denied", "more than 100 times which tools exist"),
    ),
    "asks for ever in wrong words": (
        """
        with connect() as line, line.makefile("rwb") as lines:
            while True:
                lines.write(b'{"ask": "wrong"}\\n'); lines.flush()
                if not lines.readline(): break
        time.sleep(600)
        """,
        ("denied", "Exceeded max tool ops: 6 > 5"),
    ),
    "asks for ever for what it may not have": (
        """
        for _ in range(50): call("git", "status")
        time.sleep(600)
        """,
        ("denied", "Exceeded max tool ops: 6 > 5"),
    ),
    "writes 10,000 files": (
        """
        for number in range(10_000): open(f"f{number}", "w").close()
        time.sleep(600)
        """,
        ("denied", "Exceeded max files"),
    ),
    "writes holes that take no room and a long time to read": (
        "for number in range(9): open(f'big{number}', 'w').truncate(1 << 29)",
        ("failure", "together larger than"),
    ),
    "leaves a socket": (
        "os.mknod('pipe', 0o140644)",
        ("denied", "Neither file, folder nor link: pipe"),
    ),
    "makes folders of great depth": (
        """
        for _ in range(3_000): os.mkdir("d" * 50); os.chdir("d" * 50)
        """,
        ("failure", "the path is longer than 4095 bytes"),
    ),
}


@pytest.mark.parametrize("name", ENDED)
def test_an_agent_is_ended_that(tmp_path: Path, name: str) -> None:
    script, (status, reason) = ENDED[name]
    project = make_project(tmp_path / "p")
    waits = 5_000 if status == "timeout" else 60_000
    limits = {"max_tool_ops": 50 if status == "timeout" else 5, "timeout_ms": waits}
    program = _WAY + textwrap.dedent(script)
    result = run_program(project, program, agent={"tools": ["shell"]}, constraints=limits)
    assert result.status == status, result
    assert reason in f"{result.error}{result.denial_reason}"


def _told(project: Path, script: str, **more: Any) -> dict[str, Any]:
    """What a program that does its work to the end has noted down."""
    program = _WAY + "told = {}\n" + textwrap.dedent(script)
    result = run_program(project, program + "\njson.dump(told, open('told.json', 'w'))\n", **more)
    assert result.status == "success", result
    told: dict[str, Any] = json.loads((project / "told.json").read_text())
    return told


def test_a_thousand_who_knock_do_not_close_the_door_for_good(tmp_path: Path) -> None:
    told = _told(
        make_project(tmp_path / "p"),
        """
        many = []
        for _ in range(1_000):
            try: many.append(connect())
            except OSError: pass
        told["many"] = len(many)
        for each in many:
            try: each.sendall(b'{"ask"')
            except OSError: pass
        for each in many: each.close()
        for _ in range(100):
            said = call("shell", stdin="echo still here")
            if said.returncode == 0: break
            time.sleep(0.1)
        told["said"] = said.stdout
        """,
    )
    assert told["many"] > 100
    assert told["said"] == "still here\n"


def test_whoever_does_not_read_its_answers_waits_alone(tmp_path: Path) -> None:
    told = _told(
        make_project(tmp_path / "p"),
        """
        asks = {"ask": "call", "call": {"tool": "shell", "stdin": "head -c 90000 /dev/zero"}}
        deaf = connect()
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        deaf.sendall(json.dumps(asks).encode() + b"\\n")
        told["said"] = call("shell", stdin="echo heard").stdout
        """,
    )
    assert told["said"] == "heard\n"


def test_a_line_without_an_end_closes_its_own_connection_only(tmp_path: Path) -> None:
    told = _told(
        make_project(tmp_path / "p"),
        """
        endless = connect()
        told["sent"] = 0
        try:
            for _ in range(100): told["sent"] += endless.send(b"x" * 1_000_000)
        except OSError: pass
        told["said"] = call("shell", stdin="echo heard").stdout
        """,
    )
    assert told["sent"] < 100_000_000
    assert told["said"] == "heard\n"


_BIG = "1" + "0" * 400
_DEEP = '{"a":' * 200 + "1" + "}" * 200


@pytest.mark.parametrize(
    "asks",
    [
        r'{"ask": "call", "call": {"tool": "shell", "stdin": "\ud800"}}',
        '{"ask": "call", "call": {"tool": "shell", "parameters": {"n": NaN}}}',
        f'{{"ask": "call", "call": {{"tool": "shell", "parameters": {{"n": {_BIG}}}}}}}',
        f'{{"ask": "call", "call": {{"tool": "shell", "parameters": {_DEEP}}}}}',
        '{"ask": "call", "call": {"tool": ["shell"]}}',
        '{"ask": "call", "call": {"tool": "shell", "stdin": 7}}',
        '{"ask": "call", "call": {"tool": "shell", "arguments": {"a": 1}}}',
        '{"ask": "call", "call": {"tool": "shell", "cwd": "/etc"}}',
        '{"ask": "call", "call": {"tool": "shell", "env": {"LD_PRELOAD": "x"}}}',
        '{"ask": "call"}',
        '{"ended": 0}',
        '{"hello": 1}',
    ],
    ids=range(12),
)
def test_a_call_of_another_shape_is_refused_by_name(tmp_path: Path, asks: str) -> None:
    project = make_project(tmp_path / "p", {"asks.json": asks})
    told = _told(
        project,
        """
        with connect() as line, line.makefile("rwb") as lines:
            lines.write(open("asks.json", "rb").read() + b"\\n"); lines.flush()
            told["answer"] = json.loads(lines.readline())
        told["said"] = call("shell", stdin="echo heard").stdout
        """,
    )
    assert told["answer"]["outcome"] == "REJECTED"
    assert told["answer"]["message"].startswith("CALL_MALFORMED: ")
    assert told["said"] == "heard\n"


def test_nothing_outside_is_read_through_a_call(tmp_path: Path) -> None:
    """Neither by its path nor through a link that was put there first."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.txt").write_text("precious\n")
    told = _told(
        make_project(tmp_path / "p", {"inside.txt": "precious\n"}),
        f"""
        os.symlink({str(outside)!r}, "folder")
        os.symlink({str(outside / "secret.txt")!r}, "file")
        told["found"] = {{}}
        for path in ("inside.txt", "folder/secret.txt", "file", {str(outside)!r}, "../outside"):
            said = call("ripgrep", "-p", "pattern=precious", "-p", f"path={{path}}")
            told["found"][path] = "precious" in said.stdout
        for path in ("inside.txt", "folder/secret.txt", "file"):
            said = call("shell", stdin=f"cat {{path}}")
            told["found"][f"cat {{path}}"] = "precious" in said.stdout
        for name in ("folder", "file"): os.unlink(name)
        """,
    )
    # The control: where it may look, it finds.
    assert told["found"].pop("inside.txt") and told["found"].pop("cat inside.txt")
    assert not any(told["found"].values()), told


def test_what_is_no_plain_file_comes_out_plain_or_not_at_all(tmp_path: Path) -> None:
    project = make_project(tmp_path / "p", {"a.txt": "a\n", "sub/b.txt": "b\n"})
    told = _told(
        project,
        """
        def attempt(name, do, *arguments):
            try: do(*arguments); told[name] = "done"
            except OSError as error: told[name] = error.strerror
        attempt("hard link", os.link, "a.txt", "linked.txt")
        attempt("hard link out", os.link, "/etc/passwd", "passwd")
        open("suid", "w").write("x"); attempt("setuid", os.chmod, "suid", 0o6755)
        attempt("device", os.mknod, "null", 0o20666, os.makedev(1, 3))
        attempt("whiteout", os.mknod, "sub/b.txt.gone", 0o20000, os.makedev(0, 0))
        for space in ("user", "trusted"):
            attempt(f"{space} mark", os.setxattr, "sub", f"{space}.overlay.opaque", b"y")
            attempt(f"{space} way", os.setxattr, "sub", f"{space}.overlay.redirect", b"/etc")
        open(b"odd\\n\\xff", "w").write("odd name")
        """,
    )
    assert told["hard link"] == "done"
    refused = ("hard link out", "device", "whiteout", "trusted mark", "trusted way")
    assert "done" not in {told[name] for name in refused}, told
    # Two files from now on: what one holds is no longer what the other does.
    (project / "linked.txt").write_text("other\n")
    assert (project / "a.txt").read_text() == "a\n"
    assert os.stat(project / "suid").st_mode & 0o7000 == 0
    assert (project / "sub/b.txt").read_text() == "b\n"
    assert os.listdir(project / "sub") == ["b.txt"]
    assert Path(os.fsdecode(os.fsencode(project) + b"/odd\n\xff")).read_text() == "odd name"


@pytest.mark.parametrize("files", [{}, {".git/hooks/sample": "x", ".git/config": "[core]\n"}])
def test_no_repository_that_git_would_obey_is_left_at_the_top(
    tmp_path: Path, files: dict[str, str]
) -> None:
    project = make_project(tmp_path / "p", files)
    before = _below(project / ".git")
    _told(
        project,
        """
        def attempt(do, *arguments):
            try: do(*arguments)
            except OSError: pass
        attempt(os.rename, ".git", "moved")
        attempt(os.makedirs, ".git/hooks")
        for name in (".git/hooks/post-commit", ".git/config", ".git/HEAD"):
            attempt(lambda: open(name, "w").write("[core]\\nfsmonitor = evil"))
        """,
    )
    assert _below(project / ".git") == before


def _below(folder: Path) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): path.read_text()
        for path in folder.rglob("*")
        if path.is_file()
    }


def test_an_item_that_rewrites_its_own_file_is_held_to_what_was_asked(tmp_path: Path) -> None:
    project = make_project(tmp_path / "p")
    asked = item(constraints={"max_files": 2, "timeout_ms": 60_000})
    (project / "item.yaml").write_text(json.dumps(asked))
    add_program(
        project,
        """
        import json
        asked = json.load(open("item.yaml"))
        asked["constraints"]["max_files"] = 1000
        json.dump(asked, open("item.yaml", "w"))
        for number in range(2): open(f"f{number}", "w").write("x")
        """,
    )
    with opened(project) as rt:
        result = rt.work(project / "item.yaml")
    assert (result.status, result.denial_reason) == ("denied", "Exceeded max files: 3 > 2")
    assert json.loads((project / "item.yaml").read_text()) == asked
