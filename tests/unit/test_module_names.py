"""A module is found by its name: no two modules of the package share one."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

SOURCE = Path(__file__).parents[2] / "src/actum"
#: One per room by convention.
SHARED = {"__init__", "model"}
#: Programs and examples that run inside sandboxes; nothing of the package imports them.
OTHERS = {"drivers", "inside", "shipped"}


def test_no_two_modules_have_the_same_name() -> None:
    places = defaultdict(list)
    for file in SOURCE.rglob("*.py"):
        where = file.relative_to(SOURCE)
        if not OTHERS.intersection(where.parts) and file.stem not in SHARED:
            places[file.stem].append(str(where))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}
