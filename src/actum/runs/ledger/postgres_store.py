"""The ledger in a PostgreSQL database that many machines share.

The audit log is another database: this project's own. Its record is written ahead, while the
transaction of PostgreSQL holds the rows, and `run_log` names the record in that transaction. So a
stored row always has its record; a record that `run_log` does not name is of a write that was
never stored (docs/decisions/0050).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic

from actum.contract.canonical import sha256_bytes
from actum.contract.model import Json
from actum.evidence.log import Log
from actum.evidence.records.bound_rows import BOUND, ROWS_ELSEWHERE, bound
from actum.evidence.records.encoding import encoded
from actum.runs.ledger.ledger_store import T, Transaction
from actum.runs.ledger.postgres_link import Connection, PostgresLink, executed, rows_of
from actum.store.keys import Signer

#: Notified by every write; a listener reads the ledger.
CHANNEL = "actum_runs"
_LOCK_FOLDER = (
    "SELECT pg_advisory_xact_lock(hashtextextended(home || chr(10) || workspace, 0))"
    " FROM agent_runs WHERE run_id = ?"
)
_LOGGED = "SELECT 1 FROM run_log WHERE log = ? AND seq = ?"


class _PostgresTransaction:
    """Implements `ledger_store.Transaction`."""

    def __init__(self, connection: Connection, log: Log) -> None:
        self._connection = connection
        self._log = log
        self.recorded: tuple[str, int] | None = None  #: log and number of its audit record

    @property
    def signer(self) -> Signer:
        return self._log.signer

    def execute(self, sql: str, parameters: Sequence[Any] = ()) -> int:
        return executed(self._connection, sql, parameters)

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return rows_of(self._connection, sql, parameters)

    def row(self, sql: str, parameters: Sequence[Any] = ()) -> tuple[Any, ...] | None:
        return next(iter(self.rows(sql, parameters)), None)

    def lock_folder(self, run_id: str) -> None:
        self.rows(_LOCK_FOLDER, (run_id,))

    def bound(self, table: str, *key: str | int) -> dict[str, Json]:
        where = " AND ".join(f"{name} = %s" for name in BOUND[table].key)
        sql = f"SELECT * FROM {table} WHERE {where}"  # noqa: S608 -- constants
        found = self._connection.execute(sql.encode(), key)
        names = [column.name for column in found.description or ()]
        (row,) = found.fetchall()
        return bound(table, dict(zip(names, row, strict=True)))

    def append(self, document: dict[str, Json], rows: Sequence[dict[str, Json]]) -> None:
        listed: list[Json] = list(rows)
        record = {**document, ROWS_ELSEWHERE: listed}
        with self._log.page() as page:
            seq = page.append(record)
        log = self._log.origin
        run_id = document["run_id"]
        self.execute(
            "INSERT INTO run_log (log, seq, run_id, record_sha256) VALUES (?, ?, ?, ?)",
            (log, seq, run_id, sha256_bytes(encoded(record))),
        )
        self.rows("SELECT pg_notify(?, ?)", (CHANNEL, run_id))
        self.recorded = (log, seq)


class PostgresStore:
    """Implements `ledger_store.LedgerStore`."""

    locking = " FOR UPDATE"
    same_folder = "other.workspace = agent_runs.workspace AND other.home = agent_runs.home"
    here = "home = current_setting('actum.home')"

    def __init__(self, link: PostgresLink, log: Log) -> None:
        self._link = link
        self._log = log

    def rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        return self._link.rows(sql, parameters)

    def row(self, sql: str, parameters: Sequence[Any] = ()) -> tuple[Any, ...] | None:
        return next(iter(self.rows(sql, parameters)), None)

    def write(self, body: Callable[[Transaction], T]) -> T:
        return self._link.run(_Write(self._log, body))


class _Write(Generic[T]):
    """One write, called again when its connection was lost."""

    def __init__(self, log: Log, body: Callable[[Transaction], T]) -> None:
        self._log = log
        self._body = body
        #: Log and number of the record of the last try, and its result.
        self._tried: tuple[tuple[str, int], T] | None = None

    def __call__(self, connection: Connection) -> T:
        # The connection may have been lost after the COMMIT and before its answer.
        if self._tried is not None and rows_of(connection, _LOGGED, self._tried[0]):
            return self._tried[1]
        self._tried = None
        with connection.transaction():
            into = _PostgresTransaction(connection, self._log)
            result = self._body(into)
            if into.recorded is not None:
                self._tried = into.recorded, result
        return result
