"""`actum gc`: removes what nothing refers to. No record, no receipt and no signed file is touched.

A large file is on the disk before the record that names it is committed. If the process dies in
between, the file is left with no record. `collect` removes it once no running process can be about
to name it, by its age, and only under the write lock.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from actum.evidence.expiry import removed_contents
from actum.store.blobs import BlobStore
from actum.store.database import Database
from actum.store.removed import KIND
from actum.value import value

AGE_S = 3_600.0


@value
class Removed:
    files: int
    bytes: int


def collect(
    database: Database, blobs: BlobStore, *, age_s: float = AGE_S, dry_run: bool = False
) -> Removed:
    """Remove files that no evidence record names; checkpoint the WAL into the database."""
    files = freed = 0
    with database.transaction(), blobs.locked(exclusive=True):
        named = _named(database)
        for path in _old_files(blobs.root, age_s):
            if path.name in named:
                continue
            freed += path.stat().st_size
            files += 1
            if not dry_run:
                path.unlink()
    database.rows("PRAGMA wal_checkpoint(TRUNCATE)")
    return Removed(files=files, bytes=freed)


def _named(database: Database) -> set[str]:
    """Contents that a record lists, except those that were removed after it."""
    removals = database.rows(
        "SELECT seq, record FROM audit WHERE instr(record, CAST(? AS BLOB)) > 0 ORDER BY seq",
        (f'"{KIND}"',),
    )
    gone = removed_contents(removals)
    documents = database.rows(
        "SELECT document, final_seq FROM evidence_records JOIN receipts USING (evidence_id)"
    )
    return {
        file["blake3"]
        for text, seq in documents
        for file in json.loads(text)["files"]
        if seq > gone.get(file["blake3"], 0)
    }


def _old_files(root: Path, age_s: float) -> list[Path]:
    """Content and unfinished writes alike; a change of the clock only keeps a file longer."""
    before = time.time() - age_s
    found = []
    for folder, _, names in os.walk(root):
        for name in names:
            path = Path(folder, name)
            status = path.lstat()
            if max(status.st_mtime, status.st_ctime) < before:
                found.append(path)
    return found
