"""How limits were enforced, as the records of an execution say it.

Executions that came equally close to their limits share one tuple of rows (`runners.manifest`), and
with it what is worked out here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from actum.capture.model import Enforced
from actum.contract.model import Json
from actum.evidence.encoding import count, encoded
from actum.value import by_identity, value


@value
class Told:
    by_limit: Mapping[str, Enforced]
    encoded: bytes  #: a JSON object, whose one key is `enforcement`


@by_identity(64)
def told(rows: tuple[Enforced, ...]) -> Told:
    return Told(
        by_limit={row.limit: row for row in rows},
        encoded=encoded({"enforcement": _documents(rows)}),
    )


def _documents(rows: Iterable[Enforced]) -> list[Json]:
    return [
        {
            "limit": row.limit,
            "requested": row.requested,
            "mechanism": row.mechanism,
            "enforced": row.enforced,
            "peak": row.peak if row.peak is None else count(row.peak),
            "tripped": row.tripped,
        }
        for row in rows
    ]
