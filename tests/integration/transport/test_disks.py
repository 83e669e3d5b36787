"""A disk without room, and a read-only one: a fault with a remedy, and nothing left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

#: Runs in a mount namespace of its own, with a small tmpfs and a larger one that end with it.
_PROGRAM = """
import json, os, subprocess, sys
from pathlib import Path
from actum.errors import ActumError
from actum.runs.transport import restoring, saving
from actum.runs.transport.object_store import ObjectStore, StoreAddress

place = Path(sys.argv[1])
disk = place / "disk"
disk.mkdir()
mount = lambda *words: subprocess.run(["mount", *words], check=True)
mount("-t", "tmpfs", "-o", "size=2M,mode=755", "tmpfs", str(disk))
source = place / "source"
source.mkdir()
for number in range(100):
    (source / f"small-{number}").write_bytes(os.urandom(1_000))
(source / "large").write_bytes(os.urandom(3_000_000))

def tried(work):
    try:
        work()
    except ActumError as error:
        return [error.code, error.remedy]
    return ["done", ""]

def left():
    return sorted(str(path.relative_to(disk)) for path in disk.rglob("*") if path.is_file())

roomy = ObjectStore(StoreAddress(url=f"file://{place}/store"), make=True)
small = lambda: ObjectStore(StoreAddress(url=f"file://{disk}/store"), make=True)
name = saving.save(source, roomy).name
say = {}
say["full restore"] = tried(lambda: restoring.restore(roomy, name, disk / "target")), left()
say["full save"] = tried(lambda: saving.save(source, small())), list(small().list("snapshots/"))
disk = place / "roomy"
disk.mkdir()
mount("-t", "tmpfs", "-o", "size=20M,mode=755", "tmpfs", str(disk))
say["room"] = tried(lambda: saving.save(source, small()))[0]
say["room restore"] = tried(lambda: restoring.restore(small(), name, disk / "target"))[0]
mount("-o", "remount,bind,ro", str(disk))
(source / "more").write_bytes(b"x")
say["read-only save"] = tried(lambda: saving.save(source, small()))
say["read-only target"] = tried(lambda: restoring.restore(roomy, name, disk / "other"))
say["read-only source"] = tried(lambda: restoring.restore(small(), name, place / "from"))[0]
print(json.dumps(say))
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    place = tmp_path_factory.mktemp("disks")
    spaces = ["--mount", "--propagation", "private"]
    if os.geteuid() != 0:
        spaces += ["--user", "--map-root-user"]
    done = subprocess.run(
        ["unshare", *spaces, sys.executable, "-c", _PROGRAM, str(place)],
        capture_output=True,
        text=True,
        check=False,
    )
    if "unshare failed" in done.stderr or "mount failed" in done.stderr:
        pytest.skip(f"this user can mount nothing: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    answer: dict[str, object] = json.loads(done.stdout)
    return answer


def test_a_restore_without_room_leaves_nothing(said: dict[str, object]) -> None:
    failed, left = said["full restore"]  # type: ignore[misc]
    assert failed == ["SNAPSHOT_NOT_RESTORED", "Free space on that file system."]
    assert left == []


def test_a_save_without_room_shows_no_snapshot(said: dict[str, object]) -> None:
    failed, listed = said["full save"]  # type: ignore[misc]
    assert failed[0] == "OBJECT_STORE_FAILED"
    assert "has room" in failed[1]
    assert listed == []


def test_control_with_room_both_succeed(said: dict[str, object]) -> None:
    assert (said["room"], said["room restore"]) == ("done", "done")


def test_a_read_only_disk_is_a_fault_and_can_be_read(said: dict[str, object]) -> None:
    assert said["read-only save"][0] == "OBJECT_STORE_FAILED"  # type: ignore[index]
    assert said["read-only target"] == [
        "SNAPSHOT_NOT_RESTORED",
        "Choose a folder on a writable file system.",
    ]
    assert said["read-only source"] == "done"


def test_a_folder_of_another_user(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("no folder is closed to root")
    from actum.runs.transport.object_store import ObjectStore, ObjectStoreFailed, StoreAddress

    (tmp_path / "store").mkdir(mode=0o500)
    objects = ObjectStore(StoreAddress(url=f"file://{tmp_path}/store"))
    with pytest.raises(ObjectStoreFailed, match="ermission") as failed:
        objects.put("contents/aa/x", b"1")
    assert "can be written" in failed.value.remedy
