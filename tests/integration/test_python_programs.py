"""The `python` tool: a program on stdin, for which an interpreter waits; warm or not, the same."""

from __future__ import annotations

import json
import os
import time
from typing import Any

import pytest

from actum import Outcome, Runtime
from hostile.jail import Jail, alive, marker, until

pytestmark = pytest.mark.sandbox

#: Who waits for its program waits at a pipe; who is started for it finds a file.
_SAY_WHETHER_IT_WAITED = (
    "import os, stat, sys; print(stat.S_ISFIFO(os.fstat(0).st_mode), file=sys.stderr)\n"
)

_LOOK = """
import atexit, json, os, resource, signal, sys
status = dict(line.split(':', 1) for line in open('/proc/self/status').read().splitlines())
kept = ('Uid', 'Gid', 'Groups', 'CapEff', 'NoNewPrivs', 'Seccomp', 'SigBlk', 'SigIgn', 'SigCgt')
atexit.register(print, 'at the end')
print(json.dumps({
    'status': {name: status[name].strip() for name in kept},
    'argv': sys.argv, 'path': sys.path, 'flags': str(sys.flags), 'executable': sys.executable,
    'names': sorted(globals()), 'main': __name__, 'modules': sorted(sys.modules),
    'streams': [(each.encoding, each.errors, each.line_buffering, each.isatty())
                for each in (sys.stdin, sys.stdout, sys.stderr)],
    'descriptors': len(os.listdir('/proc/self/fd')), 'environment': dict(os.environ),
    'cwd': os.getcwd(), 'umask': os.umask(0o22), 'session': os.getsid(0) == os.getpid(),
    'command': open('/proc/self/cmdline').read(), 'rest': sys.stdin.read(),
    'limits': [resource.getrlimit(number) for number in range(16)],
    'recursion': sys.getrecursionlimit(), 'switch': sys.getswitchinterval(),
}))
"""


def ask(jail: Jail, program: str, *arguments: str) -> tuple[Any, bool]:
    """The result, and whether its interpreter was there before it was asked for."""
    text = _SAY_WHETHER_IT_WAITED + program
    result = jail.runtime.exec("python", *arguments, stdin=text, cwd=jail.work)
    assert result.result is not None, result.violations
    waited, _, stderr = result.result.stderr.partition("\n")
    return (result.outcome, result.result.stdout, stderr), waited == "True"


def ask_one_that_waits(jail: Jail, program: str, *arguments: str) -> Any:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        result, waited = ask(jail, program, *arguments)
        if waited:
            return result
        time.sleep(0.2)
    raise AssertionError("no interpreter ever waited for its program")


@pytest.mark.req("004-17")
def test_one_that_waited_finds_what_one_finds_that_did_not(own_jail: Jail) -> None:
    words = ("-x", "--", "a b")
    with Runtime.open(own_jail.root, pool=False) as plain:
        text = _SAY_WHETHER_IT_WAITED + _LOOK
        executed = plain.exec("python", *words, stdin=text, cwd=own_jail.work)
    assert executed.outcome is Outcome.SUCCEEDED and executed.result is not None
    assert executed.result.stderr == "False\n"
    outcome, stdout, stderr = ask_one_that_waits(own_jail, _LOOK, *words)
    assert (outcome, stderr) == (Outcome.SUCCEEDED, "")
    assert [json.loads(line) if line[0] == "{" else line for line in stdout.splitlines()] == [
        json.loads(line) if line[0] == "{" else line for line in executed.result.stdout.splitlines()
    ]
    assert json.loads(stdout.splitlines()[0])["argv"] == ["-", *words]
    assert stdout.splitlines()[1] == "at the end"


@pytest.mark.parametrize(
    ("program", "outcome", "said"),
    [
        ("raise SystemExit(0)", Outcome.SUCCEEDED, ""),
        ("sys.exit('no')", Outcome.TOOL_ERROR, "no\n"),
        ("1 / 0", Outcome.TOOL_ERROR, "ZeroDivisionError: division by zero\n"),
        ("import os; os.kill(os.getpid(), 9)", Outcome.TOOL_ERROR, ""),
        ("x = '" + "x" * 1_000_000 + "'; sys.exit(len(x) - 1_000_000)", Outcome.SUCCEEDED, ""),
    ],
    ids=["leaves", "says-no", "raises", "dies", "is-long"],
)
def test_how_one_that_waited_ends_is_how_its_program_ends(
    jail: Jail, program: str, outcome: Outcome, said: str
) -> None:
    found, _stdout, stderr = ask_one_that_waits(jail, program)
    assert found is outcome
    assert stderr.endswith(said)


def test_what_came_into_the_working_directory_meanwhile_is_found(own_jail: Jail) -> None:
    for number in range(3):
        module = own_jail.work / f"module_{number}.py"
        ask_one_that_waits(own_jail, "pass")
        time.sleep(0.3)  # the next one waits
        module.write_text(f"name = {number}")
        outcome, stdout, _ = ask_one_that_waits(
            own_jail, f"import module_{number} as found; print(found.name)"
        )
        assert (outcome, stdout) == (Outcome.SUCCEEDED, f"{number}\n")


def test_a_module_is_imported_as_it_is_now_whatever_its_date_says(own_jail: Jail) -> None:
    """Of equal size, and dated into the same second: Python would take its own bytecode for it."""
    module = own_jail.work / "module.py"
    for number in range(4):
        module.write_text(f"name = {number}")
        os.utime(module, (1_000_000_000, 1_000_000_000))
        outcome, stdout, _ = ask_one_that_waits(own_jail, "import module; print(module.name)")
        assert (outcome, stdout) == (Outcome.SUCCEEDED, f"{number}\n")
    assert not (own_jail.work / "__pycache__").exists()
    # The control: with bytecode that it wrote itself, Python is mistaken.
    seen = []
    for number in range(2):
        module.write_text(f"name = {number}")
        os.utime(module, (1_000_000_000, 1_000_000_000))
        script = "python3 -c 'import module; print(module.name)'"
        seen.append(own_jail.said(own_jail.sh(script)))
    assert seen == ["0", "0"]


@pytest.mark.req("004-17", "004-24")
def test_nothing_in_the_working_directory_runs_before_there_is_a_program(own_jail: Jail) -> None:
    trap = "open('ran', 'a').write('x')\n"
    for name in ("sitecustomize", "usercustomize", "site", "encodings", "os", "io", "codecs"):
        (own_jail.work / f"{name}.py").write_text(trap)
    ask_one_that_waits(own_jail, "pass")
    time.sleep(0.5)  # others wait
    assert not (own_jail.work / "ran").exists()
    outcome, _, _ = ask_one_that_waits(own_jail, "exec(open('usercustomize.py').read())")
    assert outcome is Outcome.SUCCEEDED
    assert (own_jail.work / "ran").read_text() == "x"


@pytest.mark.req("004-17", "004-24")
def test_one_program_leaves_nothing_for_the_next(own_jail: Jail) -> None:
    plant = """
import builtins, os
for folder in ('/tmp', '/dev/shm', '/artifacts'):
    open(f'{folder}/left', 'w').write('x')
builtins.left = 1
os.environ['LEFT'] = 'x'
if os.fork() == 0:
    os.execvp('sleep', ['sleep', 'MARK'])
print('left' in os.listdir('/tmp'))
"""
    look = """
import builtins, os
print(['left' in os.listdir('/tmp'), os.listdir('/dev/shm'), hasattr(builtins, 'left'),
       os.environ.get('LEFT'), [n for n in os.listdir('/proc') if n.isdigit() and int(n) > 2]])
"""
    mark = marker()
    for _ in range(3):
        planted = ask_one_that_waits(own_jail, plant.replace("MARK", mark))
        assert planted[:2] == (Outcome.SUCCEEDED, "True\n")
        assert not alive(mark)
        assert ask_one_that_waits(own_jail, look)[1] == "[False, [], False, None, []]\n"


def test_those_that_wait_go_with_the_runtime(own_jail: Jail) -> None:
    mark = marker()
    ask_one_that_waits(own_jail, "pass", mark)
    until(lambda: alive(mark), "one that waits")
    own_jail.runtime.close()
    until(lambda: not alive(mark), "their end")


def test_one_waits_for_programs_that_have_come_again_and_not_for_those_that_came_once(
    own_jail: Jail,
) -> None:
    once, again = marker(), marker()
    ask(own_jail, "pass", once)
    ask(own_jail, "pass", again)
    ask(own_jail, "pass", again)
    until(lambda: alive(again), "one that waits")
    assert not alive(once)
