"""Where the program of an interpreter comes from, by the adapter's own declaration."""

from __future__ import annotations

from typing import Any

import pytest
from policy.factories import make_cli, make_contract

from actum.adapters.given_program import GivenProgram, given_program
from actum.errors import Refused
from actum.registry.model import ProgramInterface

BASE = ("-s", "--")
FULL = ProgramInterface(example="echo 'x'", text_options=("-c",), file_args=("--",))


def given(program: ProgramInterface | None, *words: str, stdin: bytes | None = None) -> Any:
    cli = make_cli(executable="sh", base_args=BASE, program=program)
    inputs = make_contract(arguments=words, stdin=stdin, parameters={}).inputs
    return given_program(cli, inputs, "own")


def refusal(program: ProgramInterface, *words: str, stdin: bytes | None = None) -> Refused:
    with pytest.raises(Refused) as refused:
        given(program, *words, stdin=stdin)
    return refused.value


def test_a_tool_that_runs_no_program_is_left_alone() -> None:
    for stdin in (None, b"", b"data"):
        for words in ((), ("-c", "x"), ("a",)):
            expected = GivenProgram(base_args=BASE, arguments=words, stdin=stdin or b"")
            assert given(None, *words, stdin=stdin) == expected


def test_stdin_is_the_program_and_the_arguments_are_its_own() -> None:
    for words in ((), ("-c", "x"), ("a",)):
        assert given(FULL, *words, stdin=b"p") == GivenProgram(
            base_args=BASE, arguments=words, stdin=b"p"
        )


def test_without_stdin_words_mean_what_they_mean_to_the_interpreter() -> None:
    assert given(FULL, "-c", "echo é") == GivenProgram(
        base_args=BASE, arguments=(), stdin="echo é".encode()
    )
    file = given(FULL, "a.sh", "x")
    assert (file.base_args, file.arguments, file.stdin) == (("--",), ("a.sh", "x"), b"")
    assert (file.file.path, file.file.field) == ("a.sh", "inputs.arguments[0]")


def test_what_the_adapter_does_not_declare_is_refused() -> None:
    least = ProgramInterface(example="echo 'x'")
    for words in ((), ("a.sh",), ("-c", "echo x")):
        refused = refusal(least, *words)
        assert refused.code == "PROGRAM_EMPTY"
        assert """printf %s 'echo '"'"'x'"'"'' | actum exec own --stdin -`""" in refused.remedy
    only_file = ProgramInterface(example="x", file_args=())
    assert "printf %s 'ls -la' | actum exec own" in given(only_file, "ls -la").file.otherwise
    assert refusal(only_file, "-c", "x").code == "PROGRAM_EMPTY"


def test_a_text_that_cannot_be_shown_on_one_line_is_not_repeated() -> None:
    for text in ("a\nb", "a" * 5_000, "a\x1b[31m"):
        assert text not in given(FULL, text).file.otherwise
        assert "--stdin FILE" in given(FULL, text).file.otherwise


@pytest.mark.parametrize(
    "stdin", [b"\xef\xbb\xbf", b"\xef\xbb\xbf \n", b"\0", b"\n\0\n", b" \t\r\n\v\f"]
)
def test_bytes_that_an_interpreter_skips_are_no_program(stdin: bytes) -> None:
    assert refusal(FULL, stdin=stdin).code == "PROGRAM_EMPTY"
    assert refusal(FULL, "-c", stdin.decode()).code == "PROGRAM_EMPTY"
    assert given(FULL, stdin=stdin + b"x").stdin == stdin + b"x"
