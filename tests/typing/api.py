"""The public API as a user writes it: checked by mypy in strict mode, never executed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import assert_type

import actum
from actum import (
    ActumError,
    ArtifactRef,
    Cancel,
    Contract,
    ContractInvalid,
    Fault,
    Outcome,
    Refused,
    Result,
    Runtime,
    ToolRunResult,
    TraceContext,
)
from actum.errors import Problem, Violation
from actum.value import replace


def keywords() -> None:
    with Runtime.open("project", session="nightly") as runtime:
        assert_type(runtime, Runtime)
        result = runtime.exec(
            "shell",
            "first",
            "second",
            stdin=b"echo $1",
            env={"LANG": "C"},
            cwd=Path("work"),
            timeout=2.5,
            memory=256 << 20,
            files=[Path("a.txt"), "b.txt"],
            purpose="a check",
            requested_by="user:ada",
            set={"sandbox.cpu_cores": 2},
        )
        assert_type(result, Result)
        searched = runtime.exec(
            "ripgrep", parameters={"pattern": "x", "path": ".", "ignore_case": True}
        )
        print(searched.output)
        runtime.exec(
            "fetch", parameters={"url": "https://example.com"}, allow_hosts=["example.com"]
        )


def answers(result: Result) -> int:
    assert_type(result.outcome, Outcome)
    assert_type(result.ok, bool)
    assert_type(result.reason_codes, tuple[str, ...])
    assert_type(result.violations, tuple[Violation, ...])
    if result.result is None:  # nothing ran
        return 3
    assert_type(result.result.exit_code, int | None)
    assert_type(result.result.stdout, str)
    for file in result.result.artifacts:
        assert_type(file.size, int)
    assert_type(result.artifacts, tuple[ArtifactRef, ...])
    assert_type(result.files["out.csv"].read(), bytes)
    assert_type(result.files["out.csv"].save("out.csv", overwrite=True), Path)
    for row in result.enforcement:
        print(row.limit, row.requested, row.mechanism, row.enforced, row.peak, row.tripped)
    for connection in result.egress:
        print(connection.host, connection.port, connection.refused)
    assert_type(result.check(), Result)
    assert_type(result.receipt_id, str)
    match result.outcome:
        case Outcome.SUCCEEDED:
            return 0
        case Outcome.TIMED_OUT | Outcome.RESOURCE_KILLED:
            return 4
        case _:
            return 1


def contracts(runtime: Runtime) -> None:
    document = {"tool_id": "TL-010", "inputs": {"command": "sh", "stdin": "true"}}
    contract = runtime.contract(document)
    assert_type(contract, Contract)
    assert_type(contract.sandbox.timeout_ms, int | None)
    assert_type(runtime.execute(contract), Result)
    runtime.execute(document)
    runtime.execute(Path("contract.yaml"), wait_s=60.0)
    runtime.execute("tool_id: TL-010\ninputs: {command: sh}\n")
    forecast = runtime.check(document)
    assert_type(forecast.violations, tuple[Violation, ...])


def snippets(runtime: Runtime) -> None:
    result = runtime.python(
        "sum(numbers)",
        params={"numbers": [1, 2]},
        files={"a.txt": "text", "b.bin": b"bytes"},
        preload=["math"],
        timeout="2s",
    )
    assert_type(result, Result)
    print(result.output)


async def awaited(runtime: Runtime) -> list[Result]:
    return await asyncio.gather(
        *(runtime.aio.exec("shell", stdin=f"echo {number}") for number in range(3)),
        runtime.aio.execute({"tool_id": "TL-010", "inputs": {"command": "sh"}}),
        runtime.aio.python("1 + n", params={"n": 1}, timeout=5, on_output=heard),
    )


async def awaited_work(runtime: Runtime) -> None:
    done = await runtime.aio.work_file(Path("work.yaml"), config={"profile": "ci"}, at_once=2)
    assert_type(done.cancelled, bool)
    run = await runtime.aio.runs.submit(Path("work.yaml"))
    assert_type((await runtime.aio.runs.work(run.run_id)).run_id, str)


async def heard(stream: str, content: bytes) -> None:
    print(stream, len(content))


def kept(runtime: Runtime) -> None:
    with runtime.python_session(params={"n": 1}, idle_s=5, timeout="2s", memory="128M") as session:
        assert_type(session.run("x = n", files={"a": b"b"}), Result)
        assert_type(session.ended, str)
    assert_type(session.close(), Result)


async def kept_awaited(runtime: Runtime) -> Result:
    async with runtime.aio.python_session(preload=["json"]) as session:
        return await session.run("1", timeout="1s", queue_s=0.5)


def live(runtime: Runtime) -> None:
    def show(stream: str, content: bytes) -> None:
        print(stream, len(content))

    cancel = Cancel()
    runtime.exec("shell", stdin="echo hi", on_output=show, cancel=cancel)


def evidence(runtime: Runtime) -> bytes:
    result = runtime.exec("shell", stdin="true")
    assert_type(result.evidence_ref, str)
    assert_type(result.filled, tuple[str, ...])
    found = runtime.evidence(result.evidence_ref)
    for file in found.files:
        assert_type(file.sha256, str)
    return found.read("stdout")


def errors(runtime: Runtime) -> str:
    try:
        runtime.execute({"tool_id": "TL-010"})
    except ContractInvalid as error:
        assert_type(error.problems, tuple[Problem, ...])
        return error.problems[0].field
    except Refused as error:
        return error.remedy
    except Fault as error:
        return error.code
    except ActumError as error:
        return error.message
    return actum.__version__


def one_run(rt: Runtime, context: TraceContext) -> str | None:
    done = rt.run_tool("TL-010", {"stdin": "true"}, {"filesystem": {"write": []}}, context)
    assert_type(done, ToolRunResult)
    return done.error_reason


def temporary() -> None:
    with Runtime.temporary(pool=False) as runtime:
        runtime.exec("python", stdin="print(1)").check()


def values_are_checked_like_dataclasses() -> None:
    """mypy fails here when one of these mistakes stops being one (`warn_unused_ignores`)."""
    problem = Problem(field="a", message="b")
    Problem(field="a")  # type: ignore[call-arg]
    Problem(field=1, message="b")  # type: ignore[arg-type]
    Problem("a", "b")  # type: ignore[call-arg]
    problem.field = "c"  # type: ignore[misc]
    assert_type(replace(problem, field="c"), Problem)
