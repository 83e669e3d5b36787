"""Rows and files that no record binds, because an older version wrote them or their process was
killed: counted, not reported as changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from actum.evidence.verify.findings import Finding

#: The first schema whose every row is bound.
_SINCE = "schema 10"


class Unbound:
    """Counts rows and files that nothing binds."""

    def __init__(self) -> None:
        self._counted: Counter[tuple[str, str]] = Counter()
        self._found_later: Counter[str] = Counter()

    def count(self, what: str, because: str = f"written before {_SINCE}") -> None:
        self._counted[what, because] += 1

    def count_found(self, what: str) -> None:
        """A row that is bound only since a ROWS record."""
        self._found_later[what] += 1

    def findings(self) -> Iterator[Finding]:
        for (what, because), number in sorted(self._counted.items()):
            yield Finding(what, "not bound", True, f"{number} ({because})")
        for what, number in sorted(self._found_later.items()):
            detail = f"{number} (written before {_SINCE}), but for their ROWS record since"
            yield Finding(what, "not bound", True, detail)
