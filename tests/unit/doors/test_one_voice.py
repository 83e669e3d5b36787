"""All printing of the command line goes through `terminal`, which escapes control characters."""

from __future__ import annotations

import ast
from pathlib import Path

import actum.doors.cli

FOLDER = Path(actum.doors.cli.__file__).parent
#: File -> why it writes by itself.
ALLOWED = {
    "terminal.py": "is the voice",
    "live_output.py": "the tool's own bytes; a terminal gets them through `screen_filter`",
    "save.py": "a contract, to the letter",
    "completion_command.py": "a script for a shell",
    "run_progress.py": "one line on a terminal that is written again, of printable text",
    "main.py": "flushes, and closes after the last reader has left",
}
_WRITERS = {
    *(f"sys.{name}" for name in ("stdout", "stderr", "__stdout__", "__stderr__")),
    *("click.echo", "click.secho", "error.show", "os.write", "print"),
}


def _writes(file: Path) -> bool:
    nodes = list(ast.walk(ast.parse(file.read_text())))
    named = {ast.unparse(node) for node in nodes if isinstance(node, (ast.Attribute, ast.Name))}
    return not named.isdisjoint(_WRITERS)


def test_nothing_else_writes_to_the_terminal() -> None:
    writers = {file.name for file in FOLDER.rglob("*.py") if _writes(file)}
    assert writers == set(ALLOWED)
