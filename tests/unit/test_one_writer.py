"""Each table of the store has one writer. This reads every line of the source for a second one.

Statements are found in any string, in f-strings and in strings joined with `+`. A statement whose
table is not a literal is found too, under the name `?`. The list says which module may write to
which table.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import actum

SOURCE = Path(actum.__file__).parent

_WRITES = re.compile(
    r"""\b(?: (?: insert (?:\s+or\s+\w+)? | replace ) \s+ into
            | delete \s+ from
            | update (?:\s+or\s+\w+)? (?= \s+ \S+ \s+ set\b )
         ) (?: \s+ (?P<table> [\w."'`\[\]?]+ ) )?""",
    re.IGNORECASE | re.VERBOSE,
)

EVIDENCE = {
    *("audit", "checkpoints", "executions", "receipts", "evidence_records", "trace_events"),
    "open_actions",
}

#: File -> tables that it writes to.
ALLOWED: dict[str, set[str]] = {
    "store/writer.py": EVIDENCE,
    "store/blobs.py": {"blobs"},
    # Steps that have shipped are never edited. They bring rows of older versions into new tables.
    "store/migrations.py": {
        *("audit", "checkpoints", "executions", "receipts", "evidence_records", "trace_events"),
    },
    # Tables in memory, of a connection that cannot write to the file.
    "evidence/verify/unwritten.py": {
        *("temp.executions", "temp.open_actions", "temp.trace_events"),
    },
    "approvals/requests.py": {"approvals"},
    "approvals/standing_rows.py": {"standing_approvals"},
    "executors/verdicts.py": {"executor_reviews"},
    "mcp/pins.py": {"server_tools"},
    "work/work_records.py": {"work_runs", "work_receipts"},
    "runs/run_ledger.py": {
        *("agent_runs", "agent_steps", "run_contracts", "run_decisions", "run_receipts"),
    },
    # Tables of PostgreSQL only.
    "runs/ledger/postgres_store.py": {"run_log"},
    "runs/ledger/fleet_schema.py": {"actum.schema_versions"},
    "runs/dispatch/fleet_workers.py": {"worker_nodes"},
    # A database of its own: the index of a workspace.
    "workspace/index.py": {"folders", "top"},
}


def _text(node: ast.AST) -> str | None:
    """The text of a string expression, with `?` for what is not a literal."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.Constant(value=bytes(octets)):
            return octets.decode("latin-1")
        case ast.JoinedStr(values=values):
            return "".join(_text(each) or "?" for each in values)
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            texts = _text(left), _text(right)
            return None if texts == (None, None) else "".join(each or "?" for each in texts)
        case ast.BinOp(left=left, op=ast.Mod()):
            return (_text(left) or "").replace("%s", "?") or None
    return None


def _written(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if (text := _text(node)) is None:
            continue
        for found in _WRITES.finditer(text):
            table = re.sub(r"""["'`\[\]]""", "", found["table"] or "?").lower()
            yield re.sub(r"^main\.", "", table)


def _sources() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def _found() -> dict[str, set[str]]:
    return {
        str(path.relative_to(SOURCE)): tables
        for path in _sources()
        if (tables := set(_written(ast.parse(path.read_text()))))
    }


def test_no_other_module_writes_to_a_table() -> None:
    assert _found() == ALLOWED


def test_every_table_has_one_writer() -> None:
    writers: dict[str, set[str]] = {}
    for path, tables in ALLOWED.items():
        for table in tables if path != "store/migrations.py" else ():
            writers.setdefault(table, set()).add(path)
    assert {table: paths for table, paths in writers.items() if len(paths) != 1} == {}
    assert {table for table in writers if "store/writer.py" in writers[table]} == EVIDENCE


@pytest.mark.parametrize(
    ("source", "table"),
    [
        ("c.execute('INSERT INTO receipts (sha256) VALUES (?)', x)", "receipts"),
        ("c.execute('insert or replace into main.audit values (?)', x)", "audit"),
        ("c.execute('REPLACE  INTO\\n  executions VALUES (?)', x)", "executions"),
        ("c.execute('UPDATE \"executions\" SET state = ?', x)", "executions"),
        ("c.execute('UPDATE OR IGNORE executions SET state = ?', x)", "executions"),
        ("c.execute('DELETE FROM ' 'trace_events')", "trace_events"),
        ("c.execute('DELETE FROM ' + 'checkpoints')", "checkpoints"),
        ("TABLE = f(x)\nc.execute(f'DELETE FROM {TABLE}')", "?"),
        ("c.execute('INSERT INTO ' + table + ' VALUES (?)', x)", "?"),
        ("c.execute('UPDATE %s SET state = 1' % table)", "?"),
        ("c.execute('UPDATE ' + table + ' SET state = 1')", "?"),
        ("c.execute('INSERT INTO {} VALUES (1)'.format(table))", "?"),
        ("c.execute(b'DELETE FROM audit'.decode())", "audit"),
        ("SQL = 'WITH x AS (SELECT 1) DELETE FROM evidence_records'", "evidence_records"),
    ],
)
def test_control_a_second_writer_is_found(source: str, table: str) -> None:
    assert table in set(_written(ast.parse(source)))


@pytest.mark.parametrize(
    "source",
    [
        "c.execute('SELECT state FROM executions')",
        "'''Update the row, and set nothing.'''",
        "names.update(x)",
    ],
)
def test_control_a_reader_is_not_found(source: str) -> None:
    assert set(_written(ast.parse(source))) == set()


def test_the_list_is_about_files_that_are_there() -> None:
    assert {str(path.relative_to(SOURCE)) for path in _sources()} >= ALLOWED.keys()
