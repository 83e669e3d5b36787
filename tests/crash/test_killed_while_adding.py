"""`actum images add`, killed at many moments: the image is absent or whole, and nothing is left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

from actum.images.image_store import ImageStore
from common.images import Layer, Layout

_ADD = """
import sys
from datetime import UTC, datetime
from pathlib import Path
from actum.images.image_store import ImageStore
print("begun", flush=True)
ImageStore(Path(sys.argv[1])).add(Path(sys.argv[2]), at=datetime.now(UTC))
print("added", flush=True)
"""


def _archive(folder: Path) -> Path:
    layout, layers = Layout(), []
    for number in range(3):
        layer = Layer()
        for each in range(400):
            layer.file(f"d{each % 20}/{number}-{each}", os.urandom(2_000))
        layer.link(f"link{number}", "d1").same(f"same{number}", f"d1/{number}-1")
        layers.append(layer.content())
    layout.image(layers)
    return layout.archive(folder / "layout.tar")


def _whole(store: ImageStore) -> bool:
    """Whether the one image has every file; asserts that it has all or is not there."""
    images = store.all()
    for image in images:
        everything = Path(image.folder).rglob("*")
        files = [path for path in everything if path.is_symlink() or not path.is_dir()]
        assert sum(1 for path in files if path.is_symlink()) == 3
        assert sum(1 for path in files if not path.is_symlink()) == 1_203
    return bool(images)


def test_an_image_is_absent_or_whole(tmp_path: Path) -> None:
    archive = _archive(tmp_path)
    took = _took(tmp_path / "timed", archive)
    seen = set()
    for step in range(24):
        home = tmp_path / f"home{step}"
        home.mkdir()
        process = _begin(home, archive)
        time.sleep(took * step / 20)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        store = ImageStore(home)
        was_there = _whole(store)
        seen.add(was_there)
        added = store.add(archive, at=datetime.now(UTC))
        assert added.is_new is not was_there
        assert _whole(store)
        left = set(os.listdir(store.folder)) - {".lock"}
        assert left == {added.image.id.removeprefix("sha256:")}
    assert False in seen  # control: some were killed in time


def _begin(home: Path, archive: Path) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-c", _ADD, home, archive], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"begun\n"
    return process


def _took(home: Path, archive: Path) -> float:
    home.mkdir()
    process = _begin(home, archive)
    begun = time.monotonic()
    out, _ = process.communicate()
    assert out == b"added\n"
    return time.monotonic() - begun


def test_a_removal_that_was_killed_is_finished(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    store = ImageStore(home)
    image = store.add(_archive(tmp_path), at=datetime.now(UTC)).image
    # As `remove` leaves it when it is killed after its first step.
    os.rename(store.folder / image.id[7:], store.folder / ".old-0123")
    assert store.all() == ()
    other = tmp_path / "other.tar"
    other.write_bytes(Layer().file("a").content())
    store.add(other, at=datetime.now(UTC))
    assert not (store.folder / ".old-0123").exists()
