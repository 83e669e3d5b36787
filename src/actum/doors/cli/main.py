"""`actum`: the command line. Arguments in, one call into the library, output and exit code out.

The only module that turns an `ActumError` into text, JSON and an exit code. It decides nothing.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn

from actum.doors.cli.light_exec import understood
from actum.platforms import unsupported

if TYPE_CHECKING:
    import click

_HERE = "actum.doors.cli"
#: Command -> what it does. Its module is `<command>_command`.
_HELP = {
    "init": "Make a project here: settings, ready tools, keys.",
    "try": "Run a program from stdin in a throwaway project.",
    "exec": "Run one execution.",
    "sh": "Run a shell script or a command.",
    "check": "Check a request without running it: would it run, under which limits?",
    "doctor": "Show what this host can enforce, and the remedy where it cannot.",
    "host": "Give an ordinary user a cgroup subtree, or take it back.",
    "tools": "Show, approve, block and compare tools.",
    "images": "Add, list, show and remove root file systems for tools.",
    "adapters": "List and describe adapters.",
    "approvals": "List and decide requests for approval.",
    "executors": "List, review, call and create pure functions.",
    "work": "Run a graph of work items, level by level.",
    "runs": "Durable runs: submit, status, continue, cancel, gate.",
    "worker": "Carry out durable runs.",
    "snapshot": "Save the project's folder in an object store; restore it elsewhere.",
    "fleet": "Prepare the database of durable runs on many machines.",
    "diff": "What an execution changed; decide about changes that wait.",
    "undo": "Undo the changes of an execution or a work item.",
    "item": "Run one work item: all of an agent's work, or nothing of it.",
    "golden": "Record, list, show and remove expected outputs.",
    "receipts": "List and show signed records of what was done.",
    "evidence": "Show evidence records; get collected files and raw output.",
    "verify": "Verify receipts and the records they bind.",
    "replay": "Run an execution again and compare it with its record.",
    "log": "Show what happened lately, one line each.",
    "trace": "Show the events of one execution.",
    "audit": "Print the log's signed checkpoint, and proofs from it.",
    "keys": "Show the public key; rotate the signing key.",
    "session": "List and end sessions, which store raw output.",
    "gc": "Remove unreferenced files, and contents older than an age.",
    "new": "Start a contract, a tool or an adapter from a commented file.",
    "schema": "Print the JSON Schema of a document.",
    "config": "Show and approve the settings in force.",
    "completion": "Print the completion script of a shell.",
}
COMMANDS = {name: (f"{_HERE}.{name}_command", text) for name, text in _HELP.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    """The entry point: always exits."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if sentence := unsupported():
        code = _failed(given, "PLATFORM_UNSUPPORTED", sentence, 3)
        sys.exit(code)
    code = _run(given)
    if arguments is None and understood(given) is not None:
        _leave(code)
    sys.exit(code)


def _leave(code: int) -> NoReturn:
    """Exit at once: everything is closed, and finalizing the interpreter takes longer than starting
    the tool did."""
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
        # The outermost handler: an unexpected error is a fault of Actum, and is reported as one.
        if os.environ.get("ACTUM_DEBUG") == "1":
            raise
        from actum.doors.known_failures import explained

        known = explained(error)
        if known is not None:
            return _ours(known, arguments)
        text = f"Actum failed: {type(error).__name__}: {error}. ACTUM_DEBUG=1 shows where."
        return _failed(arguments, "FAULT", text, 70)
    return code


def _carried_out(arguments: list[str]) -> int:
    asked = understood(arguments)
    if asked is not None:
        gc.disable()  # imports create hardly any garbage; see carry_out
        from actum.doors.cli.exec_output import carry_out
        from actum.doors.cli.request_from_options import Usage

        try:
            return carry_out(**asked)
        except Usage:
            pass  # click parses the same arguments and reports the error with the command's usage
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
    from actum.doors.cli import terminal

    if isinstance(error, getattr(click.exceptions, "NoArgsIsHelpError", ())):  # since click 8.2
        for line in error.format_message().split("\n"):  # our own help text
            terminal.aside(line)
        return 2
    # As click shows it, but with the user's arguments in the message escaped.
    if isinstance(error, click.UsageError) and error.ctx is not None:
        for line in error.ctx.get_usage().split("\n"):
            terminal.aside(line)
        if error.ctx.command.get_help_option(error.ctx) is not None:
            option = error.ctx.help_option_names[0]
            terminal.aside(f"Try '{error.ctx.command_path} {option}' for help.")
        terminal.aside("")
    candidates: list[str] = getattr(error, "candidates", [])
    terminal.aside(f"Error: {error.message if candidates else error.format_message()}")
    for each in candidates:
        terminal.aside(each)
    return 2


def _ours(error: Exception, arguments: list[str]) -> int:
    from actum.doors.cli import exit_codes, reply, terminal
    from actum.errors import ActumError

    assert isinstance(error, ActumError)  # noqa: S101 -- the only caller caught one
    if _json(arguments):
        terminal.document(reply.error_document(error))
    else:
        for text in reply.error_lines(error):
            terminal.aside(text)
    return exit_codes.of_error(error)


def _failed(arguments: list[str], code: str, message: str, status: int) -> int:
    from actum.doors.cli import terminal

    if _json(arguments):
        terminal.document(
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
        terminal.aside(message)
    return status


def _json(arguments: list[str]) -> bool:
    """Whether `--json` was among the options, also if the rest could not be parsed."""
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    return "--json" in own


if __name__ == "__main__":
    main()
