"""Every keyword of the library: a wrong type is refused by its name, and nothing runs."""

from __future__ import annotations

import asyncio
import functools
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from actum import Cancel, ContractInvalid, ExecRequest, Result, Runtime
from actum.execution.keyword_types import check_snippet
from actum.value import fields

from .project import Project, elevated


class _Async:
    async def __call__(self, stream: str, content: bytes) -> None: ...


async def _async(*_given: Any) -> None: ...


#: keyword -> (wrong values, the field that is named if it is not the keyword itself)
EXEC: dict[str, list[tuple[Any, str]]] = {
    "tool": [(given, "tool") for given in (5, None, b"shell", ["shell"])],
    "arguments": [((5,), "arguments[0]"), (("a", b"b"), "arguments[1]"), (("a", None), "")],
    "parameters": [(given, "parameters") for given in ([], "a=b", 5, [("a", 1)], {1: 2})],
    "stdin": [(given, "stdin") for given in (5, ["a"], io.StringIO("x"), Path("x"))],
    "files": [
        *[(given, "files") for given in ("a.txt", b"a", 5, {"a": "b"}, Path("a"))],
        ([1], "files[0]"),
        (["a", None], "files[1]"),
    ],
    "env": [(given, "env") for given in ("A=b", ["A=b"], [("A", "b")], 5, {1: "x"})]
    + [({"A": 1}, "env.A"), ({"A": None}, "env.A"), ({"A": b"b"}, "env.A")],
    "secrets": [("TOKEN", "secrets"), (5, "secrets"), ([5], "secrets[0]"), ({"A": 1}, "secrets.A")],
    "cwd": [(given, "cwd") for given in (3, b"/tmp", ["/tmp"], True)],
    "timeout": [(given, "timeout") for given in (True, [], "soon", -1, 0, float("nan"))],
    "memory": [(given, "memory") for given in (True, [], "much", -1, 0, 2.5, 256, float("inf"))],
    "allow_hosts": [("x", "allow_hosts"), (5, "allow_hosts"), ([1], "allow_hosts[0]")],
    "set": [(given, "set") for given in ([], [1], "a=1", 5, {1: 2})],
    "purpose": [(given, "purpose") for given in (5, b"x", ["x"])],
    "requested_by": [(given, "requested_by") for given in (5, b"x")],
    "adapter_id": [(given, "adapter_id") for given in (5, b"x")],
}
CALL: dict[str, list[Any]] = {
    "on_output": [5, "x", _async, functools.partial(_async, 1), _Async(), _Async().__call__],
    "cancel": [5, True, object()],
    "wait_s": ["5s", True, -1, float("nan"), float("inf"), []],
    "queue_s": ["5s", True, -1, float("nan"), float("inf"), []],
    "turn": [5, object()],
    "changes": ["nope", "", None, 5, ["commit"]],
}
_WRONG = [
    (name, given, field or f"{name}[1]") for name, wrong in EXEC.items() for given, field in wrong
] + [(name, given, name) for name, wrong in CALL.items() for given in wrong]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    return Project(tmp_path_factory.mktemp("keywords"))


@pytest.fixture(scope="module")
def runtime(project: Project) -> Iterator[Runtime]:
    with project.open() as opened:
        yield opened


@pytest.fixture(autouse=True)
def _nothing_ran_before(project: Project) -> None:
    project.runner.plans.clear()


def refused(act: Callable[[], object], field: str) -> str:
    with pytest.raises(ContractInvalid) as caught:
        act()
    assert field in [problem.field for problem in caught.value.problems], caught.value
    assert all(problem.permitted or problem.message for problem in caught.value.problems)
    return str(caught.value)


def test_every_field_of_a_request_is_tried() -> None:
    assert set(EXEC) == {field.name for field in fields(ExecRequest)}


@pytest.mark.parametrize(("name", "given", "field"), _WRONG)
def test_exec(runtime: Runtime, project: Project, name: str, given: Any, field: str) -> None:
    words: dict[str, Any] = {"cwd": project.work, name: given}
    tool, arguments = words.pop("tool", "shell"), words.pop("arguments", ())
    refused(lambda: runtime.exec(tool, *arguments, **words), field)
    if not callable(given):  # which `rt.aio` awaits
        refused(lambda: asyncio.run(runtime.aio.exec(tool, *arguments, **words)), field)
    assert project.runner.plans == []


@pytest.mark.parametrize(
    ("name", "given", "field"), [each for each in _WRONG if each[0] in EXEC and each[0] != "tool"]
)
def test_a_request_as_a_value(runtime: Runtime, name: str, given: Any, field: str) -> None:
    refused(lambda: runtime.draft(ExecRequest(tool="shell", **{name: given})), field)


@pytest.mark.parametrize(
    ("words", "field"),
    [
        *[({"code": given}, "code") for given in (5, b"1", None)],
        *[({"params": given}, "params") for given in ([1], "a", {1: 2})],
        *[({"params": {"ok": 1, "a": given}}, "params.a") for given in ({1}, float("nan"), b"")],
        *[({"files": given}, "files") for given in ("a.txt", ["a.txt"], 5, {1: b""})],
        *[({"files": {"a": given}}, "files.a") for given in (5, None, ["x"])],
        *[({"preload": given}, "preload") for given in ("json", 5)],
        ({"preload": [5]}, "preload[0]"),
        *[({"venv": given}, "venv") for given in (5, b"venv")],
        *[({"set": given}, "set") for given in ([], "a", 5)],
        *[({"env": {"A": 1}}, "env.A"), ({"timeout": True}, "timeout"), ({"memory": 9}, "memory")],
        *[({"on_output": _async}, "on_output"), ({"changes": "x"}, "changes")],
    ],
)
def test_python(runtime: Runtime, project: Project, words: dict[str, Any], field: str) -> None:
    refused(lambda: runtime.python(**{"code": "1", **words}), field)
    if "on_output" not in words:
        refused(lambda: asyncio.run(runtime.aio.python(**{"code": "1", **words})), field)
    assert project.runner.plans == []


@pytest.mark.parametrize("given", [5, None, ["tool_id"], object()])
def test_execute(runtime: Runtime, given: Any) -> None:
    for act in (runtime.execute, runtime.contract, runtime.check):
        refused(lambda act=act: act(given), "contract")
    refused(lambda: asyncio.run(runtime.aio.execute(given)), "contract")


@pytest.mark.parametrize(("name", "given"), [(n, g) for n, all_ in CALL.items() for g in all_])
def test_what_comes_along_with_a_contract(runtime: Runtime, name: str, given: Any) -> None:
    document = {"tool_id": "TL-010", "inputs": {"command": "sh", "stdin": ""}}
    refused(lambda: runtime.execute(document, **{name: given}), name)
    refused(lambda: runtime.execute(document, on_waiting=_async), "on_waiting")


def test_the_name_of_a_file_as_text_says_how_files_are_named(runtime: Runtime) -> None:
    assert "name a file by Path" in refused(lambda: runtime.execute("contract.yaml"), "contract")


@pytest.mark.parametrize(
    ("words", "field"),
    [
        *[({"lifetime": given}, "lifetime") for given in (True, "long", -1)],
        *[({"idle_s": given}, "idle_s") for given in ("5s", True, -1, float("nan"))],
        *[({"timeout": []}, "timeout"), ({"changes": "x"}, "changes"), ({"set": []}, "set")],
        *[({"files": "a"}, "files"), ({"params": []}, "params"), ({"env": {"A": 1}}, "env.A")],
    ],
)
def test_a_session(runtime: Runtime, words: dict[str, Any], field: str) -> None:
    refused(lambda: runtime.python_session(**words), field)


@pytest.mark.parametrize("name", ["cancel", "turn"])
def test_an_awaited_call_is_cancelled_by_its_task(runtime: Runtime, name: str) -> None:
    refused(lambda: asyncio.run(runtime.aio.exec("shell", **{name: Cancel()})), name)


def test_values_of_the_environment_are_never_repeated(runtime: Runtime) -> None:
    text = refused(lambda: runtime.exec("shell", env={"TOKEN": b"hunter2"}), "env.TOKEN")
    assert "hunter2" not in text
    text = refused(lambda: runtime.exec("shell", secrets={"TOKEN": ["hunter2"]}), "secrets.TOKEN")
    assert "hunter2" not in text


def test_every_wrong_keyword_is_named_at_once(runtime: Runtime) -> None:
    with pytest.raises(ContractInvalid) as caught:
        runtime.exec("shell", 1, files="a", env={"A": 1}, timeout=True, memory=[], purpose=5)
    named = [problem.field for problem in caught.value.problems]
    assert named == ["arguments[0]", "files", "env.A", "timeout", "memory", "purpose"]


def test_a_malformed_request_is_on_record_and_a_draft_is_not(runtime: Runtime) -> None:
    def recorded() -> int:
        return int(runtime.database.row("SELECT count(*) FROM audit")[0])

    before = recorded()
    refused(lambda: runtime.draft(ExecRequest(tool="shell", timeout="soon")), "timeout")
    assert recorded() == before
    refused(lambda: runtime.exec("shell", timeout="soon"), "timeout")
    assert recorded() == before + 1


def test_what_people_give_works(runtime: Runtime, project: Project) -> None:
    (project.work / "a.txt").write_text("a")
    for words in (
        {"timeout": 5, "memory": 256 * 1_048_576},
        {"timeout": 2.5, "memory": "256M"},
        {"timeout": "5s", "files": [Path("a.txt")], "stdin": memoryview(b"x")},
        {"files": ("a.txt",), "env": {}, "set": None, "parameters": None, "secrets": []},
        {"allow_hosts": frozenset(), "wait_s": 0, "queue_s": 1, "cancel": Cancel()},
    ):
        given = {"stdin": "true", **words}
        assert runtime.exec("shell", cwd=str(project.work), **given).ok, words
    assert runtime.exec("shell", Path("a.txt"), "b", cwd=project.work).ok
    limits = [plan.policy.limits for plan in project.runner.plans]
    assert [each.timeout_ms for each in limits[:3]] == [5_000, 2_500, 5_000]
    assert [each.memory_mb for each in limits[:2]] == [256, 256]
    assert project.runner.plans[-1].argv[-2:] == ("a.txt", "b")


def test_a_listener_that_turns_out_to_be_async_is_an_error_and_never_ignored(
    runtime: Runtime, project: Project
) -> None:
    """A lambda that returns a coroutine is found at its first call."""
    from actum.execution.keyword_types import not_awaitable

    with pytest.raises(TypeError, match="on_output: it is async"):
        not_awaitable(lambda *given: _async(*given))("stdout", b"x")
    heard: list[bytes] = []
    not_awaitable(lambda _name, chunk: heard.append(chunk))("stdout", b"x")
    assert heard == [b"x"]


def test_an_awaited_call_awaits_what_it_tells_while_it_waits(
    runtime: Runtime, project: Project
) -> None:
    told: list[tuple[str, ...]] = []

    async def tell(result: Result) -> None:
        await asyncio.sleep(0)
        told.append(result.reason_codes)

    async def ask() -> Result:
        words: dict[str, Any] = {"cwd": project.work, "set": elevated("/etc/hostname")}
        words["stdin"] = "true"
        return await runtime.aio.exec("shell", wait_s=0, on_waiting=tell, **words)

    assert asyncio.run(ask()).reason_codes == ("APPROVAL_REQUIRED",)
    assert told == [("APPROVAL_REQUIRED",)]


@pytest.mark.parametrize(
    ("params", "field"),
    [
        ({"a b": 1}, "params.a b"),
        ({"class": 1}, "params.class"),
        ({"x": {1: "a", "1": "b"}}, "params.x"),  # JSON would drop one of the two
        ({"x": [{"y": ({None: 1},)}]}, "params.x"),
    ],
)
def test_a_parameter_that_a_snippet_would_not_get_as_given_is_refused(params: Any, field: str):
    with pytest.raises(ContractInvalid) as caught:
        check_snippet("1", params=params, files={})
    assert [each.field for each in caught.value.problems] == [field]


def test_a_name_that_cannot_be_a_file_is_said_to_be_one():
    with pytest.raises(ContractInvalid, match=r'files: "\.\./a" cannot be the name of a file'):
        check_snippet("1", params={}, files={"../a": "x"})


def test_a_limit_that_is_given_twice_is_refused(runtime: Runtime) -> None:
    for words, name in (
        ({"timeout": "5s", "set": {"sandbox.timeout_ms": 9_000}}, "timeout"),
        ({"memory": "64M", "set": {"sandbox.memory_mb": 1_024}}, "memory"),
    ):
        with pytest.raises(ContractInvalid) as caught:
            runtime.draft(ExecRequest(tool="shell", **words))
        assert [each.field for each in caught.value.problems] == [name]
