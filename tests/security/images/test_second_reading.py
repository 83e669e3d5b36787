"""Attacks on the reader of images that the list of known ones does not name."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import stat
import struct
import threading
import time
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actum.contract.image_reference import ImageReference, RootImage
from actum.errors import Refused
from actum.images.image_bounds import Bounds
from actum.images.image_store import ImageStore, in_use
from common.images import Layer, Layout, docker_save

_SMALL = Bounds(content_bytes=64 << 20, seconds=120)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[ImageStore]:
    (tmp_path / "home").mkdir()
    yield ImageStore(tmp_path / "home")


def _add(store: ImageStore, content: bytes, bounds: Bounds = _SMALL) -> Path:
    file = store.folder.parent / "archive"
    file.write_bytes(content)
    try:
        return Path(store.add(file, at=datetime.now(UTC), bounds=bounds).image.folder)
    finally:
        assert [name for name in os.listdir(store.folder) if "-" in name] == []


def _files(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir()}


def test_whiteouts_that_repeat_take_no_time(store: ImageStore) -> None:
    """Each would walk the whole tree."""
    layer = Layer().file("d/lower")
    later = Layer()
    for number in range(4_000):
        later.file(f"d/{number}")
    for _ in range(4_000):
        later.file(".wh.d").file("d/.wh..wh..opq")
    layout = Layout()
    layout.image([layer.content(), later.content()])
    file = layout.archive(store.folder.parent / "a.tar")
    begun = time.process_time()
    root = Path(store.add(file, at=datetime.now(UTC), bounds=_SMALL).image.folder)
    assert time.process_time() - begun < 60  # 64 million visits take minutes
    assert len(_files(root)) == 4_000


def test_links_that_multiply_work_end(store: ImageStore) -> None:
    """40 links of 1,900 components each, for every one of many entries."""
    layer = Layer().folder("d")
    for number in range(38):
        layer.link(f"l{number}", "d/../" * 700 + f"l{number + 1}")
    layer.link("l38", "d")
    for number in range(2_000):
        layer.file(f"l0/{number}")
    with pytest.raises(Refused, match="too many links"):
        _add(store, layer.content())


def test_documents_with_half_characters_are_refused(store: ImageStore) -> None:
    """JSON can write what is no text; it must not end in an error of ours."""
    odd = "\ud800\udc80\x1b[2J\n"
    for change in (
        {"Config": odd},
        {"Layers": [odd]},
        {"Layers": ["a\0b"]},
        {"RepoTags": [odd], "Layers": []},
    ):
        file = docker_save(store.folder.parent / "s.tar", [Layer().file("a").content()])
        content = file.read_bytes()
        at = content.index(b'[{"Config"')
        manifest = json.loads(content[at : content.index(b"\0", at)])
        manifest[0].update(change)
        layer = Layer().file("manifest.json", json.dumps(manifest).encode())
        name = docker_save_config(content)
        layer.file(name[0], name[1])
        with pytest.raises(Refused) as refusal:
            _add(store, layer.content())
        assert refusal.value.message.isprintable()
    layout = Layout()
    layout.image([Layer().file("a").content()], platform=(odd, odd), name=odd)
    with pytest.raises(Refused) as refusal:
        store.add(layout.folder(store.folder.parent / "l"), at=datetime.now(UTC))
    assert refusal.value.code == "IMAGE_PLATFORM" and refusal.value.message.isprintable()


def docker_save_config(content: bytes) -> tuple[str, bytes]:
    """The configuration of an archive of `docker_save`: its name and its content."""
    at = content.index(b'{"os"')
    config = content[at : content.index(b"\0", at)]
    return f"{hashlib.sha256(config).hexdigest()}.json", config


def test_names_of_an_image_cannot_steer_a_terminal(store: ImageStore) -> None:
    """A tag is text of a stranger, and is stored."""
    odd = "evil\x1b]0;title\x07\n\ud800"
    layout = Layout()
    layout.image([Layer().file("a").content()], name=odd)
    image = store.add(layout.folder(store.folder.parent / "l"), at=datetime.now(UTC)).image
    assert image.reference == image.id  # no name with such letters is one
    assert store.all() == (image,) and image.names == (odd,)


def test_a_header_of_two_sizes_has_one(store: ImageStore) -> None:
    """The size of a pax header counts, as everywhere; another reader would see another archive."""
    hidden = Layer().file("hidden", b"x").content()
    root = _add(
        store, Layer().file("seen", hidden, pax_headers={"size": str(len(hidden))}).content()
    )
    assert _files(root) == {"seen"}
    with pytest.raises(Refused):
        _add(store, Layer().file("seen", b"x", pax_headers={"size": "1" * 30}).content())


def test_a_second_archive_behind_the_end_is_not_read(store: ImageStore) -> None:
    one, two = Layer().file("one").content(), Layer().file("two").content()
    assert _files(_add(store, one + two)) == {"one"}


def test_a_gzip_of_empty_members_ends(store: ImageStore) -> None:
    empty = zlib.compressobj(wbits=31).flush()
    with pytest.raises(Refused):
        _add(store, empty * 20_000)


def test_a_negative_and_a_giant_size_are_refused(store: ImageStore) -> None:
    for size in (b"\xff" * 12, b"\x80" + b"\x7f" * 11, b"77777777777\0"):
        header = bytearray(Layer().file("a").content()[:512])
        header[124:136] = size
        header[148:156] = b" " * 8
        header[148:156] = b"%06o\0 " % sum(header)
        with pytest.raises(Refused):
            _add(store, bytes(header) + bytes(1024))


def test_the_marker_of_removals_is_a_name_like_any_other(store: ImageStore) -> None:
    """A marked folder inside an image gives nobody a right to remove anything."""
    layer = Layer().file(".actum-removable", b"x").file("image.json", b"{}").link("root", "/")
    root = _add(store, layer.content())
    assert _files(root) >= {".actum-removable", "image.json"}
    store.remove(store.all()[0])
    assert Path("/etc/passwd").exists() and store.all() == ()


def test_a_tight_umask_leaves_an_image_that_a_tool_can_read(store: ImageStore) -> None:
    before = os.umask(0o077)
    try:
        root = _add(store, Layer().file("a/b/c", b"x", mode=0o755).content())
    finally:
        os.umask(before)
    assert [stat.S_IMODE((root / each).stat().st_mode) for each in ("", "a", "a/b", "a/b/c")] == (
        [0o755] * 4
    )


def test_two_that_add_at_once_make_one_image(store: ImageStore) -> None:
    content = Layer().file("a", b"x" * 100_000).content()
    (store.folder.parent / "archive").write_bytes(content)
    added = []

    def add() -> None:
        other = ImageStore(store.folder.parent)
        added.append(other.add(store.folder.parent / "archive", at=datetime.now(UTC)).is_new)

    threads = [threading.Thread(target=add) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(added) == [False] * 5 + [True]
    assert len(store.all()) == 1


def test_an_archive_that_changes_while_it_is_read_is_refused_or_whole(store: ImageStore) -> None:
    """What was digested is what was written: there is one pass."""
    content = bytearray(Layer().file("a", b"x" * (8 << 20)).content())
    layout = Layout()
    layout.image([bytes(content)], compressed=False)
    file = layout.archive(store.folder.parent / "l.tar")
    stop = threading.Event()

    def change() -> None:
        with file.open("r+b") as opened:
            at = file.read_bytes().index(b"x" * 4096) + (4 << 20)
            while not stop.is_set():
                opened.seek(at)
                opened.write(os.urandom(1))
                opened.flush()

    thread = threading.Thread(target=change)
    thread.start()
    try:
        time.sleep(0.05)
        with pytest.raises(Refused) as refusal:
            store.add(file, at=datetime.now(UTC))
        assert refusal.value.code == "IMAGE_DIGEST"
    finally:
        stop.set()
        thread.join()
    assert store.all() == ()


@settings(max_examples=150, database=None)
@given(
    cut=st.integers(0, 4_000),
    edits=st.lists(st.tuples(st.integers(0, 4_000), st.binary(min_size=1, max_size=8)), max_size=4),
    repaired=st.booleans(),
)
def test_any_damage_is_a_refusal_or_an_image(
    tmp_path_factory: pytest.TempPathFactory,
    cut: int,
    edits: list[tuple[int, bytes]],
    repaired: bool,
) -> None:
    """Bytes changed anywhere, with a checksum made right again: no error of ours, nothing left."""
    home = tmp_path_factory.mktemp("fuzz")
    layer = Layer().file("a", b"content").link("l", "a").same("s", "a").file("d/é" * 40, b"x" * 600)
    content = bytearray(layer.content())
    for at, new in edits:
        content[at : at + len(new)] = new
    if repaired:
        for at in range(0, len(content) - 511, 512):
            if content[at + 257 : at + 262] == b"ustar":
                content[at + 148 : at + 156] = b" " * 8
                content[at + 148 : at + 156] = b"%06o\0 " % sum(content[at : at + 512])
    store = ImageStore(home)
    try:
        root = _add(store, bytes(content[: len(content) - cut]))
    except Refused:
        assert store.all() == ()
    else:
        assert all(not path.is_symlink() or os.readlink(path) for path in root.rglob("*"))
    assert {each.name for each in home.iterdir()} <= {"images", "archive"}


def test_control_numbers_of_base_256_are_read(store: ImageStore) -> None:
    header = bytearray(Layer().file("a", b"12345").content())
    header[124:136] = b"\x80" + struct.pack(">xxxQ", 5)
    header[148:156] = b" " * 8
    header[148:156] = b"%06o\0 " % sum(header[:512])
    assert (_add(store, bytes(header)) / "a").read_bytes() == b"12345"


def _found(store: ImageStore, archive: bytes) -> RootImage:
    _add(store, archive)
    (image,) = store.all()
    found = store.find(ImageReference(name="", digest=image.id))
    assert found is not None
    return found


def test_an_image_that_is_being_removed_is_not_used(
    store: ImageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sandbox that starts between the check of the lock and the removal would lose its files."""
    found = _found(store, Layer().file("tool", b"tool").content())
    said: list[str] = []
    rename = os.rename

    def use_then_rename(source: Path, target: Path) -> None:
        try:
            with in_use(found):
                said.append("used")
        except Refused as refusal:
            said.append(refusal.code)
        rename(source, target)

    with in_use(found):  # control
        pass
    monkeypatch.setattr(os, "rename", use_then_rename)
    store.remove(store.all()[0])
    assert said == ["IMAGE_MISSING"]


def test_an_image_that_was_removed_while_it_was_opened_is_not_used(
    store: ImageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = _found(store, Layer().file("tool", b"tool").content())
    flock = fcntl.flock

    def remove_then_lock(descriptor: int, how: int) -> None:
        monkeypatch.setattr(fcntl, "flock", flock)
        store.remove(store.all()[0])
        flock(descriptor, how)

    monkeypatch.setattr(fcntl, "flock", remove_then_lock)
    with pytest.raises(Refused) as refusal, in_use(found):
        pass
    assert refusal.value.code == "IMAGE_MISSING"


@pytest.mark.parametrize("order", [("good", "evil"), ("evil", "good")])
def test_an_index_of_several_images_names_none_of_them(
    store: ImageStore, order: tuple[str, ...]
) -> None:
    """An approval of its digest would be one of whichever of them was added."""
    layout = Layout()
    manifests = {
        name: layout.image([Layer().file(name).content()], name=name, listed=False)
        for name in ("good", "evil")
    }
    both = layout.document("index", {"manifests": [*manifests.values()]})
    layout.index[:] = [both]
    archive = layout.archive(store.folder.parent / "archive")
    for name in order:
        store.add(archive, at=datetime.now(UTC), image=name)
        assert store.find(ImageReference(name="x", digest=str(both["digest"]))) is None
    # The controls: each manifest, and an index of one image.
    alone = layout.document("index", {"manifests": [manifests["good"]]})
    layout.index[:] = [alone]
    store.add(layout.archive(store.folder.parent / "alone"), at=datetime.now(UTC))
    for name, descriptor in [*manifests.items(), ("good", alone)]:
        found = store.find(ImageReference(name="x", digest=str(descriptor["digest"])))
        assert found is not None and os.listdir(found.folder) == [name]
