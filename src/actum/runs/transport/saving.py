"""Save a folder as a snapshot: upload what the store does not have, and its record last.

A snapshot becomes visible with its record, which is put after everything it names. A killed upload
leaves contents without a record: the next one finds them, and `object_expiry` removes them at last.

Contents of the base count as stored, because what a record names stays while the record does. A
record that is old is written again first, which makes it young: `object_expiry` removes no young
record and nothing that one names. The last step before the record looks whether the base is there.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from itertools import chain
from pathlib import Path

from actum.errors import Refused
from actum.runs.transport import scanned_tree, snapshot_record
from actum.runs.transport.content_pack import SMALL_BYTES, Pack, PackedContent, packs_of
from actum.runs.transport.object_store import (
    Found,
    ObjectDamaged,
    ObjectMissing,
    ObjectStore,
    ObjectStoreFailed,
    each,
)
from actum.runs.transport.scanned_tree import Changed, Contents, Scan
from actum.runs.transport.snapshot_manifest import Content, SnapshotBounds
from actum.runs.transport.snapshot_record import (
    MOST_BASES,
    PackRef,
    Stored,
    content_key,
    pack_key,
    record_key,
)
from actum.value import value

_TRIES = 3
MOST_INHERITED = 64  #: packs of the base that a snapshot names
#: A save takes no longer, and builds on no record that is older than the second of these. Their sum
#: is less than `object_expiry.LEAST_AGE_S`.
LONGEST_SAVE_S = 1_800.0
REFRESH_AFTER_S = 900.0


@value
class Saved:
    """A snapshot that is in the store."""

    name: str
    names: int
    file_bytes: int
    objects: int  #: written by this save, its record included
    bytes: int  #: written by this save
    is_new: bool  #: else the store had the whole snapshot already


@value(kw_only=False)
class _Place:
    """Where a content is in the folder."""

    path: bytes
    content: Content


def save(
    top: Path, objects: ObjectStore, *, base: str = "", bounds: SnapshotBounds | None = None
) -> Saved:
    """Save a folder. `base` names a snapshot that it is probably similar to, in the same store."""
    bounds = bounds or SnapshotBounds()
    until = time.monotonic() + LONGEST_SAVE_S
    old = _young(objects, snapshot_record.load(objects, base, bounds)) if base else None
    for left in reversed(range(_TRIES)):
        scanned = scanned_tree.scan(top, bounds)
        contents = Contents(scanned)
        try:
            saved = _Save(objects, scanned, contents, old, bounds, until).run()
        except Changed as changed:
            if not left:
                raise scanned_tree.busy(top, str(changed)) from None
            continue
        finally:
            contents.close()
        return saved
    raise AssertionError("unreachable")


def _young(objects: ObjectStore, stored: Stored) -> Stored:
    """Make a record young that `object_expiry` might take for old before the save has ended."""
    if _age_s(stored.found) > REFRESH_AFTER_S:
        objects.put(record_key(stored.name), stored.content, again=True)
    return stored


def _age_s(found: Found) -> float:
    return (datetime.now(UTC) - found.modified).total_seconds()


class _Save:
    def __init__(
        self,
        objects: ObjectStore,
        scanned: Scan,
        contents: Contents,
        base: Stored | None,
        bounds: SnapshotBounds,
        until: float,
    ) -> None:
        self._objects = objects
        self._scanned = scanned
        self._contents = contents
        self._base = base
        self._bounds = bounds
        self._until = until

    def run(self) -> Saved:
        name = self._scanned.manifest.name
        found = self._objects.find(record_key(name))
        if found is not None:
            if self._is_whole(found, name):
                self._require_same()
                return self._saved(name, [], is_new=False)
            self._base = None  # what is missing may be the base's as well: write everything
        refs, there = self._inherited()
        small, large = self._missing(there)
        packs = tuple(
            packs_of(
                PackedContent(place.content.digest, place.content.size) for place in small.values()
            )
        )
        written = []
        for size in chain(
            each(self._put_content, large.values()),
            each(lambda pack: self._put_pack(pack, small), packs),
        ):
            written.append(size)
            self._require_time()
        self._require_same()
        self._objects.sync()
        new = (PackRef(pack.name, pack.header_bytes, pack.size) for pack in packs)
        self._require_base()
        record = self._record((*refs, *new), name)
        # In place of a record that could not be read, if there was one.
        written.append(self._put(record_key(name), record, again=True))
        self._objects.sync()
        return self._saved(name, written, is_new=True)

    def _saved(self, name: str, written: list[int], *, is_new: bool) -> Saved:
        manifest = self._scanned.manifest
        return Saved(
            name=name,
            names=len(manifest.entries) - 1,
            file_bytes=manifest.file_bytes,
            objects=sum(size > 0 for size in written),
            bytes=sum(written),
            is_new=is_new,
        )

    def _is_whole(self, found: Found, name: str) -> bool:
        """Whether a record can be read, and all that it names is there with its size."""
        try:
            stored = snapshot_record.load(self._objects, name, self._bounds, found=found)
        except (Refused, ObjectMissing, ObjectDamaged):
            return False
        _young(self._objects, stored)

        def is_there(named: tuple[str, int]) -> bool:
            key, size = named
            found = self._objects.find(key)
            return found is not None and found.size == size

        return all(each(is_there, snapshot_record.objects_of(stored).items()))

    def _inherited(self) -> tuple[tuple[PackRef, ...], set[bytes]]:
        """The packs of the base that this snapshot names too, and every content that is stored."""
        if self._base is None:
            return (), set()
        needed = {
            content.digest
            for listed in self._scanned.manifest.entries.values()
            for content in listed.contents()
        }
        there = {
            content.digest
            for listed in self._base.manifest.entries.values()
            for content in listed.contents()
            if content.size >= SMALL_BYTES
        }
        live = dead = 0
        refs: list[PackRef] = []
        packed: set[bytes] = set()
        for ref, pack in snapshot_record.headers(self._objects, self._base.packs):
            used = [each for each in pack.contents if each.digest in needed]
            size = sum(each.size for each in used)
            if used:
                refs.append(ref)
                packed.update(each.digest for each in used)
                live, dead = live + size, dead + pack.size - size
        if dead > live or len(refs) > MOST_INHERITED:
            return (), there  # a reader would get more than it needs: pack again
        return tuple(refs), there | packed

    def _missing(self, there: set[bytes]) -> tuple[dict[bytes, _Place], dict[bytes, _Place]]:
        """The contents to store, each once: those for packs, and those that stand alone."""
        small: dict[bytes, _Place] = {}
        large: dict[bytes, _Place] = {}
        for path, listed in self._scanned.manifest.entries.items():
            for content in listed.contents():
                if content.digest not in there:
                    found = small if content.size < SMALL_BYTES else large
                    found.setdefault(content.digest, _Place(path, content))
        return small, large

    def _read(self, place: _Place) -> bytes:
        digest, offset, size = place.content
        return self._contents.read(place.path, offset, size, digest)

    def _put_content(self, place: _Place) -> int:
        key = content_key(place.content.digest)
        found = self._objects.find(key)
        if _is_usable(found, place.content.size):
            return 0
        return self._put(key, self._read(place), again=found is not None)

    def _put_pack(self, pack: Pack, places: Mapping[bytes, _Place]) -> int:
        key = pack_key(pack.name)
        found = self._objects.find(key)
        if _is_usable(found, pack.size):
            return 0
        content = b"".join((pack.header, *(self._read(places[e.digest]) for e in pack.contents)))
        return self._put(key, content, again=found is not None)

    def _put(self, key: str, content: bytes, *, again: bool) -> int:
        """The number of bytes that this save has written."""
        return len(content) if self._objects.put(key, content, again=again) else 0

    def _record(self, refs: Iterable[PackRef], name: str) -> bytes:
        manifest, base = self._scanned.manifest, self._base
        whole = snapshot_record.whole_record(manifest, refs)
        if base is None or len(base.bases) >= MOST_BASES or name in (base.name, *base.bases):
            return whole
        changed = snapshot_record.changed_record(base, manifest, refs)
        return min(changed, whole, key=len)

    def _require_same(self) -> None:
        if not self._scanned.is_same(self._bounds):
            raise Changed("its names")

    def _require_base(self) -> None:
        base = self._base
        if base is not None and self._objects.find(record_key(base.name)) is None:
            raise ObjectStoreFailed(
                f"{self._objects.url}: the base {base.name} was removed while a snapshot was saved"
                " on it.",
                remedy="Save it again without a base. Let `actum snapshot gc` keep younger ones.",
            )

    def _require_time(self) -> None:
        if time.monotonic() > self._until:
            raise ObjectStoreFailed(
                f"{self._objects.url}: the save took longer than {LONGEST_SAVE_S:.0f} s.",
                remedy="Run the command again: what was stored is not sent twice.",
            )


def _is_usable(found: Found | None, size: int) -> bool:
    """Whether an object need not be written: it has its size, and `object_expiry` does not remove
    it before this save has ended."""
    return found is not None and found.size == size and _age_s(found) <= REFRESH_AFTER_S
