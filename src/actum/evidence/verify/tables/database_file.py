"""The database file itself: intact pages, expected version, tables, indexes and triggers."""

from __future__ import annotations

from collections.abc import Iterator

from actum.evidence.verify.findings import Finding, difference, judged
from actum.store.database import SCHEMA, expected_schema, schema_of
from actum.store.migrations import MIGRATIONS
from actum.store.snapshot import Snapshot


def database_findings(database: Snapshot) -> Iterator[Finding]:
    # Not only quick_check: an index that lacks a row hides the row from queries that use it.
    (answer,) = database.rows("PRAGMA main.integrity_check(1)")[0]
    yield judged("database", "pages", answer == "ok", str(answer))
    ((version,),) = database.rows("PRAGMA main.user_version")
    differs = difference("user_version", len(MIGRATIONS), version)
    yield judged("database", "version", version == len(MIGRATIONS), differs)
    expected, found = expected_schema(), schema_of(database.rows(SCHEMA))
    differing = sorted(
        name for name in expected.keys() | found.keys() if expected.get(name) != found.get(name)
    )
    yield judged("database", "schema", not differing, f"other {', '.join(differing)}")
