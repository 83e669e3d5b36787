"""Agents that are programs: they call tools at a door inside, and are held like any program."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from actum import Runtime
from hostile.jail import alive, marker

from .shop import add_program, item, make_project, opened, run_program

pytestmark = pytest.mark.sandbox


def _calls(rt: Runtime, receipt_id: str) -> list[dict[str, Any]]:
    """The receipts of everything that names this receipt as its parent."""
    found = []
    for kept in rt.services.receipts.latest(100):
        import base64

        payload = json.loads(base64.b64decode(kept.envelope["payload"]))
        if payload["predicate"]["parent_receipt"] == receipt_id:
            found.append(payload["predicate"])
    return found


def test_a_program_works_in_the_workspace_and_calls_tools(tmp_path: Path) -> None:
    project = make_project(tmp_path / "p", {"in.txt": "needle\n"})
    result = run_program(
        project,
        """
        import json, os, subprocess
        item = json.load(open(os.environ["ACTUM_ITEM"]))
        open("own.txt", "w").write(item["description"])
        said = subprocess.run(["actum-tool", "call", "ripgrep", "-p", "pattern=needle", "-p",
            "path=in.txt"], capture_output=True, text=True)
        open("found.txt", "w").write(str("needle" in said.stdout))
        script = "cat own.txt > copied.txt; echo to-stderr >&2; exit 5"
        said = subprocess.run(["actum-tool", "call", "shell", "--stdin"], input=script,
            capture_output=True, text=True)
        open("code.txt", "w").write(f"{said.returncode} {said.stderr}")
        names = subprocess.run(["actum-tool", "list"], capture_output=True, text=True).stdout
        open("names.txt", "w").write(names)
        """,
        agent={"tools": ["ripgrep", "shell"]},
        description="Find it",
    )
    assert result.status == "success", result
    assert (project / "own.txt").read_text() == "Find it"
    assert (project / "copied.txt").read_text() == "Find it"
    assert (project / "found.txt").read_text() == "True"
    assert (project / "code.txt").read_text() == "5 to-stderr\n"
    listed = (project / "names.txt").read_text().splitlines()
    assert [line.split("\t")[0] for line in listed] == ["ripgrep", "shell"]
    assert result.metrics.tool_ops_count == 2
    with opened(project) as rt:
        calls = _calls(rt, result.receipt_id)
    # Two calls and the program itself, each with a receipt that names the item's.
    assert sorted(call["tool"]["id"] for call in calls) == ["TL-003", "TL-010", "TL-010"]


def test_the_same_tools_by_the_model_context_protocol(tmp_path: Path) -> None:
    project = make_project(tmp_path / "p")
    result = run_program(
        project,
        """
        import json, subprocess
        server = subprocess.Popen(["actum-tool", "mcp"], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, text=True)
        def ask(number, method, params):
            message = {"jsonrpc": "2.0", "id": number, "method": method, "params": params}
            server.stdin.write(json.dumps(message) + "\\n"); server.stdin.flush()
            return json.loads(server.stdout.readline())
        hello = ask(1, "initialize", {"protocolVersion": "2025-06-18"})
        server.stdin.write('{"jsonrpc": "2.0", "method": "notifications/initialized"}\\n')
        tools = ask(2, "tools/list", {})
        done = ask(3, "tools/call", {"name": "shell", "arguments": {"stdin": "echo by mcp"}})
        odd = ask(4, "resources/list", {})
        json.dump([hello, tools, done, odd], open("told.json", "w"))
        """,
    )
    assert result.status == "success", result
    hello, tools, done, odd = json.loads((project / "told.json").read_text())
    assert hello["result"]["serverInfo"]["name"] == "actum"
    assert "shell" in [tool["name"] for tool in tools["result"]["tools"]]
    assert done["result"] == {"content": [{"type": "text", "text": "by mcp\n"}], "isError": False}
    assert odd["error"]["code"] == -32601


def test_the_calls_of_a_program_count_and_end_it(tmp_path: Path) -> None:
    project = make_project(tmp_path / "p")
    result = run_program(
        project,
        """
        import subprocess
        for number in range(51):
            subprocess.run(["actum-tool", "call", "shell", "--stdin"], input="true", text=True)
        open("survived.txt", "w").write("x")
        """,
        constraints={"max_tool_ops": 5, "timeout_ms": 60_000},
    )
    assert (result.status, result.denial_reason) == ("denied", "Exceeded max tool ops: 6 > 5")
    assert not (project / "survived.txt").exists()


HOSTILE = {
    "fails": ("raise SystemExit(7)", "failure", "exit code 7"),
    "is missing": (None, "failure", "127"),
    "hangs": ("import time; time.sleep(600)", "timeout", "longer than"),
    "asks for a tool that is not listed": (
        """
        import subprocess
        raise SystemExit(subprocess.run(["actum-tool", "call", "git", "status"]).returncode)
        """,
        "failure",
        "TOOL_NOT_LISTED",
    ),
    "floods the door": (
        """
        import os, socket
        host, port = os.environ["ACTUM_TOOLS"].split(":")
        many = [socket.create_connection((host, int(port))) for _ in range(50)]
        for each in many: each.sendall(b'{"ask": "call", "call": {"tool": "shell"}}\\n' * 50)
        import time; time.sleep(600)
        """,
        "denied",
        "Exceeded max tool ops",
    ),
    "talks nonsense to the host": (
        """
        import os
        # The way to the host is the carrier's stdout; it has the same user.
        carrier = os.getppid()
        with open(f"/proc/{carrier}/fd/1", "wb", buffering=0) as way:
            way.write(b"\\xff nonsense\\n")
        import time; time.sleep(600)
        """,
        "failure",
        "",
    ),
    "touches too many files": (
        "for number in range(12): open(f'f{number}', 'w').write('x')",
        "denied",
        "Exceeded max files: 12 > 10",
    ),
    "leaves a pipe": ("import os; os.mkfifo('pipe')", "denied", "pipe"),
    "fills the disk": (
        """
        with open("big", "wb") as file:
            while True: file.write(bytes(1 << 20))
        """,
        "failure",
        "",
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_program_that(tmp_path: Path, name: str) -> None:
    script, status, reason = HOSTILE[name]
    project = make_project(tmp_path / "p")
    agent: dict[str, Any] = {"tools": ["shell"]}
    if script is None:
        agent["command"] = ["no-such-program"]
    limits = {"max_tool_ops": 5, "timeout_ms": 5_000 if name == "hangs" else 30_000}
    result = run_program(project, script or "", agent=agent, constraints=limits)
    assert result.status == status, result
    assert reason in f"{result.error}{result.denial_reason}"
    assert sorted(entry.name for entry in project.iterdir() if entry.name[0] in "bfp") == ["bot.py"]


def test_nothing_of_a_program_outlives_its_item(tmp_path: Path) -> None:
    project = make_project(tmp_path / "p")
    mark = marker()
    result = run_program(
        project,
        f"""
        import os, subprocess
        subprocess.Popen(["sleep", "{mark}"], start_new_session=True)
        open("done.txt", "w").write("x")
        """,
    )
    assert result.status == "success", result
    assert alive(mark) == []


def test_what_governs_stays_as_it_is(tmp_path: Path) -> None:
    """It may write in the workspace; not what decides about it, nor what git would run."""
    project = make_project(tmp_path / "p", {".git/hooks/sample": "x", ".git/config": "[core]\n"})
    outside = tmp_path / "outside.txt"
    outside.write_text("precious")
    result = run_program(
        project,
        f"""
        import os
        def attempt(path):
            try:
                open(path, "a").write("evil")
            except OSError:
                return
            open("broken.txt", "a").write(path)
        for path in ("actum.toml", "tools.lock", "agents/agent-1.yaml", "tools/x",
                ".git/hooks/post-commit", ".git/config", ".actum/x"):
            attempt(path)
        try:
            # Files beside the project are not there. In its place a file of the sandbox's own
            # may be made, which is gone with it.
            open({str(outside)!r}, "a").write("evil")
        except OSError:
            pass
        os.symlink({str(outside)!r}, "way-out")
        """,
    )
    assert result.status == "success", result
    broken = project / "broken.txt"
    assert not broken.exists(), broken.read_text()
    assert outside.read_text() == "precious"
    # A link is data: it is committed as a link, and nothing was followed.
    assert os.readlink(project / "way-out") == str(outside)
    assert not (project / ".git/hooks/post-commit").exists()


@pytest.mark.req("002-84")
def test_a_program_has_all_the_time_of_its_item_unless_its_file_says_less(tmp_path: Path) -> None:
    project = make_project(tmp_path / "p")
    for given, longest in ((None, 300_000), (20_000, 20_000)):
        agent = {} if given is None else {"set": {"sandbox.timeout_ms": given}}
        add_program(project, "", **agent)
        with opened(project) as rt:
            result = rt.work(item(description=f"With {longest}"))
            assert result.status == "success", result
            (program,) = _calls(rt, result.receipt_id)
        allowed = program["policy"]["document"]["limits"]["timeout_ms"]
        assert longest - 60_000 < allowed <= longest
    slow = {"set": {"sandbox.timeout_ms": 1_000}}
    script = "import time; open('half', 'w').write('x'); time.sleep(600)"
    result = run_program(project, script, agent=slow)
    assert result.status == "timeout"
    assert not (project / "half").exists()
    assert "program took longer than its own 1000 ms (sandbox.timeout_ms" in str(result.error)
