"""Binds rows of versions whose audit records did not bind them.

Nothing can show that such a row was not changed before. So `actum verify --all` counts them, and
from the ROWS records on compares them like all others. A home is adopted when it is first opened,
before anything else is recorded: after that no row without a record is of an older version.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from actum.contract.model import Json
from actum.evidence.log import Log
from actum.evidence.records.audit import VERSION, rows_found
from actum.evidence.records.bound_rows import BOUND, bound
from actum.store.database import Database

#: Rows per record: a record stays far below what a frame of the journal takes.
_ROWS_PER_RECORD = 50
_RECORD = "SELECT record FROM audit"


def adopt_rows(database: Database, log: Log) -> None:
    """Bind the rows of an older version. Does nothing in a home that holds none."""
    if _is_adopted(database) or not _holds_any(database):
        return
    database.write_out()  # the journal may hold records of this version
    if _is_adopted(database):
        return
    with suppress(_AdoptedAlready), log.page() as page:
        # Checked again under the write lock: another process may have adopted it.
        newest = page.cursor.execute(f"{_RECORD} ORDER BY seq DESC LIMIT 1").fetchone()
        if is_binding(_document(newest)):
            raise _AdoptedAlready
        for batch in _batches(page.cursor):
            page.append(rows_found(batch, datetime.now(UTC)))


class _AdoptedAlready(Exception):
    """Undoes the transaction: there is nothing to write."""


def is_binding(document: Json) -> bool:
    """Whether the version that wrote an audit record binds every row."""
    version = document.get("v") if isinstance(document, dict) else None
    return isinstance(version, int) and version >= VERSION


def _is_adopted(database: Database) -> bool:
    """Whether the log begins or ends with a record of a version that binds rows.

    An empty one has nothing to adopt: no version wrote a row of these tables before a record.
    """
    with database.tables_only():
        ends = [database.row(f"{_RECORD} ORDER BY seq {order} LIMIT 1") for order in ("", "DESC")]
    return any(row is None or is_binding(_document(row)) for row in ends)


def _holds_any(database: Database) -> bool:
    with database.tables_only():
        return any(
            database.row(f"SELECT 1 FROM {table} LIMIT 1")  # noqa: S608 -- a constant
            for table in BOUND
        )


def _document(row: tuple[Any, ...] | None) -> Json:
    if row is None:
        return None
    try:
        return json.loads(row[0])
    except ValueError:
        return {}


def _batches(cursor: sqlite3.Cursor) -> Iterator[list[Json]]:
    batch: list[Json] = []
    for table in BOUND:
        found = cursor.execute(f"SELECT * FROM {table}")  # noqa: S608 -- a constant
        names = [column[0] for column in found.description]
        for row in found.fetchall():
            batch.append(bound(table, dict(zip(names, row, strict=True))))
            if len(batch) == _ROWS_PER_RECORD:
                yield batch
                batch = []
    if batch:
        yield batch
