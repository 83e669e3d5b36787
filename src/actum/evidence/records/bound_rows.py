"""How an audit record binds a table's row, so that verification can compare both.

Executions, receipts, evidence records, trace events and files are bound by a signed receipt. The
rows of the tables named here have no receipt that repeats all of their columns. The audit record
that is written in the same transaction binds them: ids, words of closed sets, numbers, digests and
times as they are, every other column as its SHA-256. So no text of a caller gets into the log.
`evidence.verify.tables.logged_rows` compares.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterable, Mapping
from typing import Any

from actum.contract.canonical import sha256_bytes
from actum.contract.model import Json
from actum.value import value

#: Field of an audit record that holds the rows it binds.
ROWS = "rows"
#: Rows of the same form in the database of a fleet, whose transaction commits after the record: no
#: table of this home holds them.
ROWS_ELSEWHERE = "rows_elsewhere"
#: Values that a record holds unchanged. The digest form is excluded, so that no text can pass for
#: the digest of another.
_PLAIN = re.compile(r"(?!.*sha256:)[A-Za-z0-9][A-Za-z0-9._:@+-]{0,127}")


@value
class BoundTable:
    """One table whose rows are bound by audit records."""

    key: tuple[str, ...]
    plain: frozenset[str]  #: columns that a record holds unchanged
    #: Columns with the number of the binding record itself; `verify` compares them with its place.
    places: frozenset[str] = frozenset()


BOUND: Mapping[str, BoundTable] = {
    "approvals": BoundTable(
        key=("request_id",),
        plain=frozenset(
            {
                *("request_id", "kind", "gate", "call_sha256", "state", "requested_at"),
                *("expires_at", "decided_by", "decided_at", "used_by"),
            }
        ),
        places=frozenset({"decision_seq"}),
    ),
    "standing_approvals": BoundTable(
        key=("approval_id",),
        plain=frozenset(
            {
                *("approval_id", "tool_id", "pin", "until", "granted_at", "granted_by"),
                *("granted_role", "revoked_at", "revoked_by", "revoked_role", "last_used_by"),
            }
        ),
        places=frozenset({"last_seq"}),
    ),
    "work_runs": BoundTable(
        key=("run_id",),
        plain=frozenset(
            {
                *("run_id", "item_id", "agent_sha256", "state", "status", "run_hash"),
                *("before_hash", "after_hash", "receipt_id", "started_at", "ended_at"),
            }
        ),
    ),
    "server_tools": BoundTable(
        key=("pin", "server"), plain=frozenset({"pin", "sha256", "recorded_at"})
    ),
    "agent_runs": BoundTable(
        key=("run_id",),
        plain=frozenset(
            {
                *("run_id", "status", "source_sha256", "plan_sha256", "base_state"),
                *("current_state", "validation_status", "forked_from", "trace_id", "error_code"),
                *("blocked_code", "created_at", "started_at", "ended_at", "receipt_id"),
            }
        ),
    ),
    "run_contracts": BoundTable(
        key=("run_id", "revision"), plain=frozenset({"run_id", "cause", "at"})
    ),
    "agent_steps": BoundTable(
        key=("run_id", "step_index"),
        plain=frozenset(
            {
                *("run_id", "kind", "item_id", "state", "status", "work_run_id", "base_state"),
                *("after_state", "receipt_id", "receipt_sha256", "signature"),
                *("started_at", "ended_at"),
            }
        ),
    ),
    "run_receipts": BoundTable(
        key=("receipt_id",), plain=frozenset({"receipt_id", "run_id", "sha256"})
    ),
    "run_decisions": BoundTable(
        key=("run_id", "decision_hash"), plain=frozenset({"run_id", "decision_hash", "at"})
    ),
}


def bound(table: str, row: Mapping[str, Any]) -> dict[str, Json]:
    """An entry for the field `ROWS` of an audit record; `row` has every column of `table`."""
    about = BOUND[table]
    columns = {
        name: recorded(held, plain=name in about.plain)
        for name, held in row.items()
        if name not in about.places
    }
    return {"table": table, "columns": columns}


def bound_now(cursor: sqlite3.Cursor, table: str, *key: str | int) -> dict[str, Json]:
    """The same for a row as the transaction of `cursor` sees it."""
    return bound(table, row_of(cursor, table, *key))


def row_of(cursor: sqlite3.Cursor, table: str, *key: str | int) -> dict[str, Any]:
    """Every column of the row that has this key, future columns included."""
    where = " AND ".join(f"{name} = ?" for name in BOUND[table].key)
    found = cursor.execute(f"SELECT * FROM {table} WHERE {where}", key)  # noqa: S608 -- constants
    names = [column[0] for column in found.description]
    return dict(zip(names, found.fetchone(), strict=True))


def recorded(held: Any, *, plain: bool) -> Json:
    """One value as a record holds it: itself, or its digest."""
    if held is None or type(held) is int:
        return held
    if isinstance(held, str):
        if plain and _PLAIN.fullmatch(held):
            return held
        return f"sha256:{sha256_bytes(held.encode('utf-8', 'surrogatepass'))}"
    # No column of these tables has another type; a row that was forced to have one differs.
    return f"{type(held).__name__}-sha256:{sha256_bytes(repr(held).encode())}"


def key_in(table: str, columns: Mapping[str, Json]) -> tuple[Json, ...]:
    """The key of a bound row, as a record holds it."""
    return tuple(columns.get(name) for name in BOUND[table].key)


def key_of(table: str, row: Mapping[str, Any]) -> tuple[Json, ...]:
    """The key of a stored row, in the same form."""
    about = BOUND[table]
    return tuple(recorded(row[name], plain=name in about.plain) for name in about.key)


def differing(
    table: str, columns: Mapping[str, Json], row: Mapping[str, Any]
) -> Iterable[tuple[str, Json, Any]]:
    """(column, what the record says, what the row holds) for each column that differs."""
    about = BOUND[table]
    for name in (*columns, *(name for name in row if name not in columns)):
        if name in about.places:
            continue
        expected, found = columns.get(name), row.get(name)
        if name not in columns or recorded(found, plain=name in about.plain) != expected:
            yield name, expected, found
