"""Garbage: what is old and not needed goes; what is kept, young, or built upon stays."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from actum.errors import ActumError, Refused
from actum.runs.transport import object_expiry, restoring, saving, snapshot_record
from actum.runs.transport.object_store import ObjectStore, ObjectStoreFailed
from actum.runs.transport.snapshot_manifest import SnapshotBounds
from actum.runs.transport.snapshot_record import record_key

MakeFolder = Callable[[], Path]
AGE_S = 7_200


def aged(objects: ObjectStore, *names: str) -> None:
    """Make every object old; with `names`, the records of these alone."""
    assert objects.folder is not None
    long_ago = time.time() - 2 * AGE_S
    keys = [record_key(name) for name in names]
    for path in objects.folder.rglob("*"):
        if path.is_file() and (not keys or str(path.relative_to(objects.folder)) in keys):
            os.utime(path, (long_ago, long_ago))


def expired(objects: ObjectStore, *keep: str) -> tuple[str, ...]:
    return object_expiry.expire(objects, keep, older_than_s=AGE_S).snapshots


def folder_with(folder: Path, *texts: bytes) -> Path:
    for number, text in enumerate(texts):
        (folder / f"file-{number}").write_bytes(text)
        (folder / f"large-{number}").write_bytes(text * 70_000)
    return folder


def keys(objects: ObjectStore) -> set[str]:
    assert objects.folder is not None
    return {
        str(path.relative_to(objects.folder))
        for path in objects.folder.rglob("*")
        if path.is_file() and path.name != "clock"
    }


def test_old_snapshots_go_and_their_contents_in_the_next_run(
    folder_store: ObjectStore, new_folder: MakeFolder
) -> None:
    kept = saving.save(folder_with(new_folder(), b"a", b"s"), folder_store).name
    before = keys(folder_store)
    dropped = saving.save(folder_with(new_folder(), b"b", b"s"), folder_store).name
    aged(folder_store)
    dry = object_expiry.expire(folder_store, [kept], older_than_s=AGE_S, dry_run=True)
    assert (dry.snapshots, dry.kept) == ((dropped,), 1)
    assert record_key(dropped) in keys(folder_store)
    assert expired(folder_store, kept) == (dropped,)
    assert len(keys(folder_store)) > len(before)
    assert expired(folder_store, kept) == ()
    assert keys(folder_store) == before
    restoring.restore(folder_store, kept, new_folder() / "target")
    with pytest.raises(Refused, match="holds no snapshot"):
        restoring.restore(folder_store, dropped, new_folder() / "target")


def test_young_snapshots_stay(objects: ObjectStore, new_folder: MakeFolder) -> None:
    saved = saving.save(folder_with(new_folder(), b"a"), objects)
    done = object_expiry.expire(objects, [], older_than_s=AGE_S)
    assert (done.objects, done.kept) == (0, 1)
    restoring.restore(objects, saved.name, new_folder() / "target")


def test_bases_stay_whole(folder_store: ObjectStore, new_folder: MakeFolder) -> None:
    source = folder_with(new_folder(), *(b"%d" % number for number in range(50)))
    base = saving.save(source, folder_store).name
    (source / "file-0").write_bytes(b"changed")
    (source / "large-0").unlink()
    name = saving.save(source, folder_store, base=base).name
    assert snapshot_record.load(folder_store, name, SnapshotBounds()).bases == (base,)
    aged(folder_store)
    assert expired(folder_store, name) == ()
    assert expired(folder_store, name) == ()
    for each in (name, base):  # a record that is there has all it names
        restoring.restore(folder_store, each, new_folder() / "target")


def test_what_an_upload_in_progress_has_stored_stays(
    folder_store: ObjectStore, new_folder: MakeFolder
) -> None:
    source = folder_with(new_folder(), b"a")
    name = saving.save(source, folder_store).name
    folder_store.delete(record_key(name))  # as before the last step of a save
    before = keys(folder_store)
    assert expired(folder_store) == ()
    assert keys(folder_store) == before
    aged(folder_store)
    assert expired(folder_store) == ()
    assert keys(folder_store) == set()  # control: without a save they are garbage


def test_a_save_makes_young_what_it_builds_upon(
    folder_store: ObjectStore, new_folder: MakeFolder
) -> None:
    source = folder_with(new_folder(), b"a", b"b")
    base = saving.save(source, folder_store).name
    aged(folder_store)
    (source / "file-0").write_bytes(b"changed")
    name = saving.save(source, folder_store, base=base).name
    assert expired(folder_store) == ()
    assert expired(folder_store) == ()
    for each in (base, name):
        restoring.restore(folder_store, each, new_folder() / "target")
    # A snapshot that is there already, too.
    aged(folder_store)
    assert not saving.save(source, folder_store).is_new
    assert expired(folder_store) == ()
    restoring.restore(folder_store, name, new_folder() / "target")


def test_an_old_content_without_a_record_is_written_again(
    folder_store: ObjectStore, new_folder: MakeFolder
) -> None:
    source = folder_with(new_folder(), b"a")
    name = saving.save(source, folder_store).name
    folder_store.delete(record_key(name))
    aged(folder_store)
    saved = saving.save(source, folder_store)
    assert (saved.name, saved.objects) == (name, 3)
    assert expired(folder_store) == ()


def test_a_save_notices_that_its_base_was_removed(
    folder_store: ObjectStore, new_folder: MakeFolder
) -> None:
    source = folder_with(new_folder(), b"a", b"b")
    base = saving.save(source, folder_store).name
    (source / "file-0").write_bytes(b"changed")
    list_of = folder_store.find

    def and_remove(key: str) -> object:
        found = list_of(key)
        if key.startswith("packs/"):  # between the first look at the base and the last
            folder_store.delete(record_key(base))
        return found

    folder_store.find = and_remove  # type: ignore[assignment,method-assign]
    with pytest.raises(ObjectStoreFailed, match="was removed while"):
        saving.save(source, folder_store, base=base)
    assert [*folder_store.list("snapshots/")] == []


def test_nothing_is_removed_if_a_kept_snapshot_cannot_be_read(
    folder_store: ObjectStore, new_folder: MakeFolder
) -> None:
    kept = saving.save(folder_with(new_folder(), b"a"), folder_store).name
    saving.save(folder_with(new_folder(), b"b"), folder_store)
    aged(folder_store)
    before = keys(folder_store)
    with pytest.raises(Refused, match="holds no snapshot"):
        expired(folder_store, kept, "f" * 64)
    assert folder_store.folder is not None
    path = folder_store.folder / record_key(kept)
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(ActumError) as failed:
        expired(folder_store, kept)
    assert failed.value.code == "OBJECT_DAMAGED"
    assert keys(folder_store) == before


def test_an_age_that_a_save_may_need_is_refused(folder_store: ObjectStore) -> None:
    assert saving.LONGEST_SAVE_S + saving.REFRESH_AFTER_S < object_expiry.LEAST_AGE_S
    with pytest.raises(Refused) as refused:
        object_expiry.expire(folder_store, [], older_than_s=object_expiry.LEAST_AGE_S - 1)
    assert refused.value.code == "SNAPSHOT_AGE_TOO_LOW"
