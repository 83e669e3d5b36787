"""RFC 6962 Merkle trees over SHA-256: growing one, proving from one, checking a proof.

Only arithmetic: no storage, no signatures. A leaf is hashed behind a zero byte and a node behind a
one, so that neither can pass for the other. Proved against a slow reference by
tests/unit/store/test_merkle.py.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

from actum.value import value

HASH_BYTES = 32

#: The hash over the leaves ``[index << level, (index + 1) << level)``, all of which exist.
ReadNode = Callable[[int, int], bytes]


def leaf_hash(record: bytes) -> bytes:
    return hashlib.sha256(b"\x00" + record).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    return hashlib.sha256(b"\x01" + left + right).digest()


@value(kw_only=False)
class Edge:
    """The right edge of a tree: all that is needed to add leaves and to know the root.

    `peaks` are the roots of its perfect subtrees, the largest first: one per bit set in `size`.
    """

    size: int = 0
    peaks: tuple[bytes, ...] = ()

    @property
    def root(self) -> bytes:
        if not self.peaks:
            return hashlib.sha256(b"").digest()
        found = self.peaks[-1]
        for peak in reversed(self.peaks[:-1]):
            found = node_hash(peak, found)
        return found

    def grown(self, leaf: bytes) -> tuple[Edge, bytes]:
        """The edge with one leaf more, and the hashes of the subtrees that this leaf completes.

        They come level by level, the leaf's own first: as many as the new size has trailing zero
        bits, and one. Kept beside the leaf, they make every node of the tree one read away.
        """
        peaks, completed = list(self.peaks), [leaf]
        pairs = self.size
        while pairs & 1:
            completed.append(node_hash(peaks.pop(), completed[-1]))
            pairs >>= 1
        return Edge(self.size + 1, (*peaks, completed[-1])), b"".join(completed)


def read_edge(size: int, read: ReadNode) -> Edge:
    """The edge of the tree of the first `size` leaves."""
    peaks, start = [], 0
    for level in reversed(range(size.bit_length())):
        if size >> level & 1:
            peaks.append(read(level, start >> level))
            start += 1 << level
    return Edge(size, tuple(peaks))


def inclusion_proof(index: int, size: int, read: ReadNode) -> tuple[bytes, ...]:
    """RFC 6962 2.1.1: the hashes that lead from leaf `index` to the root of `size` leaves."""
    if not 0 <= index < size:
        raise ValueError(f"a tree of {size} leaves has no leaf {index}")
    return tuple(_path(index, 0, size, read))


def consistency_proof(old: int, size: int, read: ReadNode) -> tuple[bytes, ...]:
    """RFC 6962 2.1.2: proves that the tree of `size` leaves begins with the tree of `old`."""
    if not 0 < old <= size:
        raise ValueError(f"a tree of {size} leaves has no beginning of {old}")
    return tuple(_difference(old, 0, size, True, read))


def included(leaf: bytes, index: int, size: int, proof: Sequence[bytes], root: bytes) -> bool:
    """Whether `proof` leads from `leaf`, as number `index` of `size`, to `root`."""
    if not 0 <= index < size:
        return False
    position, last, found = index, size - 1, leaf
    for sibling in proof:
        if last == 0:
            return False
        if position & 1 or position == last:
            found = node_hash(sibling, found)
            while not position & 1 and position:
                position, last = position >> 1, last >> 1
        else:
            found = node_hash(found, sibling)
        position, last = position >> 1, last >> 1
    return last == 0 and found == root


def consistent(old: int, old_root: bytes, size: int, root: bytes, proof: Sequence[bytes]) -> bool:
    """Whether `proof` shows that the tree of `size` begins with the tree of `old`."""
    if not 0 < old <= size:
        return False
    if old == size:
        return not proof and old_root == root
    steps = list(proof)
    # An old tree that is one perfect subtree is itself the first step, and is left out.
    if old & (old - 1) == 0:
        steps.insert(0, old_root)
    if not steps:
        return False
    position, last = old - 1, size - 1
    while position & 1:
        position, last = position >> 1, last >> 1
    before = after = steps[0]
    for step in steps[1:]:
        if last == 0:
            return False
        if position & 1 or position == last:
            before, after = node_hash(step, before), node_hash(step, after)
            while not position & 1 and position:
                position, last = position >> 1, last >> 1
        else:
            after = node_hash(after, step)
        position, last = position >> 1, last >> 1
    return last == 0 and before == old_root and after == root


def _range(start: int, end: int, read: ReadNode) -> bytes:
    """The hash over ``[start, end)``; starts are always aligned in RFC 6962's recursion."""
    size = end - start
    if size & (size - 1) == 0:
        level = size.bit_length() - 1
        return read(level, start >> level)
    middle = start + _split(size)
    return node_hash(_range(start, middle, read), _range(middle, end, read))


def _split(size: int) -> int:
    """The largest power of two below `size`."""
    return 1 << (size - 1).bit_length() - 1


def _path(index: int, start: int, end: int, read: ReadNode) -> list[bytes]:
    if end - start == 1:
        return []
    middle = start + _split(end - start)
    if index < middle:
        return [*_path(index, start, middle, read), _range(middle, end, read)]
    return [*_path(index, middle, end, read), _range(start, middle, read)]


def _difference(old: int, start: int, end: int, whole: bool, read: ReadNode) -> list[bytes]:
    if old == end:
        return [] if whole else [_range(start, end, read)]
    middle = start + _split(end - start)
    if old <= middle:
        return [*_difference(old, start, middle, whole, read), _range(middle, end, read)]
    return [*_difference(old, middle, end, False, read), _range(start, middle, read)]
