"""The packages of `actum[fleet]` are imported by one module each, and never without a fleet."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[3] / "src/actum"


@pytest.mark.parametrize(
    ("package", "module"),
    [
        ("psycopg", "runs/ledger/postgres_link.py"),
        ("procrastinate", "runs/dispatch/procrastinate_dispatch.py"),
    ],
)
def test_one_module_imports_it(package: str, module: str) -> None:
    found = set()
    for file in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            names = []
            if isinstance(node, ast.Import):
                names = [each.name for each in node.names]
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = [node.module]
            if any(name.split(".")[0] == package for name in names):
                found.add(str(file.relative_to(SOURCE)))
    assert found == {module}
