"""Remove what no kept snapshot needs from a store: records first, contents in a later run.

Kept are the snapshots that the caller names, every snapshot younger than the age given, the bases
of both, and all contents of these. An object is removed if it is older than that age and was not
written again since it was listed.

That does not disturb a save in progress. What a save writes is young. What it builds upon has a
record, which the save makes young first. A record that is removed all the same, between these two
requests, leaves its contents to the next run, and the save notices that its base is gone. No save
takes as long as the least age. Run one collection at a time.

The time is the store's own: `clock` is written and its time read back.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from datetime import datetime, timedelta

from actum.errors import Refused
from actum.runs.transport import snapshot_record
from actum.runs.transport.object_store import (
    Found,
    ObjectDamaged,
    ObjectMissing,
    ObjectStore,
    ObjectStoreFailed,
)
from actum.runs.transport.snapshot_manifest import NAME, SnapshotBounds, require_name
from actum.runs.transport.snapshot_record import RECORDS, Stored, record_key
from actum.value import value

LEAST_AGE_S = 3_600
_CLOCK = "clock"
_CONTENTS = ("packs/", "contents/")


@value
class Expired:
    """What a run has removed, or would remove."""

    snapshots: tuple[str, ...]
    objects: int
    bytes: int
    kept: int  #: snapshots that stay


def expire(
    objects: ObjectStore,
    keep: Collection[str],
    *,
    older_than_s: int,
    dry_run: bool = False,
    bounds: SnapshotBounds | None = None,
) -> Expired:
    """Remove what is older and not needed. Removes nothing if a kept snapshot cannot be read."""
    if older_than_s < LEAST_AGE_S:
        raise Refused(
            "SNAPSHOT_AGE_TOO_LOW",
            f"{older_than_s} s is less than the {LEAST_AGE_S} s that a save may need.",
            remedy="Nothing was removed. Give a greater age.",
        )
    bounds = bounds or SnapshotBounds()
    before = _now(objects) - timedelta(seconds=older_than_s)
    records = {name: found for found in objects.list(RECORDS) if (name := _name_of(found.key))}
    kept = _kept(objects, keep, records, before, bounds)
    needed: set[str] = set()
    for stored in kept.values():
        needed |= snapshot_record.objects_of(stored).keys()
    dead = [found for name, found in records.items() if name not in kept]
    for found in dead:  # their contents stay until the next run
        with contextlib.suppress(Refused, ObjectMissing, ObjectDamaged):
            stored = snapshot_record.load(objects, _name_of(found.key), bounds, found=found)
            needed |= snapshot_record.objects_of(stored).keys()
    unused = [
        found
        for prefix in _CONTENTS
        for found in objects.list(prefix)
        if found.key not in needed and found.modified < before
    ]
    gone = [found for found in (*dead, *unused) if dry_run or _remove(objects, found, before)]
    if not dry_run:
        _remove_unfinished(objects, older_than_s)
    return Expired(
        snapshots=tuple(name for found in gone if (name := _name_of(found.key))),
        objects=len(gone),
        bytes=sum(found.size for found in gone),
        kept=len(kept),
    )


def _now(objects: ObjectStore) -> datetime:
    objects.put(_CLOCK, b"actum\n", again=True)
    found = objects.find(_CLOCK)
    if found is None:
        raise ObjectStoreFailed(
            f"{objects.url} does not hold what was just written.",
            remedy="Check whether another program removes objects there.",
        )
    return found.modified


def _kept(
    objects: ObjectStore,
    keep: Collection[str],
    records: dict[str, Found],
    before: datetime,
    bounds: SnapshotBounds,
) -> dict[str, Stored]:
    """The snapshots that stay, with their bases: every record in a store has all it names."""
    waiting = [*map(require_name, keep)]
    waiting += [name for name, found in records.items() if found.modified >= before]
    kept: dict[str, Stored] = {}
    while waiting:
        name = waiting.pop()
        if name not in kept:
            kept[name] = snapshot_record.load(objects, name, bounds, found=records.get(name))
            waiting.extend(kept[name].bases)
    return kept


def _remove(objects: ObjectStore, listed: Found, before: datetime) -> bool:
    """Remove an object unless it was written again since it was listed."""
    found = objects.find(listed.key)
    if found is None or found.modified >= before:
        return False
    objects.delete(listed.key)
    return True


def _remove_unfinished(objects: ObjectStore, older_than_s: int) -> None:
    for path in objects.unfinished(older_than_s):
        with contextlib.suppress(FileNotFoundError):
            path.unlink()


def _name_of(key: str) -> str:
    """The snapshot whose record has this key; empty for a key that is none."""
    name = key.rpartition("/")[2]
    return name if NAME.fullmatch(name) and key == record_key(name) else ""
