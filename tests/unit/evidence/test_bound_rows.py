"""What an audit record says of a row: every column, and no text of a caller."""

from __future__ import annotations

import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actum.contract.canonical import sha256_bytes
from actum.evidence.records.bound_rows import BOUND, bound, bound_now, differing, recorded
from actum.store.database import expected_schema

_values = st.one_of(
    st.none(),
    st.integers(),
    st.text(),
    st.binary(),
    st.floats(allow_nan=False),
    st.from_regex(r"[A-Za-z0-9._:@+-]{1,20}", fullmatch=True),
    st.binary(max_size=3).map(lambda data: f"sha256:{sha256_bytes(data)}"),
)


@given(_values, _values, st.booleans())
def test_two_values_are_told_alike_only_if_they_are_the_same(
    one: object, other: object, plain: bool
) -> None:
    same = type(one) is type(other) and repr(one) == repr(other)  # 0.0 and -0.0 are two
    assert (recorded(one, plain=plain) == recorded(other, plain=plain)) == same


def test_no_text_stands_for_the_digest_of_another() -> None:
    secret = "a text with spaces"
    assert recorded(secret, plain=True) == f"sha256:{sha256_bytes(secret.encode())}"
    assert recorded(recorded(secret, plain=True), plain=True) != recorded(secret, plain=True)


def test_only_closed_words_are_told_as_they_are() -> None:
    row = {
        "request_id": "r-1",
        "state": "approved",
        "decided_by": "user:boss",
        "rationale": "hunter2",  # which looks like an identifier
        "document": '{"purpose": "hunter2"}',
        "decision_seq": 7,
    }
    columns = bound("approvals", row)["columns"]
    assert "hunter2" not in str(columns)
    assert columns["decided_by"] == "user:boss"
    assert "decision_seq" not in columns  # it is the number of the record itself


@pytest.mark.parametrize("table", BOUND)
def test_every_column_of_the_schema_is_bound_or_a_place(table: str) -> None:
    connection = sqlite3.connect(":memory:")
    connection.execute(expected_schema()[f"table {table}"].replace(" STRICT", ""))
    names = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
    about = BOUND[table]
    assert {*about.plain, *about.key, *about.places} <= set(names)
    connection.execute("PRAGMA ignore_check_constraints = ON")
    marks = ", ".join("?" for _ in names)
    connection.execute(f"INSERT INTO {table} VALUES ({marks})", [f"{name} x" for name in names])
    key = [f"{name} x" for name in about.key]
    columns = bound_now(connection.cursor(), table, *key)["columns"]
    assert set(columns) == set(names) - about.places
    stored = {name: f"{name} x" for name in names}
    assert list(differing(table, columns, stored)) == []
    for name in columns:
        changed = {**stored, name: "other"}
        assert [each[0] for each in differing(table, columns, changed)] == [name]
    connection.close()
