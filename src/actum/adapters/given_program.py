"""The program of an interpreter: from stdin, from a file, or from an option's text.

An adapter with `interface.cli.program` runs a program that the caller writes. Its stdin is that
program, and the arguments are the program's own. Without stdin, the arguments mean what they mean
to the interpreter itself: a program file and its arguments, or `-c TEXT`. The text then goes to
stdin: code is never in an argument of a tool. Anything else is refused before the start, because
an interpreter without a program exits with 0. This module reads no file.

An empty stdin is not a missing one: if a caller gives a script and arguments and the script is
lost, no argument becomes code.
"""

from __future__ import annotations

from collections.abc import Sequence

from actum.contract.call import ProgramFile
from actum.contract.model import Inputs
from actum.errors import Refused, Violation
from actum.registry.model import CliInterface, ProgramInterface
from actum.value import value

_MOST_SHOWN = 1_000  #: characters of a program that a refusal repeats in its command
_MARK = "\ufeff".encode()  #: the byte order mark, which python3 and node skip
_BLANK = b" \t\n\r\v\f\0"  #: sh skips NUL as well


@value
class GivenProgram:
    """The parts of a call that depend on where its program is."""

    base_args: tuple[str, ...]
    arguments: tuple[str, ...]
    stdin: bytes
    file: ProgramFile | None = None


def is_blank(start: bytes) -> bool:
    """Whether the content, or its first part, holds nothing that an interpreter would run."""
    return not start.removeprefix(_MARK).strip(_BLANK)


def given_program(cli: CliInterface, inputs: Inputs, tool: str) -> GivenProgram:
    """The parts of the call; for other tools than interpreters they are as given. Raises `Refused`
    if there is no program."""
    words, stdin, program = inputs.arguments, inputs.stdin, cli.program
    if program is None or (stdin is not None and not is_blank(stdin)):
        return GivenProgram(base_args=cli.base_args, arguments=words, stdin=stdin or b"")
    if stdin is not None:
        raise _empty("inputs.stdin", f"the program for {tool} is empty", program, tool)
    if not words:
        raise _empty("inputs.stdin", f"{tool} runs a program, and none is given", program, tool)
    if words[0] in program.text_options:
        text = _text_of(words, program, tool)
        return GivenProgram(base_args=cli.base_args, arguments=(), stdin=text.encode())
    if words[0].startswith("-"):
        why = f"{words[0][:80]!r} is an option of {cli.executable}, and the adapter passes none on"
        raise _empty("inputs.arguments[0]", why, program, tool)
    if program.file_args is None:
        why = f"{tool} takes its program from stdin, and none is given"
        raise _empty("inputs.stdin", why, program, tool)
    file = ProgramFile(
        path=words[0],
        field="inputs.arguments[0]",
        otherwise="Without stdin, the first argument names a program file. "
        + _if_text(words, program, tool),
    )
    return GivenProgram(base_args=program.file_args, arguments=words, stdin=b"", file=file)


def _text_of(words: tuple[str, ...], program: ProgramInterface, tool: str) -> str:
    """The text in `-c TEXT`."""
    option, *rest = words
    if not rest or not rest[0].strip() or is_blank(rest[0].encode()):
        field = f"inputs.arguments[{min(len(rest), 1)}]"
        raise _empty(field, f"the program after {option} is empty", program, tool)
    text, *arguments = rest
    if arguments:
        # Interpreters differ here: for sh the next word is $0, for python3 it is sys.argv[1].
        raise _refusal(
            "ARGS_INVALID",
            "inputs.arguments[2]",
            f"after {option} comes one program text, and no arguments",
            f"Give the program on stdin: {_piped(text, tool, arguments)}.",
        )
    return text


def _if_text(words: tuple[str, ...], program: ProgramInterface, tool: str) -> str:
    """Commands for a caller who meant a program's text, to be copied into a shell."""
    # Several words are a command as people type it, of which each stays one word.
    text = words[0] if len(words) == 1 else _joined(words)
    if len(text) > _MOST_SHOWN or not text.isprintable():
        return f"A text goes to stdin, or into a file: `actum exec {tool} --stdin FILE`."
    if not program.text_options:
        return f"To run it as a text: {_piped(text, tool)}."
    return (
        f"To run it as a text: `actum exec {tool} -- {program.text_options[0]} {_joined([text])}`."
        f" To run a program from a pipe with arguments: `actum exec {tool} --stdin - -- ARGUMENTS`."
    )


def _empty(field: str, why: str, program: ProgramInterface, tool: str) -> Refused:
    return _refusal(
        "PROGRAM_EMPTY",
        field,
        why,
        f"Give a program on stdin, for example {_piped(program.example, tool)},"
        f" or in a file: `actum exec {tool} --stdin FILE`.",
    )


def _refusal(code: str, field: str, why: str, remedy: str) -> Refused:
    message = f"{field}: {why}."
    violation = Violation(code=code, field=field, value="", message=f"{message} {remedy}")
    return Refused(code, message, remedy=remedy, violations=(violation,))


def _piped(text: str, tool: str, arguments: Sequence[str] = ()) -> str:
    rest = f" -- {_joined(arguments)}" if arguments else ""
    return f"`printf %s {_joined([text])} | actum exec {tool} --stdin -{rest}`"


def _joined(words: Sequence[str]) -> str:
    """The words as a shell reads them back."""
    import shlex

    return shlex.join(words)
