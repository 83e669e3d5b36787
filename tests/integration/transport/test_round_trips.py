"""What is saved is restored, to the byte; and a difference sends and fetches only itself."""

from __future__ import annotations

import hashlib
import os
import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings

from actum.errors import Refused
from actum.runs.transport import applying, restoring, saving, scanned_tree, snapshot_record
from actum.runs.transport.content_pack import SMALL_BYTES
from actum.runs.transport.object_store import ObjectStore
from actum.runs.transport.snapshot_manifest import PART_BYTES, SnapshotBounds
from actum.workspace.commit import WorkspaceDamaged
from integration.transport import trees
from integration.transport.trees import Node

BOUNDS = SnapshotBounds()
MakeFolder = Callable[[], Path]
_SLOW = settings(
    max_examples=15,
    database=None,  # an ordinary user may not write beside the tests
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


def made(tree: Node, folder: Path) -> Path:
    trees.write(tree, os.fsencode(folder))
    return folder


def found(folder: Path) -> Node:
    return trees.read(os.fsencode(folder))


@_SLOW
@given(tree=trees.trees)
def test_any_tree_comes_back(tree: Node, folder_store: ObjectStore, new_folder: MakeFolder) -> None:
    assume(os.geteuid() == 0 or trees.is_readable(tree))
    source = made(tree, new_folder())
    saved = saving.save(source, folder_store)
    target = source.parent / f"{source.name}-restored"
    restoring.restore(folder_store, saved.name, target)
    assert found(target) == found(source) == tree
    # The same tree has the same name wherever it is.
    assert scanned_tree.scan(target, BOUNDS).manifest.name == saved.name
    assert not saving.save(target, folder_store).is_new


@_SLOW
@given(before=trees.trees, after=trees.trees)
def test_any_difference_is_applied(
    before: Node, after: Node, folder_store: ObjectStore, new_folder: MakeFolder
) -> None:
    assume(os.geteuid() == 0 or (trees.is_readable(before) and trees.is_readable(after)))
    old, new = made(before, new_folder()), made(after, new_folder())
    base = saving.save(old, folder_store).name
    name = saving.save(new, folder_store, base=base).name
    assert snapshot_record.load(folder_store, name, BOUNDS).manifest.name == name
    changed = applying.apply(folder_store, name, old, base=base)
    assert found(old) == after
    assert (changed == 0) == (before == after)
    assert applying.apply(folder_store, name, old, base=base) == 0
    assert not any(
        each.name.startswith(".actum-") for each in old.parent.iterdir() if each.is_dir()
    )


def ordinary(folder: Path) -> Path:
    """A tree with some of everything: small, large and empty files, links, and two equal files."""
    random_bytes = random.Random(7).randbytes
    (folder / "src" / "deep" / "er").mkdir(parents=True)
    for number in range(50):
        (folder / "src" / f"small-{number}").write_bytes(random_bytes(500))
    (folder / "src" / "deep" / "er" / "program").write_bytes(b"#!/bin/sh\n")
    (folder / "src" / "deep" / "er" / "program").chmod(0o755)
    (folder / "large").write_bytes(random_bytes(SMALL_BYTES + 5))
    (folder / "parts").write_bytes(random_bytes(PART_BYTES + 3))
    (folder / "empty").write_bytes(b"")
    (folder / "nothing").mkdir()
    (folder / "copy").write_bytes((folder / "large").read_bytes())
    (folder / "link").symlink_to("src/small-1")
    return folder


def test_either_store_holds_a_tree(objects: ObjectStore, new_folder: MakeFolder) -> None:
    source = ordinary(new_folder())
    saved = saving.save(source, objects)
    # A pack, one large content for two files, the first part of `parts`, and the record.
    assert (saved.objects, saved.is_new) == (4, True)
    target = source.parent / "restored"
    restoring.restore(objects, saved.name, target)
    assert found(target) == found(source)
    again = saving.save(target, objects)
    assert (again.name, again.objects, again.bytes, again.is_new) == (saved.name, 0, 0, False)


def test_a_difference_sends_only_what_is_new(objects: ObjectStore, new_folder: MakeFolder) -> None:
    source = ordinary(new_folder())
    base = saving.save(source, objects)
    copy = source.parent / "copy-of-it"
    restoring.restore(objects, base.name, copy)
    (source / "src" / "small-3").write_bytes(b"changed")
    (source / "link").unlink()
    (source / "link").mkdir()
    (source / "nothing").rmdir()
    saved = saving.save(source, objects, base=base.name)
    # The content that changed, and a record of four changes.
    assert (saved.objects, saved.file_bytes > 8_000_000) == (2, True)
    assert saved.bytes < 1_000
    assert applying.apply(objects, saved.name, copy, base=base.name) == 3
    assert found(copy) == found(source)
    fresh = source.parent / "fresh"
    restoring.restore(objects, saved.name, fresh)
    assert found(fresh) == found(source)


def test_a_long_line_of_differences_stays_readable(
    folder_store: ObjectStore, new_folder: MakeFolder
) -> None:
    source = new_folder()
    for number in range(60):
        (source / f"file-{number}").write_bytes(b"%d" % number)
    name, lengths = "", []
    for number in range(2 * snapshot_record.MOST_BASES):
        (source / f"file-{number}").write_bytes(b"changed %d" % number)
        name = saving.save(source, folder_store, base=name).name
        lengths.append(len(snapshot_record.load(folder_store, name, BOUNDS).bases))
    assert max(lengths) == snapshot_record.MOST_BASES
    target = source.parent / "restored"
    restoring.restore(folder_store, name, target)
    assert found(target) == found(source)


def test_packs_that_are_mostly_unused_are_written_anew(
    folder_store: ObjectStore, new_folder: MakeFolder
) -> None:
    source = new_folder()
    random_bytes = random.Random(8).randbytes
    for number in range(200):
        (source / f"file-{number}").write_bytes(random_bytes(1_000))
    base = saving.save(source, folder_store)
    for number in range(150):
        (source / f"file-{number}").write_bytes(random_bytes(1_000))
    saved = saving.save(source, folder_store, base=base.name)
    (pack,) = snapshot_record.load(folder_store, saved.name, BOUNDS).packs
    assert pack.size < 210_000
    assert saved.bytes > 200_000


def test_the_state_of_the_project_and_git_is_left_out(
    folder_store: ObjectStore, new_folder: MakeFolder
) -> None:
    source = new_folder()
    (source / "file").write_bytes(b"1")
    name = saving.save(source, folder_store).name
    for left_out in (".actum", ".git"):
        (source / left_out).mkdir()
        (source / left_out / "secret").write_bytes(b"2")
    assert saving.save(source, folder_store).name == name
    # Only directly below the top, as in the state of a work item.
    (source / "sub" / ".git").mkdir(parents=True)
    assert saving.save(source, folder_store).name != name


def test_metadata_that_does_not_travel_does_not_change_the_name(
    folder_store: ObjectStore, new_folder: MakeFolder
) -> None:
    source = ordinary(new_folder())
    name = saving.save(source, folder_store).name
    os.utime(source / "large", (1, 1))
    os.chmod(source / "empty", 0o2644)
    os.link(source / "large", source / "extra")
    os.unlink(source / "copy")
    os.rename(source / "extra", source / "copy")
    assert saving.save(source, folder_store).name == name


def test_a_folder_in_another_state_is_not_changed(
    folder_store: ObjectStore, new_folder: MakeFolder
) -> None:
    source = ordinary(new_folder())
    base = saving.save(source, folder_store).name
    copy = source.parent / "copy-of-it"
    restoring.restore(folder_store, base, copy)
    (source / "empty").write_bytes(b"now")
    name = saving.save(source, folder_store, base=base).name
    (copy / "src" / "small-9").write_bytes(b"mine")
    before = found(copy)
    with pytest.raises(Refused, match="It differs at src/small-9\\.") as refused:
        applying.apply(folder_store, name, copy, base=base)
    assert refused.value.code == "WORKSPACE_MOVED"
    assert found(copy) == before
    assert not [each for each in copy.parent.iterdir() if each.name.startswith(".actum-a")]


def test_the_target_must_be_new(folder_store: ObjectStore, new_folder: MakeFolder) -> None:
    source = new_folder()
    name = saving.save(source, folder_store).name
    (source.parent / "dangling").symlink_to("nowhere")
    for target in (source, source.parent / "dangling"):
        with pytest.raises(Refused) as refused:
            restoring.restore(folder_store, name, target)
        assert refused.value.code == "SNAPSHOT_TARGET_EXISTS"


@pytest.mark.parametrize("make", [os.mkfifo, lambda path: os.mknod(path, 0o140644)])
def test_what_has_no_content_is_refused(
    make: Callable[[Path], None], folder_store: ObjectStore, new_folder: MakeFolder
) -> None:
    source = new_folder()
    make(source / "special")
    with pytest.raises(Refused, match="special is a pipe, a socket or a device") as refused:
        saving.save(source, folder_store)
    assert refused.value.code == "SNAPSHOT_INVALID"
    (source / "special").unlink()
    assert saving.save(source, folder_store).is_new


def test_a_file_that_never_rests_is_refused(
    folder_store: ObjectStore, new_folder: MakeFolder
) -> None:
    source = ordinary(new_folder())
    stop, writes = threading.Event(), 0

    def write() -> None:
        nonlocal writes
        while not stop.is_set():
            writes += 1
            with open(source / "parts", "r+b") as file:
                file.write(b"%d" % writes)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        with pytest.raises(Refused, match="was changed while it was read") as refused:
            saving.save(source, folder_store)
    finally:
        stop.set()
        writer.join()
    assert refused.value.code == "WORKSPACE_BUSY"
    assert writes > 1
    assert saving.save(source, folder_store).is_new


def test_a_file_that_changes_once_is_read_again(
    folder_store: ObjectStore, new_folder: MakeFolder
) -> None:
    """Changed between the first and the second reading, and of the same size."""
    source = ordinary(new_folder())
    scanned = scanned_tree.scan(source, BOUNDS)
    before = (source / "large").read_bytes()
    (source / "large").write_bytes(before[::-1])
    contents = scanned_tree.Contents(scanned)
    try:
        listed = scanned.manifest.entries[b"large"]
        with pytest.raises(scanned_tree.Changed, match="large"):
            contents.read(b"large", 0, listed.size, listed.digest)
    finally:
        contents.close()
    assert not scanned.is_same(BOUNDS)
    name = saving.save(source, folder_store).name
    restored = snapshot_record.load(folder_store, name, BOUNDS).manifest.entries[b"large"]
    assert restored.digest == hashlib.sha256(before[::-1]).digest()


def test_a_change_while_a_difference_is_applied_is_a_fault(
    folder_store: ObjectStore, new_folder: MakeFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = ordinary(new_folder())
    base = saving.save(source, folder_store).name
    copy = source.parent / "copy-of-it"
    restoring.restore(folder_store, base, copy)
    (source / "empty").write_bytes(b"now")
    name = saving.save(source, folder_store, base=base).name
    apply = applying.commit.apply

    def and_write(*given: object, **named: object) -> None:
        apply(*given, **named)  # type: ignore[arg-type]
        (copy / "foreign").write_bytes(b"x")

    monkeypatch.setattr(applying.commit, "apply", and_write)
    with pytest.raises(WorkspaceDamaged, match="foreign"):
        applying.apply(folder_store, name, copy, base=base)
