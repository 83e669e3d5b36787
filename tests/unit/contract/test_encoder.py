"""Both encoders write the same bytes for everything that a record can hold."""

from __future__ import annotations

import json
from collections.abc import Iterator
from enum import StrEnum
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from actum.contract import encoder


class Word(StrEnum):
    YES = "yes"


_LEAVES = (
    some.none()
    | some.booleans()
    | some.integers()
    | some.text(some.characters(), max_size=12)
    | some.just(Word.YES)
)
_TREES = some.recursive(
    _LEAVES,
    lambda inner: (
        some.lists(inner, max_size=4)
        | some.tuples(inner, inner)
        | some.dictionaries(some.text(max_size=6), inner, max_size=4)
    ),
    max_leaves=12,
)


@pytest.fixture(autouse=True)
def both() -> Iterator[None]:
    before = encoder._encoder.fast
    yield
    encoder._encoder.fast = before


def _encode(value: Any, *, fast: bool) -> bytes:
    encoder._encoder.fast = None
    if fast:
        encoder.hasten()
        assert encoder._encoder.fast is not None
    return encoder.encode(value)


@given(_TREES)
def test_both_encoders_write_the_same_bytes(value: Any) -> None:
    plain = _encode(value, fast=False)
    assert _encode(value, fast=True) == plain
    assert json.loads(plain) == json.loads(json.dumps(value))


@pytest.mark.parametrize("code", range(0x80))
def test_every_ascii_character_is_written_alike(code: int) -> None:
    value = {f"a{chr(code)}": f"{chr(code)}b"}
    assert _encode(value, fast=True) == _encode(value, fast=False)


@pytest.mark.parametrize("value", ["\ud800", 2**70, -(2**70)], ids=["surrogate", "huge", "minus"])
def test_what_the_faster_one_cannot_say_the_other_says(value: Any) -> None:
    assert _encode([value], fast=True) == _encode([value], fast=False)
