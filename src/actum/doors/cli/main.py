"""The door from a shell: `actum`. Words in, one call into the house, words out.

The only place where an error of ours becomes text, JSON and an exit code. It decides nothing.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from actum.doors.cli.plain import understood

if TYPE_CHECKING:
    import click

_HERE = "actum.doors.cli"
COMMANDS = {
    "init": (f"{_HERE}.init", "Make a project here: settings, ready tools, keys."),
    "try": (f"{_HERE}.attempt", "Run a program from stdin in a throwaway project."),
    "exec": (f"{_HERE}.execute", "Carry out one execution."),
    "check": (f"{_HERE}.check", "Everything up to the start: would it run, and held by what?"),
    "doctor": (f"{_HERE}.doctor", "What this host can enforce, and the remedy where it cannot."),
    "host": (f"{_HERE}.host", "Give an ordinary user a cgroup subtree, or take it back."),
    "tools": (f"{_HERE}.tools", "The registry and its change control."),
    "adapters": (f"{_HERE}.adapters", "How tools are spoken to, told level by level."),
    "approvals": (f"{_HERE}.approvals", "What waits for a person's decision."),
    "executors": (f"{_HERE}.executors", "Pure functions: list, review, call, new."),
    "work": (f"{_HERE}.work", "A graph of work items, level by level."),
    "diff": (f"{_HERE}.diff", "What an execution changed; decide about changes that wait."),
    "undo": (f"{_HERE}.undo", "Undo the changes of an execution or a work item."),
    "item": (f"{_HERE}.item", "One work item: an agent's work, all of it or nothing."),
    "golden": (f"{_HERE}.golden", "Outputs that are expected: record, list, show, remove."),
    "receipts": (f"{_HERE}.receipts", "Signed records of what was done."),
    "verify": (f"{_HERE}.verify", "Check receipts and all that hangs on them."),
    "replay": (f"{_HERE}.replay", "Carry out an execution again, and compare with its record."),
    "trace": (f"{_HERE}.trace", "The events of one execution."),
    "audit": (f"{_HERE}.audit", "The log's signed checkpoint, and proofs from it."),
    "keys": (f"{_HERE}.keys", "The public key to hand out, and another one to sign with."),
    "session": (f"{_HERE}.session", "Sessions, in which raw output is kept."),
    "gc": (f"{_HERE}.gc", "Remove what nothing refers to."),
    "new": (f"{_HERE}.new", "Start a contract, a tool or an adapter from a commented file."),
    "schema": (f"{_HERE}.schema", "The JSON Schema of a document."),
    "config": (f"{_HERE}.config", "The settings in force, and their approval."),
    "completion": (f"{_HERE}.completion", "Completion for a shell."),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """The entry point: always exits."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    code = _run(given)
    if arguments is None and understood(given) is not None:
        _leave(code)
    sys.exit(code)


def _leave(code: int) -> NoReturn:
    """At once: what was to be closed is closed, and taking the interpreter apart takes longer than
    starting the tool did."""
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def _run(arguments: list[str]) -> int:
    from actum.errors import ActumError

    try:
        code = _carried_out(arguments)
        sys.stdout.flush()
    except ActumError as error:
        return _ours(error, arguments)
    except KeyboardInterrupt:
        return _failed(arguments, "CANCELLED", "Cancelled.", 130)
    except BrokenPipeError:
        # The reader left. Python would complain once more when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        # The last door: whatever was not foreseen is our fault, and is said so.
        if os.environ.get("ACTUM_DEBUG") == "1":
            raise
        text = f"Actum failed: {type(error).__name__}: {error}. ACTUM_DEBUG=1 shows where."
        return _failed(arguments, "FAULT", text, 70)
    return code


def _carried_out(arguments: list[str]) -> int:
    asked = understood(arguments)
    if asked is not None:
        gc.disable()  # hardly anything of what is imported now is ever garbage; see carry_out
        from actum.doors.cli.asked import Usage
        from actum.doors.cli.carry_out import carry_out

        try:
            return carry_out(**asked)
        except Usage:
            pass  # the same words again: the library says it with the usage of the command
    return _by_click(arguments)


def _by_click(arguments: list[str]) -> int:
    import click

    from actum.doors.cli.group import cli

    try:
        code = cli.main(arguments, prog_name="actum", standalone_mode=False)
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except click.ClickException as error:
        return _usage(error, arguments)
    except click.Abort:
        raise KeyboardInterrupt from None
    return code if isinstance(code, int) else 0


def _usage(error: click.ClickException, arguments: list[str]) -> int:
    import click

    if _json(arguments):
        return _failed(arguments, "USAGE", error.format_message(), 2)
    from actum.doors.cli import say

    # As click shows it, but for the words of the command line that the message repeats.
    if isinstance(error, click.UsageError) and error.ctx is not None:
        for line in error.ctx.get_usage().split("\n"):
            say.aside(line)
        if error.ctx.command.get_help_option(error.ctx) is not None:
            option = error.ctx.help_option_names[0]
            say.aside(f"Try '{error.ctx.command_path} {option}' for help.")
        say.aside("")
    say.aside(f"Error: {error.format_message()}")
    return 2


def _ours(error: Exception, arguments: list[str]) -> int:
    from actum.doors.cli import exit_codes, reply, say
    from actum.errors import ActumError

    assert isinstance(error, ActumError)  # noqa: S101 -- the only caller caught one
    if _json(arguments):
        say.document(reply.error_document(error))
    else:
        for text in reply.error_lines(error):
            say.aside(text)
    return exit_codes.of_error(error)


def _failed(arguments: list[str], code: str, message: str, status: int) -> int:
    from actum.doors.cli import say

    if _json(arguments):
        say.document(
            {
                "error": {
                    "code": code,
                    "message": message,
                    "remedy": "",
                    "problems": [],
                    "violations": [],
                }
            }
        )
    else:
        say.aside(message)
    return status


def _json(arguments: list[str]) -> bool:
    """Whether `--json` was among our own words, also if the rest could not be understood."""
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--json" in own


if __name__ == "__main__":
    main()
