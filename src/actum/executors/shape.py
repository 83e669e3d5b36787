"""The size of a value: canonical bytes, nesting, longest list. Measured without recursion.

A scalar has depth 0, a flat mapping depth 1. A snapshot is taken once and every later stage uses
it, so a caller that changes the payload meanwhile has no effect.
"""

from __future__ import annotations

import json
from typing import Any

from actum.contract.canonical import NotCanonical, canonical, sha256_bytes
from actum.contract.model import Json
from actum.executors.model import Limits
from actum.value import value

#: Deeper values are not encoded: encoders recurse. Far above every limit that can be declared.
_DEEPEST = 256


_EXACT = 2**53


class TooDeep(Exception):
    """Deeper than any executor may declare."""


@value
class Snapshot:
    """A value as it was at one moment, in its canonical bytes."""

    encoded: bytes
    digest: str
    depth: int
    longest_list: int

    @classmethod
    def of(cls, value: Json) -> Snapshot:
        """Raises `NotCanonical` if it is not JSON, `TooDeep` if it cannot be encoded."""
        depth, longest = (0, 0) if type(value) is str else _measure(value)
        if depth > _DEEPEST:
            raise TooDeep
        encoded = canonical(value)
        return cls(encoded=encoded, digest=sha256_bytes(encoded), depth=depth, longest_list=longest)

    def exceeds(self, limits: Limits) -> bool:
        return (
            len(self.encoded) > limits.max_payload_bytes
            or self.depth > limits.max_depth
            or self.longest_list > limits.max_list_items
        )

    @property
    def value(self) -> Json:
        return canonical_loads(self.encoded)


def _measure(value: Any) -> tuple[int, int]:
    """(depth, longest list); raises `NotCanonical` for a cycle."""
    deepest = longest = 0
    path: list[int] = []  # containers around the current one
    stack: list[tuple[Any, int]] = [(value, 0)]
    while stack:
        item, depth = stack.pop()
        if isinstance(item, dict):
            inside = list(item.values())
        elif isinstance(item, (list, tuple)):
            inside = list(item)
            longest = max(longest, len(inside))
        else:
            continue
        del path[depth:]
        if id(item) in path:
            raise NotCanonical("$: the value contains itself.")
        path.append(id(item))
        deepest = max(deepest, depth + 1)
        if deepest <= _DEEPEST:
            containers = [part for part in inside if isinstance(part, (dict, list, tuple))]
            stack.extend((part, depth + 1) for part in containers)
    return deepest, longest


def _whole(text: str) -> float:
    # Canonical JSON writes 1e16 without an exponent; beyond 2^53 it can only have been a float.
    number = int(text)
    return number if -_EXACT < number < _EXACT else float(number)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _unique(pairs: list[tuple[str, Json]]) -> dict[str, Json]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key occurs twice")
    return found


_CANONICAL = json.JSONDecoder(parse_int=_whole)
_STRICT = json.JSONDecoder(parse_constant=_no_constant, object_pairs_hook=_unique)


def _decoded(decoder: Any, text: str) -> Json:
    """As `decoder.decode`, but without accepting white space around the document."""
    try:
        value, end = decoder.scan_once(text, 0)
    except StopIteration:
        return decoder.decode(text)
    return value if end == len(text) else decoder.decode(text)


def canonical_loads(encoded: bytes) -> Json:
    """Read our own canonical bytes back."""
    return _decoded(_CANONICAL, encoded.decode())


def strict_loads(text: bytes) -> Json:
    """Parse untrusted JSON; raises ValueError for input that two parsers may read differently."""
    try:
        return _decoded(_STRICT, text.decode())
    except RecursionError as error:
        raise TooDeep from error
