"""Snippets: a value comes back, nothing of one reaches the next, warm or not."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from actum import Outcome, Runtime
from actum.contract.model import RunnerKind
from actum.runners.local import LocalRunner
from actum.runners.warm import Warm

pytestmark = pytest.mark.sandbox


@pytest.fixture(scope="module", params=[True, False], ids=["pool", "no-pool"])
def rt(request: pytest.FixtureRequest) -> Iterator[Runtime]:
    with Runtime.temporary(pool=request.param) as runtime:
        yield runtime


def waiting(rt: Runtime, count: int = 1) -> list[Warm]:
    """The warm interpreters of the runtime, once there are `count`."""
    runner = rt.services.runners[RunnerKind.LOCAL]
    assert isinstance(runner, LocalRunner) and runner._warm is not None
    for _ in range(500):
        found = [warm for shape in runner._warm._waiting.values() for warm in shape]
        if len(found) >= count:
            return found
        time.sleep(0.02)
    raise AssertionError("no interpreter was warmed up")


@pytest.mark.parametrize(
    ("code", "value"),
    [
        ("6 * 7", 42),
        ("x = [1, 2]\nsum(x) + n", 8),
        ("if n:\n    return {'n': n}\nraise SystemExit(9)", {"n": 5}),
        ("def f():\n    return 1\nf()", 1),
        ("x = 1", None),
        ("x = n; x + 1", 6),
        ("1; 2", 2),
        ("[n,\n n]", [5, 5]),
        ("(x := n) + x  # one line", 10),
        ("'return'", "return"),
        ("'a;b'", "a;b"),
        ("return n", 5),
        ("'\\u00e9\\U0001F600'", "é😀"),
    ],
)
def test_the_value_of_the_last_expression_or_of_a_return_comes_back(
    rt: Runtime, code: str, value: object
) -> None:
    result = rt.python(code, params={"n": 5})
    assert (result.outcome, result.output) == (Outcome.SUCCEEDED, value)


def test_only_a_value_is_an_artifact(rt: Runtime) -> None:
    kept = [rt.python(code).result for code in ("print(1)", "1", "0", "1 / 0")]
    names = [[item.path for item in each.artifacts] for each in kept if each is not None]
    assert names == [[], ["value.json"], ["value.json"], ["value.json"]]


def test_a_small_value_is_not_read_back_from_the_store_and_a_large_one_is(
    rt: Runtime, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    original = rt.blobs.read

    def noted(blake3: str) -> bytes:
        read.append(blake3)
        return original(blake3)

    monkeypatch.setattr(rt.blobs, "read", noted)
    small, large = rt.python("'x' * 10"), rt.python("'x' * 100_000")
    assert (small.output, large.output) == ("x" * 10, "x" * 100_000)
    assert large.result is not None
    assert read == [large.result.artifacts[0].blake3]
    assert small.small_files is not None and large.small_files == {}
    for blake3, content in small.small_files.items():
        assert original(blake3) == content


def test_streams_and_exit_code_are_the_snippets_own(rt: Runtime) -> None:
    result = rt.python("import sys\nprint('out')\nprint('err', file=sys.stderr)\nsys.exit(7)")
    assert result.result is not None
    assert (result.result.stdout, result.result.stderr) == ("out\n", "err\n")
    assert (result.outcome, result.result.exit_code) == (Outcome.TOOL_ERROR, 7)


def test_an_exception_is_data_with_the_snippets_own_frames_only(rt: Runtime) -> None:
    result = rt.python("def f():\n    raise ValueError('no')\nf()")
    assert result.result is not None
    assert (result.outcome, result.result.exit_code) == (Outcome.TOOL_ERROR, 1)
    assert "ValueError: no" in result.result.stderr
    assert "raise ValueError('no')" in result.result.stderr
    assert "snippet.py" not in result.result.stderr


def test_one_line_that_is_no_python_is_told_as_python_tells_it(rt: Runtime) -> None:
    for code, kind in (
        (" 1", "IndentationError"),
        ("1 +", "SyntaxError"),
        ("return = 1", "Syntax"),
    ):
        result = rt.python(code)
        assert result.outcome is Outcome.TOOL_ERROR and result.result is not None
        assert kind in result.result.stderr and "<snippet>" in result.result.stderr
        assert "During handling" not in result.result.stderr


def test_a_snippet_is_compiled_as_if_nobody_had_compiled_anything_before(rt: Runtime) -> None:
    assert rt.python("def f(x: int): pass\nf.__annotations__['x'] is int").output is True


def test_stdin_is_empty_for_a_snippet_and_its_children(rt: Runtime) -> None:
    code = "import os, subprocess, sys\n"
    code += "said = subprocess.run(['cat'], capture_output=True, timeout=5).stdout\n"
    code += "[sys.stdin.read(), os.read(0, 10).decode(), said.decode()]"
    assert rt.python(code, params={"secret": "of the order"}).output == ["", "", ""]
    assert rt.python("sorted(__import__('os').listdir('/proc/self/fd'))[:3]").output == [
        "0",
        "1",
        "2",
    ]


def test_files_lie_in_the_working_directory_and_no_directory_of_the_host_does(
    rt: Runtime,
) -> None:
    code = "import os\n[open('a/b.txt').read(), sorted(os.listdir('.'))]"
    assert rt.python(code, files={"a/b.txt": b"hi"}).output == ["hi", ["a"]]
    project = str(rt.settings.root)
    assert (rt.settings.root / "actum.toml").exists()  # outside it is there
    assert rt.python(f"import os\nos.path.exists({project!r})").output is False


def test_nothing_of_one_snippet_reaches_the_next(rt: Runtime) -> None:
    spoil = (
        "import builtins, os, sys, json\n"
        "builtins.print = None\njson.dumps = None\nsys.modules['math'] = None\n"
        "os.environ['LEFT'] = 'x'\nopen('/tmp/left', 'w').write('x')\n"
        "open('/dev/shm/left', 'w').write('x')\nleft = 1\nos.fork() or os._exit(0)"
    )
    look = (
        "import os, math\n"
        "[os.environ.get('LEFT'), os.path.exists('/tmp/left'), os.path.exists('/dev/shm/left'),"
        " 'left' in globals(), print is not None, os.listdir('/artifacts') if 0 else None]"
    )
    for _ in range(3):
        assert rt.python(spoil).outcome is Outcome.SUCCEEDED
        assert rt.python(look).output == [None, False, False, False, True, None]


def test_limits_hold_for_a_snippet(rt: Runtime) -> None:
    memory = rt.python("x = bytearray(300 << 20)", memory="64M")
    assert memory.outcome is Outcome.RESOURCE_KILLED
    endless = rt.python("while True: pass", timeout="1s")
    assert endless.outcome is Outcome.TIMED_OUT
    network = rt.python("import socket\nsocket.create_connection(('127.0.0.1', 9), 1)")
    assert network.outcome is Outcome.TOOL_ERROR


def test_a_snippet_that_forges_its_value_only_fools_itself(rt: Runtime) -> None:
    forged = "import os\nopen('/artifacts/value.json', 'w').write('not json')\nos._exit(0)"
    result = rt.python(forged)
    assert result.outcome is Outcome.SUCCEEDED
    assert result.output == {"$type": "value.json", "$repr": "not json"}


def test_preloaded_modules_and_a_venvs_packages_are_there(tmp_path: Path) -> None:
    with Runtime.temporary() as rt:
        packages = rt.settings.root / "venv" / "lib" / "python3.11" / "site-packages"
        packages.mkdir(parents=True)
        (packages / "lent.py").write_text("WORD = 'lent'\n")
        for _ in range(3):
            result = rt.python(
                "import sys\n['lent' in sys.modules, __import__('lent').WORD]",
                preload=["lent"],
                venv=rt.settings.root / "venv",
            )
            assert result.output == [True, "lent"], result.violations
        found = rt.python("import sys\nsys.path", venv=rt.settings.root / "venv").output
        of_system = [path for path in found if path.endswith("-packages")]
        assert of_system[0] == str(packages)  # its own versions, not those of the system


def _change(packages: Path, number: int) -> None:
    """In one second and of one size, in all the ways in which a module comes to be another."""
    match number:
        case 0:
            (packages / "pkg").mkdir()
            (packages / "pkg/__init__.py").write_text("from pkg.inner import WORD\n")
            (packages / "pkg/inner.py").write_text("WORD = 0\n")
        case 1:
            (packages / "pkg/inner.py").write_text("WORD = 1\n")
        case 2:  # an older file in its place
            (packages / "other.py").write_text("WORD = 2\n")
            (packages / "other.py").replace(packages / "pkg/inner.py")
        case 3:  # an older folder in its place
            shutil.copytree(packages / "pkg", packages / "new")
            (packages / "new/inner.py").write_text("WORD = 3\n")
            (packages / "pkg").rename(packages / "old")
            (packages / "new").rename(packages / "pkg")
        case _:
            (packages / "pkg/inner.py").write_text(f"WORD = {number}\n")
    os.utime(packages / "pkg/inner.py", (1_000_000_000, 1_000_000_000))


def test_a_module_that_was_preloaded_is_imported_again_if_it_has_changed() -> None:
    with Runtime.temporary() as rt:
        packages = rt.settings.root / "venv" / "lib" / "python3.11" / "site-packages"
        packages.mkdir(parents=True)
        look = "import os, stat, pkg\n[pkg.WORD, stat.S_ISFIFO(os.fstat(0).st_mode), PARAM]"
        words: dict[str, Any] = {
            "preload": ["pkg"],
            "venv": rt.settings.root / "venv",
            "params": {"PARAM": "x" * 200_000},
        }
        for number in range(6):
            _change(packages, number)
            result = rt.python(look, **words)
            assert result.output is not None, result.result
            assert result.output[0] == number
            assert result.output[2] == "x" * 200_000
            waiting(rt, 2)
            time.sleep(0.3)  # for their imports
        # The control: one that waited serves as long as nothing changes.
        deadline = time.monotonic() + 60
        while rt.python(look, **words).output[1] is not True:
            assert time.monotonic() < deadline, "no interpreter that waited ever served"
            time.sleep(0.2)


def test_a_warm_interpreter_serves_its_own_plan_once_and_no_other() -> None:
    with Runtime.temporary() as rt:
        rt.python("1")
        first = waiting(rt, 2)
        pid = rt.python("import os\nos.getpid()")
        assert pid.outcome is Outcome.SUCCEEDED
        after = waiting(rt, 2)
        assert first[0] not in after and first[1] in after
        # Another limit is another plan: the warm ones stay where they are.
        rt.python("1", memory="128M")
        assert first[1] in waiting(rt, 2)


def test_a_warm_interpreter_that_was_killed_is_not_given_an_order() -> None:
    with Runtime.temporary() as rt:
        rt.python("1")
        for warm in waiting(rt, 2):
            _pid_of(warm)
            signal.pidfd_send_signal(warm.sandbox.pidfd, signal.SIGKILL)
            warm.sandbox.await_end()
        assert rt.python("6 * 7").output == 42


def test_nothing_is_left_when_a_runtime_with_warm_interpreters_is_closed() -> None:
    with Runtime.temporary() as rt:
        rt.python("1")
        pids = [_pid_of(warm) for warm in waiting(rt, 2)]
        assert all(os.path.exists(f"/proc/{pid}") for pid in pids)
    assert not any(os.path.exists(f"/proc/{pid}") for pid in pids)


def _pid_of(warm: Warm) -> int:
    while warm.sandbox.pidfd < 0:
        warm.sandbox.still_waiting()
    with open(f"/proc/self/fdinfo/{warm.sandbox.pidfd}") as info:
        return int(next(line.split()[1] for line in info if line.startswith("Pid:")))
