"""An interpreter that was forked and not executed is as confined, as clean and as new as any."""

from __future__ import annotations

import os
import socket
import sys
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from actum import Outcome, Runtime
from actum.contract.model import RunnerKind
from actum.runners.local import LocalRunner

pytestmark = [
    pytest.mark.sandbox,
    pytest.mark.skipif(
        os.path.realpath(sys.executable) != os.path.realpath("/usr/bin/python3"),
        reason="our interpreter is not the one that snippets are run by",
    ),
]
#: Only the spawner is started with `python -S`; an executed interpreter is not.
FORKED = "__import__('sys').flags.no_site"

LOOK = """
import gc, os, signal, sys
status = dict(line.split(':', 1) for line in open('/proc/self/status').read().splitlines())
kept = ('Uid', 'Gid', 'Groups', 'CapInh', 'CapPrm', 'CapEff', 'CapAmb', 'NoNewPrivs', 'Seccomp',
        'SigBlk', 'SigIgn', 'SigCgt', 'Threads')
{
    'status': {name: status[name].strip() for name in kept},
    'descriptors': [os.readlink(f'/proc/self/fd/{n}').split(':')[0] for n in (0, 1, 2)],
    'many': len(os.listdir('/proc/self/fd')),
    'path': sys.path, 'argv': sys.argv, 'executable': sys.executable, 'ours':
    [name for name in sys.modules if name.startswith('actum')],
    'streams': [(each.encoding, each.errors, each.line_buffering)
                for each in (sys.stdin, sys.stdout, sys.stderr)],
    'command': open('/proc/self/cmdline').read().rstrip('\\0').split('\\0'),
    'environment': dict(os.environ), 'cwd': os.getcwd(), 'umask': os.umask(0o22),
    'main': sys.modules['__main__'].__name__ != '' and __name__, 'parent': os.getppid(),
    'limits': [__import__('resource').getrlimit(n) for n in range(16)],
    'session': os.getsid(0) == os.getpid(), 'exit': type(exit).__name__,
    'init': [os.access(f'/proc/1/{name}', os.R_OK) for name in ('environ', 'mem', 'fd')],
    'host': os.path.exists('HERE'),
}
"""


@pytest.fixture(scope="module")
def rt() -> Iterator[Runtime]:
    with Runtime.temporary() as runtime:
        yield runtime


def forked(rt: Runtime, code: str, **words: Any) -> Any:
    """The value of a snippet that ran in a forked interpreter: it is asked until it does.

    The first ones are executed, and so is what was made ready before snippets were asked for.
    """
    until = time.monotonic() + 60
    while True:
        result = rt.python(f"if not {FORKED}: raise SystemExit(99)\n{code}", **words)
        assert result.result is not None
        if result.result.exit_code != 99:
            assert result.outcome is Outcome.SUCCEEDED, result.result
            return result.output
        assert time.monotonic() < until, "no interpreter is ever forked"


@pytest.mark.req("004-17", "004-24")
def test_it_is_as_confined_and_as_furnished_as_one_that_was_executed(rt: Runtime) -> None:
    look = LOOK.replace("HERE", str(rt.settings.root))
    with Runtime.temporary(pool=False) as plain:
        executed = plain.python(f"if {FORKED}: raise SystemExit(99)\n{look}")
        assert executed.outcome is Outcome.SUCCEEDED
    found = forked(rt, look)
    assert found == executed.output
    assert found["status"]["CapEff"] == found["status"]["CapPrm"] == "0" * 16
    assert found["ours"] == []


#: Looks through all of its own memory for a word that it is not given in one piece.
SEARCH = """
import re
wanted, found = (head + tail).encode(), 0
with open('/proc/self/mem', 'rb', 0) as memory:
    for line in open('/proc/self/maps'):
        first, last, rights = re.match(r'([0-9a-f]+)-([0-9a-f]+) (\\S+)', line).groups()
        if rights[0] == 'r' and not line.rstrip().endswith(('[vvar]', '[vsyscall]')):
            memory.seek(int(first, 16))
            try: found += memory.read(int(last, 16) - int(first, 16)).count(wanted)
            except OSError: pass
found
"""


@pytest.mark.req("004-17", "004-24")
def test_no_word_of_another_snippet_is_in_its_memory(rt: Runtime) -> None:
    head, tail = uuid.uuid4().hex, uuid.uuid4().hex
    params = {"head": head, "tail": tail}
    # Its own copy is found, and that is all there ever is: `wanted` itself, and what it came from.
    alone = forked(rt, SEARCH, params=params)
    assert alone > 0
    word = head + tail
    for _ in range(3):
        planted = f"kept = ['{word}'] * 1000\nopen('/tmp/{word}', 'w').write('{word}' * 1000)\n1"
        assert forked(rt, planted, params={"word": word}, files={"file": word}) == 1
        assert forked(rt, SEARCH, params=params) <= alone + 2


@pytest.mark.req("004-17", "004-24")
def test_files_environment_network_and_processes_of_another_are_gone(rt: Runtime) -> None:
    plant = """
import builtins, json, os, socket, sys, time
for folder in ('/tmp', '/dev/shm', '/artifacts'):
    open(f'{folder}/left', 'w').write('x')
builtins.left = sys.left = 1
json.loads = None
os.environ['LEFT'] = 'x'
server = socket.create_server(('127.0.0.1', 8099))
client = socket.create_connection(('127.0.0.1', 8099))
client.sendall(b'x' * 5000)
if os.fork() == 0:
    time.sleep(30)
int(open('/proc/net/dev').read().split('lo:')[1].split()[0])
"""
    look = """
import builtins, os, socket, sys
with socket.socket() as probe:
    refused = probe.connect_ex(('127.0.0.1', 8099)) != 0
[os.listdir('/tmp'), os.listdir('/dev/shm'), hasattr(builtins, 'left'), hasattr(sys, 'left'),
 os.environ.get('LEFT'), refused, [n for n in os.listdir('/proc') if n.isdigit() and int(n) > 2]]
"""
    for _ in range(3):
        assert forked(rt, plant) > 5_000  # it was all there
        assert forked(rt, look) == [[], [], False, False, None, True, []]


def test_randomness_is_not_shared(rt: Runtime) -> None:
    code = "import random, os, uuid\n[random.random(), os.urandom(8).hex(), str(uuid.uuid4())]"
    assert len({str(forked(rt, code)) for _ in range(4)}) == 4


def test_what_asks_for_another_interpreter_is_executed(rt: Runtime) -> None:
    ours = {"inputs.environment.LANG": "C.UTF-8"}
    another = {"inputs.environment.LANG": "en_US.ISO-8859-1"}
    assert forked(rt, FORKED, set=ours) == 1
    assert [rt.python(FORKED, set=another).output for _ in range(3)] == [0, 0, 0]


def test_a_preload_that_fails_ends_it_as_it_ends_an_interpreter(rt: Runtime) -> None:
    forked(rt, "1")
    for _ in range(3):
        result = rt.python("1", preload=["no_such_module"])
        assert result.result is not None
        assert (result.outcome, result.result.exit_code) == (Outcome.TOOL_ERROR, 1)
        assert "No module named 'no_such_module'" in result.result.stderr


def test_another_interpreter_than_ours_is_executed(rt: Runtime) -> None:
    """The spawner's own file is compared, not its name."""
    from actum.sandbox import snippet_interpreter

    runner = rt.services.runners[RunnerKind.LOCAL]
    assert isinstance(runner, LocalRunner)
    own = os.stat("/proc/self/exe")
    tool = {
        "argv": ["python3", *snippet_interpreter._PROGRAM],
        "environment": {},
        "secrets": [],
        "executable": "/usr/bin/python3",
    }
    snippet_interpreter._modules["snippet"] = sys
    try:
        assert snippet_interpreter.serves(tool, (own.st_dev, own.st_ino))
        assert not snippet_interpreter.serves(tool, (own.st_dev, own.st_ino + 1))
        assert not snippet_interpreter.serves(
            {**tool, "executable": "/bin/sh"}, (own.st_dev, own.st_ino)
        )
        for name in ("PYTHONPATH", "PYTHONHASHSEED"):
            environment = {name: "1"}
            asked = {**tool, "environment": environment}
            assert not snippet_interpreter.serves(asked, (own.st_dev, own.st_ino))
    finally:
        snippet_interpreter._modules.clear()


#: Overwrites code of its own interpreter, and says what it was and what it is.
OVERWRITE = """
import ctypes
place = ctypes.cast(ctypes.pythonapi.Py_GetVersion, ctypes.c_void_p).value
before = ctypes.string_at(place, 4).hex()
if writes:
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(place & -4096), ctypes.c_size_t(8192), 7) == 0
    ctypes.memset(place, 0x90, 4)
[before, ctypes.string_at(place, 4).hex()]
"""


@pytest.mark.req("004-17", "004-24")
def test_a_snippet_that_overwrites_its_code_changes_no_other_interpreter(rt: Runtime) -> None:
    code, _ = forked(rt, OVERWRITE, params={"writes": 0})
    for _ in range(3):
        assert forked(rt, OVERWRITE, params={"writes": 1}) == [code, "90" * 4]
        assert forked(rt, OVERWRITE, params={"writes": 0}) == [code, code]


@pytest.mark.parametrize("name", ["ipc", "mnt", "net", "pid", "uts"])
def test_its_namespaces_are_its_own(rt: Runtime, name: str) -> None:
    code = f"import os; os.readlink('/proc/self/ns/{name}')"
    first, second = forked(rt, code), forked(rt, code)
    assert first.startswith(f"{name}:[")
    assert first != os.readlink(f"/proc/self/ns/{name}")
    assert second != os.readlink(f"/proc/self/ns/{name}")


@pytest.mark.req("000-17", "000-51")
def test_it_does_not_reach_the_loopback_of_the_host(rt: Runtime) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        place = server.getsockname()
        code = f"import socket; socket.socket().connect_ex({place!r})"
        assert forked(rt, code) != 0
        server.settimeout(0)
        with pytest.raises(BlockingIOError):
            server.accept()
        with socket.create_connection(place):  # the control
            server.accept()[0].close()
