"""Compares two texts line by line and counts: what an agent changed, in three numbers and a patch.

Payload: `before` and `after`. The same text twice has no output.
"""

import difflib


class DiffSummary:
    executor_id = "diff_summary"
    version = "1.0.0"
    capabilities = ["DIFF"]
    limits = {
        "timeout_ms": 2000,
        "max_payload_bytes": 200_000,
        "max_depth": 2,
        "max_list_items": 0,
    }
    samples = [
        {
            "payload": {"before": "a\nb\n", "after": "a\nc\nd\n"},
            "output": {"added": 2, "removed": 1, "patch": "@@ -1,2 +1,3 @@\n a\n-b\n+c\n+d\n"},
        },
        {"payload": {"before": "a", "after": "a"}, "output": None},
    ]

    def execute(self, req):
        before = req.payload["before"].splitlines(keepends=True)
        after = req.payload["after"].splitlines(keepends=True)
        patch = list(difflib.unified_diff(before, after))[2:]
        if not patch:
            return None
        return {
            "added": sum(line.startswith("+") for line in patch),
            "removed": sum(line.startswith("-") for line in patch),
            "patch": "".join(patch),
        }
