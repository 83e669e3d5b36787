"""How records become bytes.

A record is proven by the digest of its stored bytes, and a DSSE signature covers exact bytes, so
neither needs RFC 8785's rules across machines. What needs them (contract, policy, input and output
digests) goes through `contract.canonical`. This is the same form for everything we write, keys
sorted and no white space, at a quarter of the price, which every execution pays several times.
"""

from __future__ import annotations

from actum.contract.encoder import encode

#: UTF-8 JSON of a document. A lone surrogate, which UTF-8 cannot encode, becomes a JSON escape.
encoded = encode


def count(number: int) -> int | str:
    """A number that JSON readers represent exactly; beyond 2^53 as a string."""
    return number if -(2**53) < number < 2**53 else str(number)
