"""The benchmark's requests are answered, and its counts of hits are counts of hits."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

BENCH = Path(__file__).parents[2] / "bench"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(BENCH))
    yield
    for name in ("traffic", "caches", "machine"):
        sys.modules.pop(name, None)


@pytest.mark.usefixtures("bench")
def test_every_bare_request_is_answered_and_another_answer_is_noticed(tmp_path: Path) -> None:
    traffic = importlib.import_module("traffic")
    asked = traffic.Bare(tmp_path)
    for kind in traffic.KINDS:
        traffic.prepare(tmp_path, kind, 7)
        answers = asked.ask(kind, 7)
        traffic.require_answer(tmp_path, kind, 7, answers)
        with pytest.raises(traffic.WrongAnswer):
            traffic.require_answer(tmp_path, kind, 7, ["" for _ in answers])


@pytest.mark.usefixtures("bench")
def test_every_cache_that_is_counted_exists() -> None:
    caches = importlib.import_module("caches")
    for cache in caches.CACHES:
        for place in (cache.asked, cache.missed):
            if place is not None:
                owner, name = caches.located(place)
                assert callable(getattr(owner, name)), place


@pytest.mark.usefixtures("bench")
def test_a_look_up_that_computes_its_answer_is_a_miss(monkeypatch: pytest.MonkeyPatch) -> None:
    caches = importlib.import_module("caches")
    squares = ModuleType("squares")
    exec(
        "known = {}\n"
        "def square(n):\n"
        "    if n not in known: known[n] = compute(n)\n"
        "    return known[n]\n"
        "def compute(n): return n * n\n"
        "def find(n): return known.get(n)\n",
        vars(squares),
    )
    monkeypatch.setitem(sys.modules, "squares", squares)
    counts = caches.Counts()
    counts.wrap(caches.Cache("squares", "squares:square", "squares:compute"))
    counts.wrap(caches.Cache("found", "squares:find"))
    counts.kind = "differ"
    for number in (1, 2, 3):
        squares.square(number)
    counts.kind = "repeated"
    for number in (3, 3, 4):
        squares.square(number)
    squares.find(4)
    squares.find(5)
    assert counts.table() == {
        "squares": {"differ": [0, 3], "repeated": [2, 3]},
        "found": {"repeated": [1, 2]},
    }
