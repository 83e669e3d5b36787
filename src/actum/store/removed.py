"""Audit records of removals by `actum gc`: which contents and outputs are gone on purpose.

The log is the only place that says so. A reader that does not find a content asks here before it
reports a loss; `actum verify` also checks that the record is in the signed log.
"""

from __future__ import annotations

import json

from actum.store.snapshot import Reader
from actum.value import value

KIND = "REMOVED"
CONTENTS = "contents"  #: field with the BLAKE3 of collected files
OUTPUTS = "outputs"  #: field with the ids of executions whose raw output was removed


@value
class Removal:
    seq: int
    at: str  #: RFC 3339


def removal_of(database: Reader, field: str, name: str) -> Removal | None:
    """The newest record that names a removed content or output."""
    rows = database.rows(
        "SELECT seq, record FROM audit WHERE instr(record, CAST(? AS BLOB)) > 0 ORDER BY seq DESC",
        (f'"{name}"',),
    )
    for seq, record in rows:
        document = json.loads(record)
        if document.get("kind") == KIND and name in document.get(field, ()):
            return Removal(seq=seq, at=str(document["ts"]))
    return None
