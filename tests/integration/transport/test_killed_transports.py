"""kill -9 at many moments: nothing half-done is visible, and a second try completes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from actum.errors import Refused
from actum.runs.transport import applying, object_expiry, restoring, saving, snapshot_record
from actum.runs.transport.object_store import ObjectStore, StoreAddress
from actum.runs.transport.snapshot_manifest import SnapshotBounds
from buckets.proxy import HANG, PASS, Proxy
from integration.transport.conftest import folders_in
from integration.transport.test_round_trips import found, ordinary

MakeFolder = Callable[[], Path]


@pytest.fixture
def new_folder() -> Iterator[MakeFolder]:
    """In memory: each of the many restores here syncs its file system."""
    yield from folders_in(Path(f"/dev/shm/actum-test-{os.getpid()}"))


#: Kills itself at the moment given, counted in events that Python reports before system calls.
_PROGRAM = """
import json, os, signal, sys
from pathlib import Path
from actum.runs.transport import applying, restoring, saving
from actum.runs.transport.object_store import ObjectStore, StoreAddress

what, moment, address, words = json.loads(sys.argv[1])
objects = ObjectStore(StoreAddress(**address))
import obstore, obstore.exceptions  # no event of an import counts
events = {"open", "os.mkdir", "os.rename", "os.symlink", "os.chmod", "os.remove", "os.link",
          "os.rmdir", "os.truncate", "os.listdir", "fcntl.flock"}
count = 0

def hook(event, arguments):
    global count
    if event in events:
        count += 1
        if count == moment:
            os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(hook)
match what:
    case "save":
        saving.save(Path(words[0]), objects)
    case "restore":
        restoring.restore(objects, words[0], Path(words[1]))
    case "apply":
        applying.apply(objects, words[0], Path(words[1]), base=words[2])
print(count)
"""


def run(
    what: str, moment: int, address: dict[str, str], *words: str
) -> subprocess.CompletedProcess[str]:
    given = json.dumps([what, moment, address, words])
    return subprocess.run(
        [sys.executable, "-c", _PROGRAM, given], capture_output=True, text=True, check=False
    )


def moments_of(what: str, address: dict[str, str], *words: str, count: int) -> list[int]:
    """Moments spread over a whole run, which is carried out once to count them."""
    done = run(what, 0, address, *words)
    assert done.returncode == 0, done.stderr
    last = int(done.stdout)
    assert last > 50
    return sorted({1 + number * (last - 1) // (count - 1) for number in range(count)})


def test_a_killed_restore_leaves_no_target_and_the_next_one_completes(
    folder_store: ObjectStore, new_folder: MakeFolder
) -> None:
    source = ordinary(new_folder())
    name = saving.save(source, folder_store).name
    folder, address = new_folder(), {"url": folder_store.url}
    moments = moments_of("restore", address, name, str(folder / "counted"), count=5)
    killed = 0
    for moment in moments:
        target = folder / f"target-{moment}"
        killed += run("restore", moment, address, name, str(target)).returncode == -9
        if target.exists():
            assert found(target) == found(source)
        else:
            restoring.restore(folder_store, name, target)
            assert found(target) == found(source)
        if moment == moments[-1]:
            continue  # after the rename: the marker's folder is empty, and of this target alone
        assert not restoring.passing_folder(target, "restore").exists()
    assert killed == len(moments)


def test_a_killed_apply_is_finished_by_the_next(
    folder_store: ObjectStore, new_folder: MakeFolder
) -> None:
    source = ordinary(new_folder())
    base = saving.save(source, folder_store).name
    before = found(source)
    for number in range(10):
        (source / "src" / f"small-{number}").write_bytes(b"changed %d" % number)
    (source / "src" / "deep" / "er" / "program").unlink()
    (source / "link").unlink()
    (source / "link").mkdir()
    (source / "link" / "new").write_bytes(os.urandom(70_000))
    (source / "nothing").chmod(0o700)
    name = saving.save(source, folder_store, base=base).name
    after = found(source)
    folder, address = new_folder(), {"url": folder_store.url}
    restoring.restore(folder_store, base, folder / "counted")
    words = (name, str(folder / "counted"), base)
    moments = moments_of("apply", address, *words, count=5)
    states = []
    for moment in moments:
        target = folder / f"target-{moment}"
        restoring.restore(folder_store, base, target)
        assert run("apply", moment, address, name, str(target), base).returncode == -9
        states.append(found(target))
        applying.apply(folder_store, name, target, base=base)
        assert found(target) == after
        assert not restoring.passing_folder(target, "apply").exists()
    assert before in states  # else no kill came before the commit
    assert any(state != before for state in states)  # else none came behind it


def test_a_killed_save_to_a_folder_shows_no_snapshot(
    folder_store: ObjectStore, new_folder: MakeFolder
) -> None:
    source = ordinary(new_folder())
    place = new_folder()
    moments = moments_of("save", {"url": folder_store.url}, str(source), count=4)
    for stores, moment in enumerate(moments):
        address = {"url": f"file://{place}/store-{stores}"}
        (place / f"store-{stores}").mkdir()
        assert run("save", moment, address, str(source)).returncode == -9
        objects = ObjectStore(StoreAddress(**address))
        for listed in [*objects.list("snapshots/")]:  # killed after the record: it is whole
            snapshot_record.load(objects, listed.key.rpartition("/")[2], SnapshotBounds())
        name = saving.save(source, objects).name
        restoring.restore(objects, name, place / f"restored-{stores}")
        assert found(place / f"restored-{stores}") == found(source)


def test_a_killed_upload_to_a_bucket_shows_no_snapshot(
    behind: ObjectStore, proxy: Proxy, new_folder: MakeFolder
) -> None:
    """Killed while a request is under way: each kind of object once."""
    source = ordinary(new_folder())
    for what in ("/contents/", "/packs/", "/snapshots/"):
        bucket = behind.url.split("/")[2]
        address = {
            "url": f"s3://{bucket}/{what.strip('/')}",
            "endpoint": proxy.endpoint,
            "key_id": "i",
            "key": "k",
        }
        part = f"/{bucket}/{what.strip('/')}{what}"
        proxy.behave = lambda method, path, _, part=part: (
            HANG if method == "PUT" and part in path else PASS
        )
        given = json.dumps(["save", 0, address, [str(source)]])
        process = subprocess.Popen([sys.executable, "-c", _PROGRAM, given])
        while not proxy.count("PUT", part):
            assert process.poll() is None
        process.kill()
        process.wait()
        proxy.behave = lambda *_: PASS
        objects = ObjectStore(StoreAddress(**address))
        assert [*objects.list("snapshots/")] == []
        saved = saving.save(source, objects)
        assert saved.is_new
        restoring.restore(objects, saved.name, source.parent / f"from-{what.strip('/')}")


def test_what_a_killed_put_left_in_a_folder_is_removed_when_it_is_old(
    folder_store: ObjectStore, new_folder: MakeFolder
) -> None:
    """obstore writes NAME#1 and links it to NAME: a kill between leaves the first."""
    name = saving.save(ordinary(new_folder()), folder_store).name
    assert folder_store.folder is not None
    old, young = (folder_store.folder / "packs" / "aa" / f"{n:064x}#1" for n in (1, 2))
    old.parent.mkdir(exist_ok=True)
    for path in (old, young):
        path.write_bytes(b"half")
    os.utime(old, (1, 1))
    object_expiry.expire(folder_store, [name], older_than_s=3_600)
    assert not old.exists()
    assert young.exists()


def test_two_restores_of_one_target_do_not_meet(
    folder_store: ObjectStore, new_folder: MakeFolder
) -> None:
    name = saving.save(new_folder(), folder_store).name
    target = new_folder() / "target"
    held = restoring.hold(restoring.passing_folder(target, "restore"))
    try:
        with pytest.raises(Refused) as refused:
            restoring.restore(folder_store, name, target)
        assert refused.value.code == "SNAPSHOT_BUSY"
    finally:
        os.close(held)
    restoring.restore(folder_store, name, target)
