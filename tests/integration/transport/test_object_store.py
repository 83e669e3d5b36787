"""A store that fails: every failure is a fault with a remedy, within bounded time, or is no failure
at all because a second try succeeds."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from actum.errors import ActumError, Fault, Refused
from actum.runs.transport import restoring, saving
from actum.runs.transport.object_store import (
    ObjectDamaged,
    ObjectMissing,
    ObjectStore,
    ObjectStoreFailed,
    StoreAddress,
)
from buckets.proxy import CUT, ERROR, HANG, PASS, SLOW, WRONG, Proxy
from buckets.server import Server
from integration.transport.conftest import SHORT, bucket

MakeFolder = Callable[[], Path]
#: Far above what `SHORT` permits for one request, for a busy machine.
_LONG_S = 60.0


def filled(folder: Path) -> Path:
    for number in range(20):
        (folder / f"small-{number}").write_bytes(b"small %d" % number)
    (folder / "large").write_bytes(os.urandom(100_000))
    return folder


def test_put_if_absent(objects: ObjectStore) -> None:
    assert objects.put("contents/aa/one", b"first")
    assert not objects.put("contents/aa/one", b"second")
    assert objects.get("contents/aa/one", 10, lambda content: content == b"first") == b"first"
    assert objects.put("contents/aa/one", b"third", again=True)
    assert objects.get_range("contents/aa/one", 2, lambda content: True) == b"th"
    found = objects.find("contents/aa/one")
    assert found is not None and found.size == 5
    assert objects.find("contents/aa/two") is None
    assert [each.key for each in objects.list("contents/")] == ["contents/aa/one"]
    assert [*objects.list("packs/")] == []
    objects.delete("contents/aa/one")
    objects.delete("contents/aa/one")
    assert objects.find("contents/aa/one") is None
    with pytest.raises(ObjectMissing, match="contents/aa/one is missing"):
        objects.get("contents/aa/one", 10, lambda content: True)


def test_wrong_bytes_are_read_again_and_then_a_fault(
    behind: ObjectStore, proxy: Proxy, new_folder: MakeFolder
) -> None:
    source = filled(new_folder())
    name = saving.save(source, behind).name
    proxy.behave = lambda method, path, before: (
        WRONG if method == "GET" and "/contents/" in path and before == 0 else PASS
    )
    restoring.restore(behind, name, source.parent / "second-try")
    for part in ("/contents/", "/packs/", "/snapshots/"):
        proxy.behave = lambda method, path, _, part=part: (
            WRONG if method == "GET" and part in path else PASS
        )
        target = source.parent / part.strip("/")
        with pytest.raises(ObjectDamaged, match=part[1:]) as damaged:
            restoring.restore(behind, name, target)
        assert damaged.value.remedy
        assert_nothing_left(target)
    proxy.behave = lambda *_: PASS
    restoring.restore(behind, name, source.parent / "control")


@pytest.mark.parametrize("how", [CUT, ERROR])
def test_a_short_failure_is_no_failure(
    how: str, behind: ObjectStore, proxy: Proxy, new_folder: MakeFolder
) -> None:
    """Every request fails the first time."""
    source = filled(new_folder())
    proxy.behave = lambda _method, _path, before: how if before == 0 else PASS
    saved = saving.save(source, behind)
    target = source.parent / "restored"
    restoring.restore(behind, saved.name, target)
    assert (target / "large").read_bytes() == (source / "large").read_bytes()


@pytest.mark.parametrize("how", [CUT, ERROR, HANG, SLOW])
@pytest.mark.parametrize("what", ["contents", "packs"])
def test_a_lasting_failure_is_a_fault_in_bounded_time(
    how: str, what: str, behind: ObjectStore, proxy: Proxy, new_folder: MakeFolder
) -> None:
    source = filled(new_folder())
    name = saving.save(source, behind).name
    proxy.behave = lambda method, path, _: how if f"/{what}/" in path and method == "GET" else PASS
    target = source.parent / "restored"
    began = time.monotonic()
    with pytest.raises(ObjectStoreFailed) as failed:
        restoring.restore(behind, name, target)
    assert time.monotonic() - began < _LONG_S
    assert failed.value.remedy
    assert "test-key" not in str(failed.value)
    assert_nothing_left(target)


@pytest.mark.parametrize("how", [ERROR, HANG])
def test_an_upload_that_fails_shows_nothing_and_goes_on_later(
    how: str, behind: ObjectStore, proxy: Proxy, new_folder: MakeFolder
) -> None:
    source = filled(new_folder())
    proxy.behave = lambda method, path, _: how if method == "PUT" and "/packs/" in path else PASS
    with pytest.raises(ObjectStoreFailed, match="packs/") as failed:
        saving.save(source, behind)
    assert failed.value.remedy
    assert [*behind.list("snapshots/")] == []
    proxy.behave = lambda *_: PASS
    proxy.asked.clear()
    saved = saving.save(source, behind)
    assert (saved.is_new, saved.objects) == (True, 2)
    assert proxy.count("PUT", "/contents/") == 0  # it was stored by the first try
    restoring.restore(behind, saved.name, source.parent / "restored")


def test_a_store_that_is_away_is_a_fault(bucket_server: Server, new_folder: MakeFolder) -> None:
    objects = bucket("http://127.0.0.1:9", "bucket-x", SHORT)
    with pytest.raises(ObjectStoreFailed, match="s3://bucket-x/some/prefix failed") as failed:
        saving.save(filled(new_folder()), objects)
    assert "endpoint" in failed.value.remedy
    objects = bucket(bucket_server.endpoint, "bucket-that-is-not-there", SHORT)
    with pytest.raises(Fault):
        saving.save(filled(new_folder()), objects)


@pytest.mark.parametrize("what", ["contents", "packs", "snapshots"])
@pytest.mark.parametrize("damage", ["missing", "short", "long", "other", "pipe", "link"])
def test_a_damaged_object_of_a_folder_is_a_fault(
    what: str, damage: str, folder_store: ObjectStore, new_folder: MakeFolder
) -> None:
    source = filled(new_folder())
    name = saving.save(source, folder_store).name
    assert folder_store.folder is not None
    (path,) = (each for each in (folder_store.folder / what).rglob("*") if each.is_file())
    content = path.read_bytes()
    path.unlink()
    match damage:
        case "short":
            path.write_bytes(content[:-1])
        case "long":
            path.write_bytes(content + b"x")
        case "other":
            path.write_bytes(content[:-2] + b"??")
        case "pipe":
            os.mkfifo(path)
        case "link":
            path.symlink_to("/dev/zero")
    target = source.parent / "restored"
    with pytest.raises(ActumError) as failed:
        restoring.restore(folder_store, name, target)
    assert isinstance(failed.value, Fault | Refused)
    codes = {"missing": "OBJECT_MISSING", "pipe": "OBJECT_STORE_FAILED"}
    codes |= {"link": "OBJECT_STORE_FAILED"}
    expected = codes.get(damage, "OBJECT_DAMAGED")
    if what == "snapshots" and damage in ("missing", "link"):
        expected = "SNAPSHOT_UNKNOWN" if damage == "missing" else expected
    assert failed.value.code == expected
    assert failed.value.remedy
    assert_nothing_left(target)


def test_a_record_that_was_damaged_is_written_anew(
    folder_store: ObjectStore, new_folder: MakeFolder
) -> None:
    source = filled(new_folder())
    name = saving.save(source, folder_store).name
    assert folder_store.folder is not None
    (path,) = (each for each in (folder_store.folder / "snapshots").rglob("*") if each.is_file())
    path.write_bytes(path.read_bytes()[:-10])
    assert saving.save(source, folder_store).is_new
    restoring.restore(folder_store, name, source.parent / "restored")


@pytest.mark.parametrize("what", ["contents", "packs"])
def test_a_snapshot_that_lost_an_object_is_made_whole_by_the_next_save(
    what: str, folder_store: ObjectStore, new_folder: MakeFolder
) -> None:
    source = filled(new_folder())
    base = saving.save(source, folder_store).name
    (source / "more").write_bytes(b"more")
    name = saving.save(source, folder_store, base=base).name
    assert folder_store.folder is not None
    for path in [each for each in (folder_store.folder / what).rglob("*") if each.is_file()]:
        path.unlink()
    with pytest.raises(ObjectMissing, match="Save the snapshot again"):
        restoring.restore(folder_store, name, source.parent / "missing")
    assert saving.save(source, folder_store, base=base).is_new
    restoring.restore(folder_store, name, source.parent / "restored")
    assert (source.parent / "restored" / "large").stat().st_size == 100_000


def test_a_content_that_was_cut_is_written_anew(
    folder_store: ObjectStore, new_folder: MakeFolder
) -> None:
    source = filled(new_folder())
    name = saving.save(source, folder_store).name
    assert folder_store.folder is not None
    for path in [each for each in folder_store.folder.rglob("*") if each.is_file()]:
        if path.parent.parent.name == "snapshots":
            path.unlink()
        else:
            path.write_bytes(path.read_bytes()[:-1])
    assert saving.save(source, folder_store).name == name
    restoring.restore(folder_store, name, source.parent / "restored")


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    address = StoreAddress(url=f"file://{tmp_path}/none")
    with pytest.raises(ObjectStoreFailed, match="No such file") as failed:
        ObjectStore(address)
    assert "folder exists" in failed.value.remedy
    assert not (tmp_path / "none").exists()
    ObjectStore(address, make=True)
    assert (tmp_path / "none").stat().st_mode & 0o777 == 0o700


def assert_nothing_left(target: Path) -> None:
    assert not os.path.lexists(target)
    assert not [
        each.name
        for each in target.parent.iterdir()
        if each.name.startswith(".actum-re") and each.is_dir()
    ]
