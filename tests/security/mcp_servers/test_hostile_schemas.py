"""A server's schema of its answers is hostile: it delays no call, deadline or cancellation."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from actum import Outcome, Result, Runtime
from actum.mcp import output_schema_process
from actum.mcp.json_rpc import Broken
from actum.mcp.output_schema import SCHEMA_BYTES, SCHEMA_LEVELS, OutputSchemas
from actum.runners.base import Cancel
from actum.testing.conformance import processes_with

from .project import small

pytestmark = pytest.mark.sandbox

_OBJECT = {"type": "object"}
_TEXT = {"properties": {"text": {"pattern": "^(a+)+$"}}}


def _doubled(levels: int) -> dict[str, Any]:
    """Refers to itself so that a comparison takes 2 ** levels steps."""
    parts: dict[str, Any] = {
        f"d{level}": {"allOf": 2 * [{"$ref": f"#/$defs/d{level + 1}"}]} for level in range(levels)
    }
    return {"$defs": {**parts, f"d{levels}": _OBJECT}, "$ref": "#/$defs/d0"}


def _nested(levels: int) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(levels):
        schema = {"not": schema}
    return schema


_LONG = {"text": "a" * 100_000 + "!"}
_DIFFERS, _NO_SCHEMA = "does not match its own schema", "not JSON Schema"
#: schema, structure, part of the reason
HOSTILE: dict[str, tuple[dict[str, Any], object, str]] = {
    "a pattern that backtracks": (_TEXT, _LONG, _DIFFERS),
    "a pattern that looks ahead and backtracks": (
        {"properties": {"text": {"pattern": "^(?=a)(a+)+$"}}},
        _LONG,
        _DIFFERS,
    ),
    "patterns of names": (
        {"patternProperties": {"^(a|a)*$": {"type": "integer"}}, "additionalProperties": False},
        {"a" * 1000 + "!": 1},
        _DIFFERS,
    ),
    "a pattern that grows": (
        {"properties": {"text": {"pattern": "((a{1000}){1000}){1000}"}}},
        _LONG,
        _NO_SCHEMA,
    ),
    "references that double": (_doubled(60), {}, "takes more than 1 s"),
    "a file": ({"$ref": "file:///etc/passwd"}, {}, _NO_SCHEMA),
    "no schema": ({"properties": {"a": {"type": "nothing"}}}, {}, _NO_SCHEMA),
    "more than is looked at": ({"$comment": "x" * SCHEMA_BYTES}, {}, "more than 262144 bytes"),
    "deeper than is looked at": (_nested(SCHEMA_LEVELS), {}, "64 levels"),
    "a structure that is too deep": (
        {},
        json.loads('{"a":' * 400 + "1" + "}" * 400),
        "not what the protocol says",
    ),
}


@pytest.fixture(scope="module", params=[False, True], ids=["one call", "kept"])
def kept(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def rt(tmp_path: Path, kept: bool) -> Iterator[Runtime]:
    with small(tmp_path / "project", stateful=kept) as runtime:
        yield runtime
    assert _comparing() == []


def _promise(rt: Runtime, schema: object, structure: object) -> None:
    work = rt.settings.root / "work"
    if isinstance(schema, dict):
        schema = {"type": "object", **schema}
    (work / "output-schema.json").write_text(json.dumps(schema))
    (work / "structure.json").write_text(json.dumps(structure))


def _ask(rt: Runtime, **more: Any) -> Result:
    asked = {"timeout": "30s", **more}
    work = rt.settings.root / "work"
    return rt.exec("small:structured", cwd=work, parameters={"text": "1"}, **asked)


def _comparing() -> list[int]:
    """Processes that compare, of this test's own process."""
    found = processes_with(output_schema_process.__file__)
    return [pid for pid in found if _parent(pid) == os.getpid()]


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0


def _reason(result: Result) -> str:
    assert result.result is not None, result
    return result.result.error_reason or ""


@pytest.mark.parametrize("how", HOSTILE)
def test_a_schema_that_is_hostile_ends_its_own_call_alone(rt: Runtime, how: str) -> None:
    schema, structure, reason = HOSTILE[how]
    _promise(rt, schema, structure)
    result = _ask(rt)
    assert result.outcome is Outcome.TOOL_ERROR, result.result
    assert reason in _reason(result)
    assert "aaaa" not in _reason(result)


def test_an_answer_that_keeps_its_promise_is_handed_on(rt: Runtime) -> None:
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "properties": {
            "text": {"pattern": "^(?!b)(a+)+$", "format": "email"},
            "inner": {"$ref": "#"},
            "size": {"type": "integer", "multipleOf": 0.5},
        },
        "required": ["text"],
    }
    structure = {"text": "a" * 1000, "inner": {"text": "a", "inner": {"text": "aa"}}, "size": 2}
    _promise(rt, schema, structure)
    for _ in range(3):
        result = _ask(rt)
        assert result.ok, result.result
    assert result.result is not None
    assert json.loads(result.result.stdout)["structuredContent"] == structure


@pytest.mark.parametrize("keyword", ["$ref", "$schema", "$dynamicRef"])
def test_a_reference_to_another_host_is_not_followed(rt: Runtime, keyword: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(0)
        _promise(rt, {keyword: f"http://127.0.0.1:{server.getsockname()[1]}/schema"}, {})
        result = _ask(rt)
        assert result.outcome is Outcome.TOOL_ERROR, result.result
        assert _NO_SCHEMA in _reason(result)
        with pytest.raises(BlockingIOError):
            server.accept()


class _Stopped:
    """A call whose answer is being compared, by a process that does not go on."""

    def __init__(self, rt: Runtime, **more: Any) -> None:
        _promise(rt, _doubled(60), {})  # so that there is time to stop it
        self.result: Result | None = None

        def ask() -> None:
            self.result = _ask(rt, **more)

        self._thread = threading.Thread(target=ask)
        self._thread.start()
        while not (found := _comparing()):
            assert self._thread.is_alive()
            time.sleep(0.001)
        (self.pid,) = found
        os.kill(self.pid, signal.SIGSTOP)

    def join(self) -> Result:
        self._thread.join()
        assert self.result is not None
        assert not Path(f"/proc/{self.pid}").exists()
        return self.result


def test_other_calls_are_answered_while_one_is_compared(rt: Runtime) -> None:
    cancel = Cancel()
    stopped = _Stopped(rt, cancel=cancel)
    work = rt.settings.root / "work"
    assert rt.exec("shell", stdin="echo hi", cwd=work).ok
    rt.services.servers.schemas.require_kept(b"{}", {}, time.monotonic() + 60, None)
    cancel.cancel()
    assert stopped.join().outcome is Outcome.CANCELLED
    cancel.close()
    assert rt.exec("small:count", cwd=work).ok


def test_the_deadline_of_a_call_holds_while_its_answer_is_compared(rt: Runtime) -> None:
    assert _Stopped(rt, timeout="6s").join().outcome is Outcome.TIMED_OUT
    assert rt.exec("small:count", cwd=rt.settings.root / "work").ok


_HOST = """
import json, sys, time
from actum.mcp.output_schema import OutputSchemas
schemas = OutputSchemas()
schemas.require_kept(b"{}", {}, time.monotonic() + 60, None)
print(schemas._idle[0]._process.pid, flush=True)
schemas.require_kept(sys.stdin.read().encode(), {}, time.monotonic() + 600, None)
"""


@pytest.mark.parametrize("busy", [True, False])
def test_a_comparison_does_not_outlive_its_host(*, busy: bool) -> None:
    host = subprocess.Popen(
        [sys.executable, "-c", _HOST], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with host:
        assert host.stdin is not None and host.stdout is not None
        comparing = int(host.stdout.readline())
        if busy:
            host.stdin.write(json.dumps(_doubled(60)).encode())
            host.stdin.close()
        host.kill()
    while _runs(comparing):
        time.sleep(0.01)


def _runs(pid: int) -> bool:
    return output_schema_process.__file__ in _command(pid)


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def test_what_compares_can_open_nothing() -> None:
    schemas = OutputSchemas()
    schemas.require_kept(b"{}", {}, time.monotonic() + 60, None)
    (pid,) = _comparing()
    limits = Path(f"/proc/{pid}/limits").read_text().splitlines()
    values = {line[:26].strip(): line[26:].split()[:2] for line in limits}
    assert values["Max open files"] == ["1", "1"]
    assert values["Max file size"] == ["0", "0"]
    assert Path(f"/proc/{pid}/environ").read_bytes() == b""
    for number in ("1", "2"):
        assert os.readlink(f"/proc/{pid}/fd/{number}") == os.devnull
    assert len(os.listdir(f"/proc/{pid}/fd")) == 3
    with pytest.raises(Broken):
        schemas.require_kept(b'{"type": "array"}', {}, time.monotonic() + 60, None)
    assert _comparing() == [pid]
    schemas.close()
    assert _comparing() == []
