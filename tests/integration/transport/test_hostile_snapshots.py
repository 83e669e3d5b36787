"""A writer of the store can make a restore fail, and reach nothing else."""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from actum.errors import ActumError, Refused
from actum.runs.transport import applying, restoring, saving
from actum.runs.transport.content_pack import Pack, PackedContent
from actum.runs.transport.object_store import ObjectStore
from actum.runs.transport.snapshot_manifest import SnapshotBounds
from actum.runs.transport.snapshot_record import content_key, pack_key, record_key
from integration.transport.test_object_store import assert_nothing_left

MakeFolder = Callable[[], Path]
TEXT = b"text"
DIGEST = hashlib.sha256(TEXT).hexdigest().encode()
FILE = b"f 644 4 %b " % DIGEST


def manifest_of(*lines: bytes) -> bytes:
    return b"\n".join((b"actum-snapshot 1", b"d 755 .", *lines, b""))


def put_record(objects: ObjectStore, name: str, *lines: bytes) -> None:
    body = b"\n".join((b"actum-record 1", *lines))
    text = body + b"sum " + hashlib.sha256(body).hexdigest().encode() + b"\n"
    objects.put(record_key(name), text, again=True)


def put_pack(objects: ObjectStore, *texts: bytes) -> bytes:
    """Store a pack; the line of a record that names it."""
    pack = Pack(tuple(PackedContent(hashlib.sha256(text).digest(), len(text)) for text in texts))
    objects.put(pack_key(pack.name), pack.header + b"".join(texts), again=True)
    return f"pack {pack.name} {pack.header_bytes} {pack.size}".encode()


def put_snapshot(objects: ObjectStore, *lines: bytes) -> str:
    """Store a snapshot with these lines of a manifest, and the text that they name."""
    manifest = manifest_of(*lines)
    name = hashlib.sha256(manifest).hexdigest()
    put_record(objects, name, put_pack(objects, TEXT), b"manifest", manifest)
    return name


def test_control_a_snapshot_made_like_this_is_restored(
    folder_store: ObjectStore, new_folder: MakeFolder
) -> None:
    name = put_snapshot(
        folder_store, b"d 755 Dir", FILE + b"Dir/file", b"d 700 dir", b"l ../../out dir/link"
    )
    target = new_folder() / "target"
    restoring.restore(folder_store, name, target)
    # Names that differ by case are two names here.
    assert (target / "Dir" / "file").read_bytes() == TEXT
    assert os.readlink(target / "dir" / "link") == "../../out"


@pytest.mark.parametrize(
    "lines",
    [
        (FILE + b"../escaped",),
        (FILE + b"/tmp/escaped",),
        (b"d 755 a", FILE + b"a/../../escaped"),
        (b"l .. a", FILE + b"a/escaped"),
        (b"l /tmp a", b"d 755 a", FILE + b"a/escaped"),
        (FILE + b"a", FILE + b"a"),
        (FILE + b"a", FILE + b"a/b"),
        (b"f 6755 4 %b a" % DIGEST,),
        (b"c 644 1 5 zero",),
        (b"d 755 .actum", FILE + b".actum/keys"),
        (b"d 755 .git", b"d 755 .git/hooks", FILE + b".git/hooks/post-checkout"),
        (FILE + b".actum-removable",),
    ],
)
def test_no_name_leads_out(
    lines: tuple[bytes, ...], folder_store: ObjectStore, new_folder: MakeFolder
) -> None:
    name = put_snapshot(folder_store, *lines)
    folder = new_folder()
    target = folder / "inner" / "target"
    target.parent.mkdir()
    with pytest.raises(Refused) as refused:
        restoring.restore(folder_store, name, target)
    assert refused.value.code == "SNAPSHOT_INVALID"
    assert [each.name for each in folder.rglob("*")] == ["inner"]
    # A difference is read by the same rules.
    base = saving.save(target.parent, folder_store).name
    with pytest.raises(Refused):
        applying.apply(folder_store, name, target.parent, base=base)
    assert [each.name for each in folder.rglob("*")] == ["inner"]


@pytest.mark.parametrize(
    ("bounds", "lines"),
    [
        (SnapshotBounds(entries=100), tuple(b"d 755 %03d" % number for number in range(100))),
        (SnapshotBounds(content_bytes=10), (FILE + b"a", FILE + b"b", FILE + b"c")),
        (SnapshotBounds(manifest_bytes=50), (FILE + b"a",)),
    ],
)
def test_counts_and_sizes_are_bounded(
    bounds: SnapshotBounds,
    lines: tuple[bytes, ...],
    folder_store: ObjectStore,
    new_folder: MakeFolder,
) -> None:
    name = put_snapshot(folder_store, *lines)
    target = new_folder() / "target"
    with pytest.raises(Refused) as refused:
        restoring.restore(folder_store, name, target, bounds=bounds)
    assert refused.value.code == "SNAPSHOT_TOO_LARGE"
    assert_nothing_left(target)
    restoring.restore(folder_store, name, target)


def test_a_manifest_of_another_name_is_refused(
    folder_store: ObjectStore, new_folder: MakeFolder
) -> None:
    name = put_snapshot(folder_store, FILE + b"a")
    put_record(folder_store, name, put_pack(folder_store, TEXT), b"manifest", manifest_of())
    with pytest.raises(Refused, match="is not that of"):
        restoring.restore(folder_store, name, new_folder() / "target")


def test_a_chain_of_bases_ends(folder_store: ObjectStore, new_folder: MakeFolder) -> None:
    one, other = "1" * 64, "2" * 64
    put_record(folder_store, one, b"base " + other.encode(), b"changes", b"")
    put_record(folder_store, other, b"base " + one.encode(), b"changes", b"")
    with pytest.raises(Refused, match="no end"):
        restoring.restore(folder_store, one, new_folder() / "target")
    names = [f"{number:064x}" for number in range(40)]
    for name, base in itertools.pairwise(names):
        put_record(folder_store, name, b"base " + base.encode(), b"changes", b"")
    with pytest.raises(Refused, match="no end"):
        restoring.restore(folder_store, names[0], new_folder() / "target")


@pytest.mark.parametrize("change", [b"+ nonsense", b"* a", b"+ f 644 4 zz a", b"+ d 755 /etc"])
def test_changes_are_read_strictly(
    change: bytes, folder_store: ObjectStore, new_folder: MakeFolder
) -> None:
    base = put_snapshot(folder_store, FILE + b"a")
    name = "3" * 64
    put_record(folder_store, name, b"base " + base.encode(), b"changes", change, b"")
    with pytest.raises(Refused) as refused:
        restoring.restore(folder_store, name, new_folder() / "target")
    assert refused.value.code == "SNAPSHOT_INVALID"


def lying_pack(objects: ObjectStore) -> bytes:
    """A pack whose header claims more than its object has."""
    pack = Pack((PackedContent(hashlib.sha256(TEXT).digest(), 60_000),))
    objects.put(pack_key(pack.name), pack.header + TEXT)
    return f"pack {pack.name} {pack.header_bytes} {pack.size}".encode()


def other_pack(objects: ObjectStore) -> bytes:
    """A pack under the digest of another header."""
    line = put_pack(objects, b"other")
    name = "4" * 64
    size = 13 + 36 + 5
    objects.put(
        pack_key(name), objects.get(pack_key(line.split()[1].decode()), size, lambda _: True)
    )
    return f"pack {name} 49 {size}".encode()


@pytest.mark.parametrize("pack", [lying_pack, other_pack, lambda objects: put_pack(objects, b"x")])
def test_a_pack_gives_only_what_its_digests_say(
    pack: Callable[[ObjectStore], bytes], folder_store: ObjectStore, new_folder: MakeFolder
) -> None:
    manifest = manifest_of(FILE + b"a")
    name = hashlib.sha256(manifest).hexdigest()
    put_record(folder_store, name, pack(folder_store), b"manifest", manifest)
    target = new_folder() / "target"
    with pytest.raises(ActumError):
        restoring.restore(folder_store, name, target)
    assert_nothing_left(target)
    put_record(folder_store, name, put_pack(folder_store, TEXT), b"manifest", manifest)
    restoring.restore(folder_store, name, target)


def test_an_object_that_is_larger_than_announced_is_not_read(
    folder_store: ObjectStore, new_folder: MakeFolder
) -> None:
    digest = hashlib.sha256(b"x").digest()
    manifest = manifest_of(b"f 644 100000 %b a" % digest.hex().encode())
    name = hashlib.sha256(manifest).hexdigest()
    put_record(folder_store, name, b"manifest", manifest)
    folder_store.put(content_key(digest), b"x")
    assert folder_store.folder is not None
    os.truncate(folder_store.folder / content_key(digest), 1 << 40)  # a terabyte of zeros
    target = new_folder() / "target"
    with pytest.raises(ActumError, match="1099511627776 bytes") as refused:
        restoring.restore(folder_store, name, target)
    assert refused.value.code == "OBJECT_DAMAGED"
    assert_nothing_left(target)


def test_parts_that_are_not_those_of_the_whole_are_refused(
    folder_store: ObjectStore, new_folder: MakeFolder
) -> None:
    part, last = b"p" * (8 << 20), b"l" * 70_000
    digests = [hashlib.sha256(each).hexdigest().encode() for each in (part, last)]
    for each in (part, last):
        folder_store.put(content_key(hashlib.sha256(each).digest()), each)
    for whole, is_right in ((b"0" * 64, False), (_sha(part + last), True)):
        size = len(part) + len(last)
        manifest = manifest_of(b"f 644 %d %b,%b,%b a" % (size, whole, *digests))
        name = hashlib.sha256(manifest).hexdigest()
        put_record(folder_store, name, b"manifest", manifest)
        target = new_folder() / "target"
        if is_right:
            restoring.restore(folder_store, name, target)
            assert (target / "a").read_bytes() == part + last
        else:
            with pytest.raises(Refused, match="are not those of its digest"):
                restoring.restore(folder_store, name, target)
            assert_nothing_left(target)


def _sha(content: bytes) -> bytes:
    return hashlib.sha256(content).hexdigest().encode()


def test_a_link_in_the_place_of_the_passing_folder_is_not_followed(
    folder_store: ObjectStore, new_folder: MakeFolder
) -> None:
    name = put_snapshot(folder_store, FILE + b"a")
    elsewhere, target = new_folder(), new_folder() / "target"
    (elsewhere / "precious").write_bytes(b"1")
    restoring.passing_folder(target, "restore").symlink_to(elsewhere)
    with pytest.raises(ActumError):
        restoring.restore(folder_store, name, target)
    assert (elsewhere / "precious").read_bytes() == b"1"
    assert [each.name for each in elsewhere.iterdir()] == ["precious"]
