"""How a tool ended, as `actum exec` reports it."""

from __future__ import annotations

import json
import os
import signal

import pytest

from actum import Runtime

from .conftest import approve
from .terminal import Terminal, alive, eventually, unique_nap

pytestmark = pytest.mark.sandbox


@pytest.mark.req("000-75", "000-81")
def test_zero_is_success(project: Terminal):
    answer = project.shell("echo hello")
    assert answer.code == 0
    assert answer.json["outcome"] == "SUCCEEDED"
    assert answer.json["result"]["status"] == "success"
    assert answer.json["result"]["stdout"] == "hello\n"
    assert answer.json["result"]["exit_code"] == 0
    assert answer.json["result"]["error_reason"] is None


@pytest.mark.req("000-75", "000-82")
@pytest.mark.parametrize("code", [1, 3, 125])
def test_a_code_up_to_125_is_the_tools_own_error(project: Terminal, code: int):
    answer = project.shell(f"exit {code}")
    assert answer.code == 1
    assert (answer.json["outcome"], answer.json["result"]["exit_code"]) == ("TOOL_ERROR", code)


@pytest.mark.req("000-83")
def test_126_is_permission_denied_and_escalated(fresh: Terminal):
    assert fresh.shell("exit 125").json["outcome"] == "TOOL_ERROR"
    assert fresh.json("approvals", "list").json["approvals"] == []
    answer = fresh.shell("exit 126")
    assert (answer.code, answer.json["outcome"]) == (1, "PERMISSION_DENIED")
    (told,) = fresh.json("approvals", "list").json["approvals"]
    assert (told["kind"], told["gate_type"]) == ("escalation", "EXIT-126")
    assert answer.json["execution_id"] in str(told)


@pytest.mark.req("000-84")
def test_127_is_command_not_found(project: Terminal):
    answer = project.shell("no-such-program")
    assert (answer.code, answer.json["outcome"]) == (1, "COMMAND_NOT_FOUND")
    found = {"command": "sh", "allowed": True, "entry": "sh", "why": ""}
    assert answer.json["allowlist"] == found
    assert "sh is on the tool's allowlist" in answer.json["result"]["error_reason"]
    (record,) = project.json("evidence", "show", answer.json["evidence_ref"]).json["evidence"]
    assert record["allowlist"] == found
    other = project.shell("exit 1").json
    assert other["allowlist"] is None


@pytest.mark.req("000-84")
def test_127_says_if_the_command_is_not_on_the_allowlist_any_more(fresh: Terminal):
    """The allowlist is looked at again when the tool has ended."""
    file = fresh.folder / "tools/shell/tool.yaml"

    def take_back(_stream: str, _content: bytes) -> None:
        file.write_text(file.read_text().replace("    - sh\n", "    - sh --version\n"))
        approve(fresh, "shell")

    with Runtime.open(fresh.folder) as runtime:
        script = "echo started; exit 127"
        result = runtime.exec("shell", stdin=script, cwd=fresh.folder, on_output=take_back)
        assert result.outcome == "COMMAND_NOT_FOUND"
        assert result.allowlist is not None
        assert (result.allowlist.command, result.allowlist.allowed) == ("sh", False)
        record = runtime.evidence(result.evidence_ref).record
    assert (record["allowlist"]["allowed"], record["allowlist"]["entry"]) == (False, None)
    assert "sh --version" in record["allowlist"]["why"]


@pytest.mark.req("000-86")
def test_137_without_proof_is_no_out_of_memory(project: Terminal):
    answer = project.shell("exit 137")
    assert (answer.code, answer.json["outcome"]) == (1, "TOOL_ERROR")
    assert answer.json["result"]["exit_code"] == 137


@pytest.mark.req("000-85", "000-86", "000-88")
def test_a_tool_that_kills_itself_is_signal_9_and_not_out_of_memory(project: Terminal):
    answer = project.shell("kill -9 $$")
    assert (answer.code, answer.json["outcome"]) == (1, "TOOL_ERROR")
    assert answer.json["result"]["exit_code"] == 128 + 9
    assert "SIGKILL" in answer.json["result"]["error_reason"]
    memory = next(row for row in answer.json["enforcement"] if row["limit"] == "memory_mb")
    assert not memory["tripped"]
    shown = project.json("receipts", "show", answer.json["receipt_id"]).json
    assert shown["statement"]["predicate"]["ending"]["signal"] == 9


def test_the_tools_own_code_is_returned_on_request(project: Terminal):
    words = ("exec", "shell", "--stdin", "-", "--exit-code", "tool")
    assert project.actum(*words, stdin=b"exit 42").code == 42


_ALLOCATE = "python3 -c 'x = bytearray({} * 1024 * 1024); print(len(x))'"


@pytest.mark.req("000-12", "000-36", "000-86", "004-13")
@pytest.mark.parametrize(
    "script",
    [f"exec {_ALLOCATE.format(300)}", f"{_ALLOCATE.format(300)}; echo survived; exit 0"],
    ids=["the tool itself", "only a child of the shell"],
)
def test_too_much_memory_kills_the_whole_tree(project: Terminal, script: str):
    answer = project.shell(script, "--set", "sandbox.memory_mb=64")
    assert answer.code == 5
    assert answer.json["outcome"] == "RESOURCE_KILLED"
    assert answer.json["result"]["status"] == "killed"
    assert answer.json["result"]["exit_code"] == 137
    memory = next(row for row in answer.json["enforcement"] if row["limit"] == "memory_mb")
    assert memory["tripped"]
    assert memory["requested"] == "64"


@pytest.mark.req("000-36")
def test_memory_is_counted_over_all_processes_together(project: Terminal):
    hold = "python3 -c 'import time; x = bytearray(40 * 1024 * 1024); time.sleep(2)'"
    limit = ("--set", "sandbox.memory_mb=80")
    assert project.shell(hold, *limit).json["outcome"] == "SUCCEEDED"
    answer = project.shell(f"{hold} & {hold} & {hold} & wait", *limit)
    assert answer.json["outcome"] == "RESOURCE_KILLED"


def test_the_same_allocation_fits_a_larger_limit(project: Terminal):
    answer = project.shell(_ALLOCATE.format(300), "--memory", "512M")
    assert answer.json["result"]["stdout"] == f"{300 * 1024 * 1024}\n"


@pytest.mark.req("000-11", "000-33", "000-179")
@pytest.mark.parametrize("timeout_ms", [3_000, 6_000])
def test_a_tool_is_stopped_at_its_deadline_and_neither_before_nor_long_after(
    project: Terminal, timeout_ms: int
):
    """As long as the runner itself measured by the monotonic clock; a tool that ends earlier,
    though late, lives."""
    nap = unique_nap()
    limit = ("--timeout", f"{timeout_ms}ms")
    stopped = project.shell(f"sleep {nap}", *limit).json
    assert stopped["outcome"] == "TIMED_OUT"
    assert timeout_ms <= stopped["result"]["duration_ms"] < 2 * timeout_ms
    (row,) = [row for row in stopped["enforcement"] if row["limit"] == "timeout_ms"]
    assert (row["tripped"], row["peak"]) == (True, stopped["result"]["duration_ms"])
    lived = project.shell(f"sleep {timeout_ms * 0.6 / 1000}", *limit).json
    assert lived["outcome"] == "SUCCEEDED"
    assert timeout_ms * 0.6 <= lived["result"]["duration_ms"] < timeout_ms


@pytest.mark.req("000-87")
def test_a_sleeper_is_stopped_at_its_deadline_and_keeps_what_it_said(project: Terminal):
    nap = unique_nap()
    answer = project.shell(f"echo before; sleep {nap}; echo after", "--timeout", "1s")
    assert answer.code == 4
    assert answer.json["outcome"] == "TIMED_OUT"
    assert answer.json["result"]["status"] == "timeout"
    assert answer.json["result"]["exit_code"] == 143
    assert answer.json["result"]["stdout"] == "before\n"
    assert alive(nap) == []


@pytest.mark.req("000-87", "004-13", "004-52")
def test_nothing_of_a_stubborn_tree_is_left_after_its_deadline(project: Terminal):
    nap = unique_nap()
    # Ignores SIGTERM, leaves its session and its parent, and keeps the pipes open.
    script = f"""
        trap '' TERM
        echo before
        ( setsid sh -c 'sleep {nap}' & )
        sleep {nap}
    """
    running = project.start("exec", "shell", "--stdin", "-", "--timeout", "2s", "--json")
    assert running.stdin
    running.stdin.write(script.encode())
    running.stdin.close()
    running.stdin = None
    eventually(lambda: len(alive(nap)) >= 2, "both sleepers run")
    stdout, _ = running.communicate(timeout=60)
    document = json.loads(stdout)
    assert running.returncode == 4
    assert (document["outcome"], document["result"]["exit_code"]) == ("TIMED_OUT", 143)
    assert document["result"]["stdout"] == "before\n"
    assert alive(nap) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda n: n.name)
def test_a_signal_cancels_the_tool_and_the_record_says_so(project: Terminal, number: int):
    nap = unique_nap()
    words = ("exec", "shell", "--stdin", "-")
    running = project.start(*words, start_new_session=True)
    assert running.stdin
    running.stdin.write(f"echo started; sleep {nap}".encode())
    running.stdin.close()
    running.stdin = None
    eventually(lambda: bool(alive(nap)), "the tool sleeps")
    os.killpg(running.pid, number)  # as a terminal does: everything in the group gets it
    stdout, stderr = running.communicate(timeout=60)
    assert running.returncode == 130
    assert stdout == b"started\n"
    assert b"CANCELLED" in stderr
    assert alive(nap) == []
    newest = project.json("receipts", "list", "--limit", "1").json["receipts"][0]
    assert newest["outcome"] == "CANCELLED"


@pytest.mark.req("000-20", "000-42")
def test_one_child_too_many_cannot_be_created(project: Terminal):
    script = "for each in 1 2 {}; do sleep {} & done; wait; echo all"
    limit = ("--set", "sandbox.processes.max_children=2")
    assert project.shell(script.format("", "0.1"), *limit).json["result"]["stdout"] == "all\n"
    answer = project.shell(script.format("3", "20"), *limit)
    assert answer.json["outcome"] == "TOOL_ERROR"
    assert "fork" in answer.json["result"]["stderr"]
    children = next(row for row in answer.json["enforcement"] if row["limit"] == "max_children")
    assert children["tripped"]
