"""The tree, against RFC 6962's definition written down as it stands there."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actum.store.merkle import (
    HASH_BYTES,
    Edge,
    ReadNode,
    consistency_proof,
    consistent,
    included,
    inclusion_proof,
    leaf_hash,
    read_edge,
)


def slow_root(leaves: list[bytes]) -> bytes:
    """RFC 6962 2.1, word for word: MTH over the list, split at the largest power of two below."""
    if not leaves:
        return hashlib.sha256(b"").digest()
    if len(leaves) == 1:
        return hashlib.sha256(b"\x00" + leaves[0]).digest()
    split = 1
    while split * 2 < len(leaves):
        split *= 2
    return hashlib.sha256(b"\x01" + slow_root(leaves[:split]) + slow_root(leaves[split:])).digest()


def slow_path(index: int, leaves: list[bytes]) -> list[bytes]:
    """RFC 6962 2.1.1."""
    if len(leaves) == 1:
        return []
    split = 1
    while split * 2 < len(leaves):
        split *= 2
    if index < split:
        return [*slow_path(index, leaves[:split]), slow_root(leaves[split:])]
    return [*slow_path(index - split, leaves[split:]), slow_root(leaves[:split])]


def slow_subproof(old: int, leaves: list[bytes], whole: bool) -> list[bytes]:
    """RFC 6962 2.1.2."""
    if old == len(leaves):
        return [] if whole else [slow_root(leaves)]
    split = 1
    while split * 2 < len(leaves):
        split *= 2
    if old <= split:
        return [*slow_subproof(old, leaves[:split], whole), slow_root(leaves[split:])]
    return [*slow_subproof(old - split, leaves[split:], False), slow_root(leaves[:split])]


def grow(leaves: list[bytes]) -> tuple[Edge, ReadNode]:
    """A tree grown leaf by leaf, kept the way the log keeps it."""
    edge, kept = Edge(), {}
    for leaf in leaves:
        edge, nodes = edge.grown(leaf_hash(leaf))
        kept[edge.size] = nodes

    def read(level: int, index: int) -> bytes:
        nodes = kept[(index + 1) << level]
        found = nodes[level * HASH_BYTES : (level + 1) * HASH_BYTES]
        assert len(found) == HASH_BYTES
        return found

    return edge, read


def named(count: int) -> list[bytes]:
    return [b"record %d" % number for number in range(count)]


def test_the_published_hashes_of_the_empty_tree_and_the_empty_leaf() -> None:
    assert Edge().root.hex() == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert (
        leaf_hash(b"").hex() == "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d"
    )


def test_every_tree_up_to_seventy_leaves_has_every_proof_of_the_reference() -> None:
    for size in range(1, 71):
        leaves = named(size)
        edge, read = grow(leaves)
        assert edge.root == slow_root(leaves), size
        assert read_edge(size, read) == edge
        for index in range(size):
            proof = inclusion_proof(index, size, read)
            assert list(proof) == slow_path(index, leaves), (index, size)
            assert included(leaf_hash(leaves[index]), index, size, proof, edge.root)
        for old in range(1, size + 1):
            proof = consistency_proof(old, size, read)
            assert list(proof) == slow_subproof(old, leaves, True), (old, size)
            assert consistent(old, slow_root(leaves[:old]), size, edge.root, proof)


@settings(deadline=None)
@given(st.lists(st.binary(max_size=40), min_size=1, max_size=300), st.data())
def test_a_proof_holds_for_its_own_leaf_place_and_root_and_for_nothing_else(
    leaves: list[bytes], data: st.DataObject
) -> None:
    edge, read = grow(leaves)
    size = len(leaves)
    index = data.draw(st.integers(0, size - 1))
    proof = inclusion_proof(index, size, read)
    leaf = leaf_hash(leaves[index])
    assert included(leaf, index, size, proof, edge.root)
    assert not included(leaf_hash(leaves[index] + b"!"), index, size, proof, edge.root)
    assert not included(leaf, index, size, proof, slow_root([*leaves, b"more"]))
    assert not included(leaf, index, size, (*proof, leaf), edge.root)
    assert not included(leaf, size, size, proof, edge.root)
    if proof:
        assert not included(leaf, index, size, proof[:-1], edge.root)
        at = data.draw(st.integers(0, len(proof) - 1))
        broken = bytes([proof[at][0] ^ 1]) + proof[at][1:]
        assert not included(leaf, index, size, (*proof[:at], broken, *proof[at + 1 :]), edge.root)


@settings(deadline=None)
@given(st.lists(st.binary(max_size=40), min_size=2, max_size=300), st.data())
def test_a_tree_that_does_not_begin_with_the_older_one_has_no_proof_that_it_does(
    leaves: list[bytes], data: st.DataObject
) -> None:
    edge, read = grow(leaves)
    size = len(leaves)
    old = data.draw(st.integers(1, size))
    old_root = slow_root(leaves[:old])
    proof = consistency_proof(old, size, read)
    assert consistent(old, old_root, size, edge.root, proof)
    at = data.draw(st.integers(0, old - 1))
    forked = [*leaves[:at], leaves[at] + b"!", *leaves[at + 1 :]]
    forked_edge, forked_read = grow(forked)
    assert not consistent(old, old_root, size, forked_edge.root, proof)
    forked_proof = consistency_proof(old, size, forked_read)
    assert not consistent(old, old_root, size, forked_edge.root, forked_proof)
    assert not consistent(old, old_root, size, edge.root, (*proof, old_root))
    assert not consistent(size + 1, old_root, size, edge.root, proof)


def test_what_a_tree_does_not_have_cannot_be_proved() -> None:
    _, read = grow(named(5))
    for index in (-1, 5):
        with pytest.raises(ValueError, match="no leaf"):
            inclusion_proof(index, 5, read)
    for old in (0, 6):
        with pytest.raises(ValueError, match="no beginning"):
            consistency_proof(old, 5, read)


def test_adding_and_proving_touch_a_logarithm_of_the_tree() -> None:
    size = 5_000
    edge, read = grow(named(size))
    reads = 0

    def counted(level: int, index: int) -> bytes:
        nonlocal reads
        reads += 1
        return read(level, index)

    inclusion_proof(1_234, size, counted)
    consistency_proof(777, size, counted)
    read_edge(size, counted)
    assert reads <= 5 * size.bit_length()
    assert len(edge.peaks) == size.bit_count()
