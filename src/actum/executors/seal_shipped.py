"""Puts the shipped executors through the gate again and writes their verdicts down.

Run as `python -m actum.executors.seal_shipped BY` after a change of a shipped file or of the
contract. A test runs the gate once more and compares, so a forgotten or edited verdict fails.
"""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path

from actum.executors.executor_registry import shipped_sources
from actum.executors.plane import SHIPPED_VERDICTS
from actum.executors.review import examine


def main(by: str) -> int:
    at = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    reviews = [
        examine(source.content, file=source.file, by=by, at=at) for source in shipped_sources()
    ]
    for review in reviews:
        for check in review.checks:
            for objection in check.objections:
                sys.stderr.write(f"{review.file}: {check.name}: {objection}\n")
    if not all(review.approved for review in reviews):
        return 1
    documents = [review.document() for review in reviews]
    file = Path(__file__).parent / "shipped" / SHIPPED_VERDICTS
    file.write_text(json.dumps(documents, indent=1) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else "actum"))
