"""What older versions wrote and no record binds: counted, and not taken for changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from actum.evidence.findings import Finding

#: The first schema whose every row is bound.
_SINCE = "schema 10"


class Unbound:
    """Counts rows and files that nothing binds because an older version wrote them."""

    def __init__(self) -> None:
        self._counted: Counter[str] = Counter()
        self._found_later: Counter[str] = Counter()

    def count(self, what: str) -> None:
        self._counted[what] += 1

    def count_found(self, what: str) -> None:
        """A row that is bound only since a ROWS record."""
        self._found_later[what] += 1

    def findings(self) -> Iterator[Finding]:
        for what, number in sorted(self._counted.items()):
            detail = f"{number} (written before {_SINCE})"
            yield Finding(what, "not bound", True, detail)
        for what, number in sorted(self._found_later.items()):
            detail = f"{number} (written before {_SINCE}), but for their ROWS record since"
            yield Finding(what, "not bound", True, detail)
