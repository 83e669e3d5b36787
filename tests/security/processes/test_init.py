"""The init is out of the tool's reach: how a tool ended cannot be forged, delayed or hidden."""

from __future__ import annotations

import pytest

from actum import Outcome
from hostile.jail import Jail, alive, marker

pytestmark = pytest.mark.sandbox


@pytest.mark.parametrize("signal", ["KILL", "TERM", "INT", "STOP", "CHLD", "SEGV", "USR1", "HUP"])
def test_the_init_survives_a_signal(jail: Jail, signal: str) -> None:
    script = f"for i in 1 2 3 4 5; do kill -{signal} 1 2>/dev/null; done; echo alive; exit 5"
    result = jail.sh(script)
    assert result.outcome is Outcome.TOOL_ERROR
    assert result.result is not None
    assert (result.result.exit_code, result.result.stdout) == (5, "alive\n")


def test_the_tool_is_not_the_init_and_cannot_see_it(jail: Jail) -> None:
    assert int(jail.said(jail.sh("echo $$"))) > 1
    assert jail.said(jail.sh("ls -d /proc/1 2>/dev/null; true")) == ""


def test_killing_everything_ends_only_the_tool(jail: Jail) -> None:
    result = jail.sh("kill -9 -1; echo not reached")
    assert result.outcome in {Outcome.TOOL_ERROR, Outcome.SUCCEEDED}
    assert jail.said(jail.sh("echo next")) == "next"


@pytest.mark.req("000-10", "004-5")
def test_a_tool_starts_with_three_descriptors_and_nothing_more(jail: Jail) -> None:
    program = "import os\nprint(sorted(int(n) for n in os.listdir('/proc/self/fd')))"
    # The fourth is the listing's own.
    assert jail.said(jail.python(program)) == "[0, 1, 2, 3]"
    shell = (
        "for n in 3 4 5 6 7 8 9; do [ -e /proc/$$/fd/$n ] && readlink /proc/$$/fd/$n; done; true"
    )
    assert jail.said(jail.sh(shell)) == ""


def test_a_report_of_the_tools_own_is_just_output(jail: Jail) -> None:
    """Forged words on every descriptor there could be."""
    program = """
import json, os, socket
word = json.dumps({'kind': 'ended', 'wait_status': 0, 'violation': '', 'denials': []}).encode()
for fd in range(3, 1024):
    for send in (os.write, lambda fd, word: socket.socket(fileno=os.dup(fd)).send(word)):
        try:
            send(fd, word)
            print('sent on', fd)
        except OSError:
            pass
os.write(1, word)
os._exit(9)
"""
    result = jail.python(program)
    assert result.outcome is Outcome.TOOL_ERROR
    assert result.result is not None
    assert result.result.exit_code == 9
    assert "sent on" not in result.result.stdout


CLOSINGS = {
    "closed": "exec <&- >&- 2>&-; exit 6",
    "replaced by files": "exec </dev/null >/tmp/o 2>/tmp/e; echo hidden; exit 6",
    "swapped": "exec 3>&1 1>&2 2>&3; exit 6",
    "closed while a child writes": "(sleep 0.1; echo late) & exec >&-; wait; exit 6",
}


@pytest.mark.parametrize("what", CLOSINGS)
def test_the_ending_is_known_when_the_streams_are(jail: Jail, what: str) -> None:
    result = jail.sh(CLOSINGS[what])
    assert result.result is not None
    assert result.result.exit_code == 6


@pytest.mark.req("000-42")
def test_a_zombie_farm_is_bounded_and_reaped(jail: Jail) -> None:
    program = """
import os, time
made = 0
try:
    for _ in range(500):
        if os.fork() == 0:
            os._exit(0)
        made += 1
except BlockingIOError:
    pass
print(made)
"""
    limits = {"sandbox.processes.max_children": 20}
    assert jail.said(jail.python(program, limits=limits)) == "20"
    orphans = "i=0; while [ $i -lt 200 ]; do (true & ); i=$((i+1)); done; echo done"
    assert jail.said(jail.sh(orphans)) == "done"  # the init reaps what nobody waits for


def test_a_violation_in_a_grandchild_ends_the_whole_tree(jail: Jail) -> None:
    mark = marker()
    jail.attempt("x32")
    script = f"sleep {mark} & (./probe mount >/dev/null 2>&1); echo went on; sleep {mark}"
    result = jail.sh(script)
    assert result.outcome is Outcome.POLICY_VIOLATION
    assert jail.said(result) == ""
    assert alive(mark) == []


def test_a_storm_of_refused_calls_is_counted_and_bounded(jail: Jail) -> None:
    jail.attempt("x32")
    result = jail.sh("i=0; while [ $i -lt 100 ]; do ./probe ptrace; i=$((i+1)); done | wc -l")
    assert jail.said(result) == "100"
    assert [(it.kind, it.target, it.count) for it in result.denials] == [("syscall", "ptrace", 100)]


def test_stdout_and_stderr_can_be_opened_by_name(jail: Jail) -> None:
    result = jail.sh("echo out > /dev/stdout; echo err > /dev/stderr; echo o2 > /proc/self/fd/1")
    assert result.result is not None
    assert (result.result.stdout, result.result.stderr) == ("out\no2\n", "err\n")


@pytest.mark.req("000-10")
def test_stdin_is_the_contracts_and_never_the_hosts(jail: Jail) -> None:
    (jail.work / "read.py").write_text("import sys; print(sys.stdin.buffer.read())")
    contract = {
        "tool_id": "TL-011",
        "inputs": {
            "command": "python3",
            "arguments": ["read.py"],
            "working_directory": str(jail.work),
        },
    }
    result = jail.runtime.execute(contract)  # without inputs.stdin, the tool is at its end
    assert jail.said(result) == "b''"
    data = bytes(range(256))
    echoed = jail.runtime.exec(
        "shell", stdin=b"cat <<'E'\n" + data[32:127] + b"\nE\n", cwd=jail.work
    )
    assert echoed.result is not None
    assert echoed.result.stdout.encode() == data[32:127] + b"\n"
    kind = jail.said(jail.sh("[ -t 0 ] && echo terminal; readlink /proc/$$/fd/0"))
    assert "terminal" not in kind
