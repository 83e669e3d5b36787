"""What users can meet is written down: every code, every command, every setting."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import actum
from actum.settings import _KEYS

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src" / "actum").rglob("*.py"))


def codes_of(tree: ast.AST) -> Iterator[str]:
    """Reason codes: first argument of Refused(...), `code=` of Violation(...), `code = ...`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "id", getattr(node.func, "attr", ""))
            given = [item.value for item in node.keywords if item.arg == "code"]
            if name == "Refused" and node.args:
                given.append(node.args[0])
            for value in given:
                if isinstance(value, ast.Constant) and isinstance(value.value, str):
                    yield value.value
        elif isinstance(node, ast.ClassDef):
            for item in node.body:
                if (
                    isinstance(item, ast.Assign)
                    and any(getattr(target, "id", "") == "code" for target in item.targets)
                    and isinstance(item.value, ast.Constant)
                ):
                    yield str(item.value.value)


def test_every_error_code_is_documented() -> None:
    text = (ROOT / "docs" / "errors.md").read_text()
    codes = {code for file in SOURCES for code in codes_of(ast.parse(file.read_text()))}
    codes = {code for code in codes if code.replace("_", "").replace("-", "").isupper()}
    assert len(codes) > 40
    missing = sorted(code for code in codes if f"`{code}`" not in text)
    assert missing == []


def test_every_setting_is_documented() -> None:
    text = (ROOT / "docs" / "configuration.md").read_text()
    names = [f"{section}.{name}" for section, entries in _KEYS.items() for name in entries]
    assert [name for name in names if f"`{name}`" not in text] == []


def test_every_command_is_documented() -> None:
    import click

    from actum.doors.cli.main import cli as group

    text = (ROOT / "docs" / "commands.md").read_text()
    context = click.Context(group)
    missing = [name for name in group.list_commands(context) if f"`actum {name}" not in text]
    assert missing == []


def test_what_can_be_imported_is_pinned() -> None:
    assert actum.__all__ == [
        "ActumError",
        "Contract",
        "ContractInvalid",
        "Fault",
        "Outcome",
        "Refused",
        "Result",
        "Runtime",
        "__version__",
    ]
    assert all(getattr(actum, name) for name in actum.__all__)
