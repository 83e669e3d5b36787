"""A query of names and indices alone finds what the library finds with it."""

from __future__ import annotations

from itertools import product
from typing import Any

import jsonpath_rfc9535
import pytest

from actum.registry.queries import find, is_singular

VALUES: list[Any] = [
    {"a": {"b": [10, 20, {"c": None}]}, "0": "zero", "": "empty", "é": [[]]},
    [[1, [2, 3]], "text", {"a": False}],
    "text",
    {"a": "text", "b": 7},
    None,
    0.5,
    {},
    [],
]
PATHS = [
    "$",
    "$.a",
    "$.a.b",
    "$.a.b[0]",
    "$.a.b[-1].c",
    "$.a.b[-3]",
    "$.a.b[-4]",
    "$.a.b[3]",
    "$[0]",
    "$[0][1][1]",
    "$['0']",
    "$['']",
    "$['é'][0]",
    "$[1][0]",
    "$.a[0]",
    "$.b.a",
]


@pytest.mark.parametrize(("path", "value"), list(product(PATHS, VALUES)))
def test_a_path_finds_what_the_library_finds(path: str, value: Any) -> None:
    assert is_singular(path)
    assert find(path, value) == list(jsonpath_rfc9535.compile(path).find(value).values())


def test_another_query_is_the_librarys() -> None:
    assert find("$..b", VALUES[0]) == [[10, 20, {"c": None}]]
    assert find("$.a.b[0,1]", VALUES[0]) == [10, 20]
