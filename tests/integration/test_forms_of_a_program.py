"""A program for an interpreter, given through the library: it runs, or is refused by its field."""

from __future__ import annotations

import asyncio
import base64
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from actum import ContractInvalid, Outcome, Result, Runtime

pytestmark = pytest.mark.sandbox

NODE = pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")


@pytest.fixture(scope="module")
def rt() -> Iterator[Runtime]:
    with Runtime.temporary(pool=False) as runtime:
        yield runtime


@pytest.fixture
def root(rt: Runtime) -> Path:
    root = rt.settings.root
    (root / "a.py").write_text("import sys; print('file', *sys.argv[1:])")
    (root / "a.js").write_text("console.log('file', ...process.argv.slice(2))")
    (root / "a.sh").write_text("echo file $1")
    return root


def predicate(rt: Runtime, result: Result) -> dict[str, Any]:
    envelope = rt.services.receipts.find(result.receipt_id).envelope
    found: dict[str, Any] = json.loads(base64.b64decode(envelope["payload"]))["predicate"]
    return found


def said(result: Result) -> str:
    assert result.result is not None, result.violations
    return result.result.stdout


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("shell", "-c", "echo hi"), "hi\n"),
        (("python", "-c", "print(6 * 7)"), "42\n"),
        pytest.param(("node", "-e", "console.log(6 * 7)"), "42\n", marks=NODE),
        pytest.param(("node", "--eval", "console.log(6 * 7)"), "42\n", marks=NODE),
        (("python", "a.py", "x"), "file x\n"),
        (("python", Path("a.py")), "file\n"),
        (("shell", "a.sh", "x"), "file x\n"),
        pytest.param(("node", "a.js", "x"), "file x\n", marks=NODE),
    ],
    ids=str,
)
def test_a_file_and_a_text_run(
    rt: Runtime, root: Path, words: tuple[str, ...], expected: str
) -> None:
    assert said(rt.exec(*words, cwd=root)) == expected


@pytest.mark.parametrize(
    ("words", "code", "field"),
    [
        (("shell", "ls"), "IV-03", "inputs.arguments[0]"),
        (("shell", "ls -la"), "IV-03", "inputs.arguments[0]"),
        (("python", "print(1)"), "IV-03", "inputs.arguments[0]"),
        (("python", "missing.py"), "IV-03", "inputs.arguments[0]"),
        (("python", "."), "IV-03", "inputs.arguments[0]"),
        (("python", "/etc/passwd"), "IV-03", "inputs.arguments[0]"),
        (("python", "../outside.py"), "IV-03", "inputs.arguments[0]"),
        (("shell",), "PROGRAM_EMPTY", "inputs.stdin"),
        (("python",), "PROGRAM_EMPTY", "inputs.stdin"),
        (("node",), "PROGRAM_EMPTY", "inputs.stdin"),
        (("shell", "-c"), "PROGRAM_EMPTY", "inputs.arguments[0]"),
        (("shell", "-c", " \n"), "PROGRAM_EMPTY", "inputs.arguments[1]"),
        (("shell", "-ec", "ls"), "PROGRAM_EMPTY", "inputs.arguments[0]"),
        (("python", "-m", "this"), "PROGRAM_EMPTY", "inputs.arguments[0]"),
        (("python", "-c", "print(1)", "x"), "ARGS_INVALID", "inputs.arguments[2]"),
    ],
    ids=str,
)
def test_any_other_form_is_refused_by_its_field(
    rt: Runtime, root: Path, words: tuple[str, ...], code: str, field: str
) -> None:
    (root.parent / "outside.py").write_text("print('outside')")
    refused = rt.exec(*words, cwd=root)
    assert (refused.outcome, refused.result) == (Outcome.REJECTED, None)
    assert [(each.code, each.field) for each in refused.violations] == [(code, field)]
    assert f"actum exec {words[0]} " in refused.violations[0].message
    assert rt.verifier.verify_execution(refused.receipt_id)


@pytest.mark.parametrize("stdin", ["", b"", " \n\t", b"\n"])
def test_an_empty_stdin_is_refused_and_no_argument_becomes_the_program(
    rt: Runtime, root: Path, stdin: bytes | str
) -> None:
    for words in ((), ("a.sh",), ("-c", "touch ran"), ("touch ran",)):
        refused = rt.exec("shell", *words, stdin=stdin, cwd=root)
        assert refused.result is None
        assert refused.reason_codes == ("PROGRAM_EMPTY",)
        assert [each.field for each in refused.violations] == ["inputs.stdin"]
    assert not (root / "ran").exists()


def test_a_program_on_stdin_has_the_arguments_whatever_they_are(rt: Runtime, root: Path) -> None:
    for words in (("a.sh",), ("-c", "touch ran"), ("x", "y")):
        assert said(rt.exec("shell", *words, stdin='echo "$@"', cwd=root)).split() == [
            word for given in words for word in given.split()
        ]
    assert not (root / "ran").exists()


def test_contracts_are_refused_alike(rt: Runtime, root: Path) -> None:
    inputs = {"command": "sh", "working_directory": str(root)}
    for stdin in ({}, {"stdin": ""}, {"stdin": {"base64": "Cg=="}}):
        refused = rt.execute({"tool_id": "TL-010", "inputs": {**inputs, **stdin}})
        assert refused.reason_codes == ("PROGRAM_EMPTY",)
    forecast = rt.check({"tool_id": "TL-010", "inputs": inputs})
    assert [each.code for each in forecast.violations] == ["PROGRAM_EMPTY"]
    # A decision about the same request with a program is cached, and does not serve this one.
    assert rt.exec("shell", stdin="true", cwd=root).ok
    assert rt.exec("shell", cwd=root).reason_codes == ("PROGRAM_EMPTY",)


def test_an_empty_snippet_is_refused_before_it_starts(rt: Runtime) -> None:
    for code in ("", " \n"):
        with pytest.raises(ContractInvalid) as refused:
            rt.python(code)
        assert [problem.field for problem in refused.value.problems] == ["code"]
    assert rt.python("# a comment is a program\n").ok


def test_a_program_file_is_sealed_and_its_content_is_in_the_receipt(
    rt: Runtime, root: Path
) -> None:
    found = []
    for content in ("print(1)", "print(2)", "print(1)"):
        (root / "b.py").write_text(content)
        result = rt.exec("python", "b.py", cwd=root)
        assert said(result) == content[6] + "\n"
        assert all(each.passed for each in rt.verifier.verify_execution(result.receipt_id))
        found.append(predicate(rt, result)["input_digest"])
    assert found[0] == found[2] != found[1]


def test_a_link_runs_as_the_file_that_was_checked(rt: Runtime, root: Path) -> None:
    (root / "c.py").write_text("import sys; print(sys.argv[0])")
    (root / "link.py").unlink(missing_ok=True)
    (root / "link.py").symlink_to("c.py")
    (root / "out.py").unlink(missing_ok=True)
    (root / "out.py").symlink_to("/etc/passwd")
    assert said(rt.exec("python", "c.py", cwd=root)) == "c.py\n"
    assert said(rt.exec("python", "link.py", cwd=root)) == f"{root}/c.py\n"
    refused = rt.exec("python", "out.py", cwd=root)
    assert [(each.code, each.field) for each in refused.violations] == [
        ("IV-03", "inputs.arguments[0]")
    ]


def test_an_empty_program_file_is_refused(rt: Runtime, root: Path) -> None:
    for content in ("", " \n\n"):
        (root / "empty.py").write_text(content)
        refused = rt.exec("python", "empty.py", cwd=root)
        assert refused.result is None
        assert [(each.code, each.field) for each in refused.violations] == [
            ("PROGRAM_EMPTY", "inputs.arguments[0]")
        ]


def test_shell_runs_a_script_or_one_command(rt: Runtime, root: Path) -> None:
    assert said(rt.shell("echo hi | tr h H", cwd=root)) == "Hi\n"
    assert said(rt.shell("printf", "%s|", "$(id)", "a  b", "*", cwd=root)) == "$(id)|a  b|*|"
    assert rt.shell("exit 3", cwd=root).outcome is Outcome.TOOL_ERROR
    assert rt.shell("", cwd=root).reason_codes == ("PROGRAM_EMPTY",)
    assert rt.shell(cwd=root).reason_codes == ("PROGRAM_EMPTY",)
    for words, more, field in (
        (("ls -la", "x"), {}, "words[0]"),
        (("ls", 5), {}, "words[1]"),
        (("ls",), {"stdin": "x"}, "stdin"),
    ):
        with pytest.raises(ContractInvalid) as wrong:
            rt.shell(*words, cwd=root, **more)  # type: ignore[arg-type]
        assert [problem.field for problem in wrong.value.problems] == [field]


def test_shell_can_be_awaited(rt: Runtime, root: Path) -> None:
    async def several() -> list[Result]:
        return await asyncio.gather(*(rt.aio.shell(f"echo {n}", cwd=root) for n in range(3)))

    assert [said(result) for result in asyncio.run(several())] == ["0\n", "1\n", "2\n"]
