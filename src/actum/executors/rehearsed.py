"""Warm-up code of a child: two harmless executors, and the request of both.

`LONG` touches the memory that executors commonly need: texts, numbers, tables, a class with its
declaration, the modules that are imported most. `SHORT` takes the same path again, quickly. Data
only: `child` runs them.
"""

from __future__ import annotations

LONG = '''
"""A call like any other."""

import json
import math
import re
import unicodedata
from collections import Counter


def _words(text):
    return re.sub(r"[^a-z0-9]+", "-", unicodedata.normalize("NFKD", text).lower()).strip("-")


def _part(value, path):
    for step in path.split("."):
        if not isinstance(value, (dict, list)) or isinstance(value, bool):
            raise LookupError("the path leads nowhere")
        value = value[int(step) if step.isdigit() else step]
    return value


OPERATIONS = {
    "upper": str.upper,
    "lower": str.lower,
    "title": str.title,
    "strip": str.strip,
    "lines": str.splitlines,
    "words": _words,
    "squeeze": lambda text: " ".join(text.split()),
    "reverse": lambda text: text[::-1],
    "count": lambda text: {"characters": len(text), "words": dict(Counter(text.split()))},
}
MODES = {"all": all, "any": any, "least": min, "most": max, "sum": sum, "kinds": type}


class Rehearsed:
    executor_id = "rehearsed"
    version = "1.0.0"
    capabilities = ["REHEARSING"]
    limits = {
        "timeout_ms": 1000,
        "max_payload_bytes": 10_000,
        "max_depth": 10,
        "max_list_items": 100,
    }
    samples = [
        {"payload": {"text": "a", "items": [1, 2, {"b": None}]}, "output": ["A", 3, True]},
        {"payload": {"text": ""}, "output": None},
    ]

    def execute(self, req):
        text, items = req.payload["text"], req.payload["items"]
        said = {name: operation(text) for name, operation in OPERATIONS.items()}
        said["numbers"] = [math.floor(item) + 0.5 for item in items if type(item) in (int, float)]
        said["text"] = json.dumps([str(item) for item in items])
        said["part"] = sorted({_part(req.payload, "items.0"), len(set(text)), *said["numbers"]})
        return said
'''

SHORT = """
class Rehearsed:
    executor_id, version, capabilities = "rehearsed", "1.0.0", ["REHEARSING"]
    limits = dict(timeout_ms=1000, max_payload_bytes=10000, max_depth=10, max_list_items=100)

    def execute(self, req):
        return [str(item).upper() for item in req.payload["items"]]
"""

ASKED = {
    "declared": ["rehearsed", "1.0.0", ["REHEARSING"], [1000, 10_000, 10, 100]],
    "request": {
        "action": "rehearse",
        "payload": {"text": "words of some length", "items": [1, "b", 0.5, None, True, {"c": []}]},
        "trace_id": "00000000-0000-4000-8000-000000000000",
        "ts_utc": "2000-01-01T00:00:00.000000+00:00",
    },
}
LIMITS = (10_000, 10, 100)
