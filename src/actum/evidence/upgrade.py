"""Migrates a home of an older version, for a reader that writes nothing else."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from actum.errors import EvidenceUnavailable
from actum.evidence.adoption import adopt_rows
from actum.evidence.log import Log
from actum.store.database import SCHEMA, Database, expected_schema, schema_of
from actum.store.keys import Signer
from actum.store.migrations import MIGRATIONS
from actum.store.snapshot import snapshot


def upgrade(home: Path, signer: Signer) -> None:
    """Migrate an older home, as any command does. A damaged home is not changed."""
    with suppress(EvidenceUnavailable):
        if not _is_older(home):
            return
        database = Database.open(home, create=False)
        try:
            log = Log(database, signer)
            log.adopt()
            adopt_rows(database, log)
        finally:
            database.close()


def _is_older(home: Path) -> bool:
    """Whether its tables are those of the older version that it claims.

    A number that was changed alone is no reason to migrate: `verify_home` reports it.
    """
    with snapshot(home) as found:
        ((version,),) = found.rows("PRAGMA user_version")
        if not 0 < version < len(MIGRATIONS):
            return False
        return schema_of(found.rows(SCHEMA)) == expected_schema(version)
