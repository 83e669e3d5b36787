"""The ledger in the project's own database keeps the promises of every ledger."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from ledger_suite import LedgerConformance

from actum import Runtime
from actum.contract.model import RunnerKind
from actum.project import create


class SqliteBench:
    rows_field = "rows"

    def __init__(self, rt: Runtime, second: Runtime) -> None:
        self.rt = rt
        self.ledger = rt.runs.ledger
        self.other = second.runs.ledger

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        return self.rt.database.rows(sql)

    def table(self, name: str) -> list[dict[str, Any]]:
        columns = [row[1] for row in self.rows(f"PRAGMA table_info({name})")]
        return [dict(zip(columns, row, strict=True)) for row in self.rows(f"SELECT * FROM {name}")]

    def attack(self, sql: str) -> None:
        path = self.rt.settings.home / "actum.db"
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute(sql)


class TestSqliteLedger(LedgerConformance):
    @pytest.fixture
    def bench(self, tmp_path: Path) -> Iterator[SqliteBench]:
        folder = tmp_path / "project"
        create(folder, RunnerKind.LOCAL, by="user:tester", date="2026-11-19")
        with Runtime.open(folder, pool=False) as rt, Runtime.open(folder, pool=False) as second:
            yield SqliteBench(rt, second)
