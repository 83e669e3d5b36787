"""The ledger in the project's own database: one transaction writes rows and audit record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from actum.contract.model import Json
from actum.evidence.log import Log, Page
from actum.evidence.records.bound_rows import ROWS, bound_now
from actum.runs.ledger.ledger_store import T, Transaction
from actum.store.keys import Signer
from actum.store.snapshot import Reader


class _PageTransaction:
    """Implements `ledger_store.Transaction`."""

    def __init__(self, page: Page) -> None:
        self._page = page

    @property
    def signer(self) -> Signer:
        return self._page.signer

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> int:
        return self._page.cursor.execute(sql, parameters).rowcount

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self._page.cursor.execute(sql, parameters).fetchall()

    def row(self, sql: str, parameters: Sequence[Any] = ()) -> tuple[Any, ...] | None:
        found: tuple[Any, ...] | None = self._page.cursor.execute(sql, parameters).fetchone()
        return found

    def lock_folder(self, run_id: str) -> None:
        """Nothing: SQLite has one writer at a time."""

    def bound(self, table: str, *key: str | int) -> dict[str, Json]:
        return bound_now(self._page.cursor, table, *key)

    def append(self, document: dict[str, Json], rows: Sequence[dict[str, Json]]) -> None:
        listed: list[Json] = list(rows)
        self._page.append({**document, ROWS: listed})


class SqliteStore:
    """Implements `ledger_store.LedgerStore`."""

    locking = ""
    same_folder = "other.workspace = agent_runs.workspace"
    here = "1 = 1"  # this home holds no other runs

    def __init__(self, database: Reader, log: Log) -> None:
        self._database = database
        self._log = log

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self._database.rows(sql, parameters)

    def row(self, sql: str, parameters: Sequence[Any] = ()) -> tuple[Any, ...] | None:
        return self._database.row(sql, parameters)

    def write(self, body: Callable[[Transaction], T]) -> T:
        with self._log.page() as page:
            return body(_PageTransaction(page))
