"""One folder of the index as a few byte strings, so that a change of one name costs one name.

The lines that are hashed (`tree.line_of`) are stored as they are hashed. Changing an entry cuts
the old line out and inserts the new one; no object is made for the other names. Each entry also
has a stamp: the kernel's metadata when its digest was taken, or `UNKNOWN` where that would prove
nothing. Stamps are no part of the state.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate

from actum.workspace.tree import Entry, Kind, entry_in, folder_digest, line_of

STAMP_BYTES = 64
UNKNOWN = bytes(STAMP_BYTES)  #: a stamp that no file has


class Packed:
    """One folder's entries, sorted by name. Never changed: `patched` makes another."""

    __slots__ = ("_ends", "lengths", "lines", "names", "stamps")

    def __init__(
        self, names: bytes = b"\0", lines: bytes = b"", lengths: bytes = b"", stamps: bytes = b""
    ) -> None:
        self.names = names  #: a NUL, then each name followed by a NUL; no name contains one
        self.lines = lines
        self.lengths = lengths  #: of the lines, as `array("H")`
        self.stamps = stamps
        self._ends: list[int] | None = None

    @classmethod
    def of(cls, rows: Iterable[tuple[bytes, bytes, bytes]]) -> Packed:
        """From (name, line, stamp), sorted by name."""
        names, lines, stamps = [], [], []
        for name, line, stamp in rows:
            names.append(name)
            lines.append(line)
            stamps.append(stamp)
        lengths = array("H", map(len, lines)).tobytes()
        return cls(packed_names(names), b"".join(lines), lengths, b"".join(stamps))

    @property
    def digest(self) -> bytes:
        return folder_digest(self.lines)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.names.split(b"\0")[1:-1])

    def get(self, name: bytes) -> Entry | None:
        at = self._find(name)
        if at < 0:
            return None
        number, ends = self._number(at), self._line_ends()
        return entry_in(self.lines[ends[number] : ends[number + 1]], name)

    def items(self) -> Iterator[tuple[bytes, Entry]]:
        return ((name, entry_in(line, name)) for name, line, _stamp in self.rows())

    def rows(self) -> Iterator[tuple[bytes, bytes, bytes]]:
        """(name, line, stamp) of every entry."""
        ends = self._line_ends()
        for number, name in enumerate(self):
            at = number * STAMP_BYTES
            line = self.lines[ends[number] : ends[number + 1]]
            yield name, line, self.stamps[at : at + STAMP_BYTES]

    def patched(self, changes: Mapping[bytes, Entry | None]) -> Packed:
        """A copy with some entries replaced, added or (``None``) removed.

        A changed file loses its stamp: the new content was not scanned yet. A folder's stamp says
        nothing about its entries, so it stays.
        """
        ends = self._line_ends()
        sorted_names: list[bytes] | None = None
        names, lines, lengths, stamps = [], [], array("H"), []
        done = done_names = 0  # entries copied so far, and their bytes in `names`
        for name in sorted(changes):
            entry, at = changes[name], self._find(name)
            known = at >= 0
            if known:
                number = self._number(at)
            else:
                sorted_names = sorted_names or list(self)
                number = bisect_left(sorted_names, name)
                beyond = number == len(sorted_names)
                at = len(self.names) - 1 if beyond else self._find(sorted_names[number])
            names.append(self.names[done_names:at])
            lines.append(self.lines[ends[done] : ends[number]])
            lengths.frombytes(self.lengths[done * 2 : number * 2])
            stamps.append(self.stamps[done * STAMP_BYTES : number * STAMP_BYTES])
            if entry is not None:
                line = line_of(name, entry)
                names.append(b"\0" + name)
                lines.append(line)
                lengths.append(len(line))
                kept = self.stamps[number * STAMP_BYTES : (number + 1) * STAMP_BYTES]
                stamps.append(kept if known and entry.kind is Kind.FOLDER else UNKNOWN)
            done = number + known
            done_names = at + len(name) + 1 if known else at
        names.append(self.names[done_names:])
        lines.append(self.lines[ends[done] :])
        lengths.frombytes(self.lengths[done * 2 :])
        stamps.append(self.stamps[done * STAMP_BYTES :])
        return Packed(b"".join(names), b"".join(lines), lengths.tobytes(), b"".join(stamps))

    def _find(self, name: bytes) -> int:
        return self.names.find(b"\0%b\0" % name)

    def _number(self, at: int) -> int:
        return self.names.count(b"\0", 0, at)

    def _line_ends(self) -> list[int]:
        """Offsets at which lines end and the next begin; one more than there are lines."""
        if self._ends is None:
            self._ends = list(accumulate(array("H", self.lengths), initial=0))
        return self._ends


def packed_names(names: Iterable[bytes]) -> bytes:
    return b"\0".join((b"", *names, b""))
