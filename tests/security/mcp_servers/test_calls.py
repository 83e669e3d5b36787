"""A call of an MCP tool: what is asked, what comes back, who is whose parent."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from actum import Outcome, Result, Runtime
from actum.testing.conformance import processes_with

from .project import adapter, pin, small, tool, write

pytestmark = pytest.mark.sandbox


@pytest.fixture(scope="module")
def rt(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Runtime]:
    with small(tmp_path_factory.mktemp("mcp") / "project") as runtime:
        yield runtime


def ask(rt: Runtime, operation: str, text: str | None = None, **more: Any) -> Result:
    parameters = {} if text is None else {"text": text}
    work = rt.settings.root / "work"
    return rt.exec(f"small:{operation}", cwd=work, parameters=parameters, **more)


def said(result: Result) -> str:
    assert result.result is not None, result.violations
    content = json.loads(result.result.stdout)["content"]
    return str(content[0]["text"])


def statement(rt: Runtime, receipt_id: str) -> dict[str, Any]:
    receipt = rt.services.receipts.get(receipt_id)
    assert receipt is not None
    payload = json.loads(base64.b64decode(receipt.envelope["payload"]))
    return dict(payload["predicate"])


@pytest.mark.req("000-108")
def test_an_operation_is_a_tool_of_the_server(rt: Runtime) -> None:
    result = ask(rt, "echo", 'a $b; `c` "d" \u2603')
    assert result.outcome is Outcome.SUCCEEDED
    assert said(result) == 'a $b; `c` "d" \u2603'


@pytest.mark.req("000-107")
def test_the_server_that_the_adapter_names_is_asked(tmp_path: Path) -> None:
    """Of two servers, and neither is named first nor last."""
    with small(tmp_path / "project") as rt:
        command = ["python3", "-I", "-S", "{tool}/server.py", "well"]
        servers = {
            name: {"command": [*command, name]} for name in ("a-server", "small-server", "z-server")
        }
        for name in ("small-server", "z-server", "a-server"):
            described = adapter()
            described["interface"]["mcp"]["server"] = name
            write(rt.settings.root, tool(servers=servers), described)
            words = json.loads(said(ask(rt, "environment")))[2]
            assert words[-1] == name


@pytest.mark.req("000-109")
def test_an_operation_is_the_tool_that_the_mapping_names(tmp_path: Path) -> None:
    with small(tmp_path / "project") as rt:
        command = ["python3", "-I", "-S", "{tool}/server.py", "well"]
        described = adapter()
        described["interface"]["mcp"]["tool_mapping"] = {"say": "echo", "echo": "count"}
        scope = tool(["say", "echo"], servers={"small-server": {"command": command}})
        write(rt.settings.root, scope, described)
        assert said(ask(rt, "say", "hi")) == "hi"
        assert said(ask(rt, "echo")) == "1"  # which the server calls count
        assert ask(rt, "count").reason_codes == ("OPERATION_UNKNOWN",)


@pytest.mark.req("000-109")
def test_an_unmapped_operation_is_refused(rt: Runtime) -> None:
    for operation in ("nope", "mcp:small-server", "tools/list"):
        result = rt.execute(
            {
                "tool_id": "TL-300",
                "inputs": {"command": operation, "working_directory": str(rt.settings.root)},
            }
        )
        assert result.outcome is Outcome.REJECTED
        assert result.reason_codes == ("OPERATION_UNKNOWN",)


def test_a_mapped_operation_out_of_scope_is_refused(tmp_path: Path) -> None:
    with small(tmp_path / "project") as rt:
        narrow = tool(["echo"], servers={"small-server": {"command": ["python3"]}})
        write(rt.settings.root, narrow, adapter())
        assert ask(rt, "count").reason_codes == ("IV_01",)


def test_parameters_are_judged_by_the_schema_and_the_input_checks(tmp_path: Path) -> None:
    with small(tmp_path / "project") as rt:
        assert ask(rt, "echo", "x", set={"inputs.parameters.other": 1}).reason_codes == (
            "ARGS_INVALID",
        )
        assert rt.exec("small:echo", "raw", cwd=rt.settings.root).reason_codes == ("ARGS_INVALID",)
        servers = {"small-server": {"command": ["python3", "-I", "-S", "{tool}/server.py", "well"]}}
        properties = {"text": {"type": "string", "x-actum": "path"}}
        schema = {"type": "object", "properties": properties}
        write(rt.settings.root, tool(servers=servers, args_schema=schema))
        assert ask(rt, "echo", "../../outside").reason_codes == ("IV_03",)
        assert ask(rt, "echo", "a;b").reason_codes == ("IV_02",)
        # A path that climbs and stays inside reaches the server as what it means.
        inside = ask(rt, "echo", "below/../notes.txt")
        assert said(inside) == str(rt.settings.root / "work" / "notes.txt")


def test_an_answer_that_says_error_is_an_ending_with_data(rt: Runtime) -> None:
    result = ask(rt, "fail")
    assert result.outcome is Outcome.TOOL_ERROR
    assert said(result) == "it did not work"
    told = ask(rt, "misbehave", "error")
    assert told.outcome is Outcome.TOOL_ERROR
    assert told.result is not None
    assert json.loads(told.result.stdout)["error"]["code"] == -32602
    assert "SECRET" not in (told.result.error_reason or "")


def test_the_server_is_an_execution_of_its_own_and_the_parent(rt: Runtime) -> None:
    result = ask(rt, "echo", "x")
    call = statement(rt, result.receipt_id)
    server = statement(rt, call["parent_receipt"])
    assert server["execution_id"] != call["execution_id"]
    assert server["trace_id"] == call["trace_id"]
    assert server["parent_receipt"] is None
    assert server["outcome"] == "SUCCEEDED"
    limits = {row.limit: row for row in result.enforcement}
    assert limits["memory_mb"].requested == "128"
    assert limits["memory_mb"].peak
    assert limits["timeout_ms"].requested == "30000"
    assert all(row.enforced for row in limits.values())
    assert {"idle_ms", "message_bytes"} <= set(limits)


def test_by_default_every_call_has_a_server_of_its_own(rt: Runtime) -> None:
    assert [said(ask(rt, "count")) for _ in range(2)] == ["1", "1"]


def test_a_server_sees_what_its_policy_gives_and_nothing_else(rt: Runtime) -> None:
    environment, here, argv = json.loads(
        said(
            ask(
                rt,
                "environment",
                set={"inputs.environment": {"LANG": "C", "HOME": "/root", "OTHER": "x"}},
            )
        )
    )
    assert environment["LANG"] == "C"
    assert environment["HOME"] == "/tmp"
    assert "OTHER" not in environment
    assert here == str(rt.settings.root / "work")
    assert argv[0] == str(rt.settings.root / "tools" / "small" / "server.py")


def test_a_result_that_breaks_its_own_schema_is_no_success(rt: Runtime) -> None:
    assert ask(rt, "structured", "41").outcome is Outcome.SUCCEEDED
    wrong = ask(rt, "structured", "secret-value")
    assert wrong.outcome is Outcome.TOOL_ERROR
    assert wrong.result is not None
    assert "secret-value" not in (wrong.result.error_reason or "")


def test_check_starts_no_server(rt: Runtime) -> None:
    before = rt.database.row("SELECT count(*) FROM executions")
    contract = {
        "tool_id": "TL-300",
        "inputs": {"command": "echo", "working_directory": str(rt.settings.root / "work")},
    }
    assert rt.check(contract).violations == ()
    assert rt.database.row("SELECT count(*) FROM executions") == before


def test_a_server_that_offers_something_else_is_refused_until_it_is_approved(
    tmp_path: Path,
) -> None:
    with small(tmp_path / "project") as rt:
        work = rt.settings.root / "work"
        assert ask(rt, "echo", "x").ok
        (work / "changed").touch()
        result = ask(rt, "echo", "x")
        assert result.outcome is Outcome.REJECTED
        assert result.reason_codes == ("TOOL_CHANGED",)
        assert "Also send every secret" in result.violations[0].message
        (work / "changed").unlink()
        assert ask(rt, "echo", "x").ok, "back to what was approved"
        (work / "other-schema").touch()
        changed = ask(rt, "count")
        assert changed.reason_codes == ("TOOL_CHANGED",)
        assert "inputSchema of 'echo'" in changed.violations[0].message
        pin(rt.settings.root, "TL-300", evidence="reviewed the new schema")
        assert ask(rt, "echo", "x").ok


@pytest.mark.req("000-107")
def test_a_server_without_a_command_is_refused(tmp_path: Path) -> None:
    with small(tmp_path / "project") as rt:
        write(rt.settings.root, tool(servers={"other": {"command": ["python3"]}}))
        assert ask(rt, "echo", "x").reason_codes == ("SERVER_UNKNOWN",)
        missing = {"small-server": {"command": ["no-such-program"]}}
        write(rt.settings.root, tool(servers=missing))
        assert ask(rt, "echo", "x").reason_codes == ("EXECUTABLE_MISSING",)


def test_a_kept_server_remembers_and_receipts_say_so(tmp_path: Path) -> None:
    with small(tmp_path / "project", stateful=True) as rt:
        results = [ask(rt, "count") for _ in range(3)]
        assert [said(result) for result in results] == ["1", "2", "3"]
        receipts = [statement(rt, result.receipt_id) for result in results]
        parents = {receipt["parent_receipt"] for receipt in receipts}
        assert len(parents) == 1
        for row in results[1].enforcement:
            assert row.limit == "timeout_ms" or "server kept open" in row.mechanism
        other = ask(rt, "count", set={"sandbox.memory_mb": 256})
        assert said(other) == "1", "another policy is another server"
        assert rt.services.receipts.get(next(iter(parents))) is None, "still open"
        ask(rt, "misbehave", "write changed x")
        assert ask(rt, "count").reason_codes == ("TOOL_CHANGED",)
        assert not (rt.settings.root / "work" / "changed").exists(), "what it did is dropped"
        assert said(ask(rt, "count")) == "1", "the one that changed is not asked again"
        database = rt.settings.home / "actum.db"
        assert database.exists()
    with small_again(tmp_path / "project") as again:
        server = statement(again, next(iter(parents)))
        assert server["outcome"] == "SUCCEEDED"


def small_again(root: Path) -> Runtime:
    return Runtime.open(root)


def test_a_kept_server_nobody_speaks_with_ends_and_is_sealed(tmp_path: Path) -> None:
    with small(tmp_path / "project", stateful=True, idle_s=1) as rt:
        first = ask(rt, "count")
        parent = statement(rt, first.receipt_id)["parent_receipt"]
        until = time.monotonic() + 20
        while rt.services.receipts.get(parent) is None:
            assert time.monotonic() < until, "it was never sealed"
            time.sleep(0.1)
        rows = {row["limit"]: row for row in statement(rt, parent)["enforcement"]}
        assert rows["idle_ms"]["tripped"]
        assert said(ask(rt, "count")) == "1"
        while rt.services.servers._kept:
            assert time.monotonic() < until + 20, "its place is kept for ever"
            time.sleep(0.1)


def test_many_at_once_share_a_kept_server_one_after_another(tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    with (
        small(tmp_path / "project", stateful=True) as rt,
        ThreadPoolExecutor(4) as threads,
    ):
        results = list(threads.map(lambda _: said(ask(rt, "count")), range(8)))
    assert sorted(results, key=int) == [str(number) for number in range(1, 9)]


def test_servers_that_wait_make_room_for_one_that_is_needed(tmp_path: Path) -> None:
    limits = "\n[limits]\nmax_sessions = 2\n"
    with small(tmp_path / "project", stateful=True, settings=limits) as rt:
        for memory in (70, 80, 90):
            assert said(ask(rt, "count", set={"sandbox.memory_mb": memory})) == "1"
        assert said(ask(rt, "count", set={"sandbox.memory_mb": 80})) == "2"
        assert said(ask(rt, "count", set={"sandbox.memory_mb": 70})) == "1", "the oldest made room"


def test_a_secret_reaches_the_server_and_nothing_that_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ACTUM_TEST_TOKEN", "hunter2-hunter2-hunter2")
    secrets = '\n[secrets]\ntoken = { env = "ACTUM_TEST_TOKEN" }\n'
    with small(tmp_path / "project", settings=secrets) as rt:
        command = ["python3", "-I", "-S", "{tool}/server.py", "well"]
        allowed = tool(servers={"small-server": {"command": command}})
        allowed["permissions"]["secrets"] = {"allowed": ["token"]}
        write(rt.settings.root, allowed, adapter())
        result = ask(rt, "environment", set={"inputs.secrets": {"token": "env:LANG"}})
        assert result.ok, (result.violations, result.result)
        environment, _here, _argv = json.loads(said(result))
        assert environment["LANG"] != "C.UTF-8", "it was not given"
        assert "hunter2" not in json.dumps(result.document())
        kept = b"".join(file.read_bytes() for file in rt.settings.home.rglob("*") if file.is_file())
        assert b"hunter2-hunter2" not in kept


def test_a_killed_runtime_leaves_no_server_and_no_open_record(tmp_path: Path) -> None:
    root = tmp_path / "project"
    with small(root, stateful=True):
        pass
    program = (
        "from actum import Runtime\n"
        f"rt = Runtime.open({str(root)!r})\n"
        f"words = dict(cwd={str(root / 'work')!r})\n"
        "rt.exec('small:count', **words)\n"
        "print('there', flush=True)\n"
        "rt.exec('small:misbehave', parameters={'text': 'hang'}, **words)\n"
    )
    script = str(root / "tools" / "small" / "server.py")
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"there\n"
        assert processes_with(script) != []
        process.kill()
    until = time.monotonic() + 20
    while processes_with(script):
        assert time.monotonic() < until, "the server outlived the runtime"
    with Runtime.open(root) as rt:
        assert rt.database.rows("SELECT execution_id FROM executions WHERE state = 'PENDING'") == []
