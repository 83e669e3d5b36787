"""The delta of the overlay equals the difference of two full listings, whatever was done.

Random trees, random operations; the overlay engine walks its upper, the judge reads everything.
Then the delta is committed and undone, and the state hash is compared with one computed anew.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from actum.errors import Refused
from actum.value import replace
from actum.workspace import commit, namespace
from actum.workspace.copying import CopyEngine, listing
from actum.workspace.engine import Engine, Ground
from actum.workspace.index import Index, difference
from actum.workspace.overlay import OverlayEngine
from actum.workspace.space import Space
from actum.workspace.tree import Delta

pytestmark = [
    pytest.mark.sandbox,
    pytest.mark.skipif(os.geteuid() != 0, reason="mounts in a thread of the test take root"),
]

T = TypeVar("T")

NAMES = (
    b"a", b"b", b"c", b"A", b"x y", b"new\nline", "ü€".encode(), b"\xff\xfe", b"-rf", b"%41",
)  # fmt: skip
NAME = st.sampled_from(NAMES)
PATH = st.lists(NAME, min_size=1, max_size=3).map(b"/".join)
DATA = st.sampled_from((b"", b"1", b"two", b"3" * 5_000))
MODE = st.sampled_from((0o600, 0o644, 0o755, 0o400))

TREE = st.lists(
    st.one_of(
        st.tuples(st.just("write"), PATH, DATA),
        st.tuples(st.just("mkdir"), PATH, st.none()),
        st.tuples(st.just("symlink"), PATH, PATH),
    ),
    max_size=12,
)
OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("write"), PATH, DATA),
        st.tuples(st.just("append"), PATH, DATA),
        st.tuples(st.just("truncate"), PATH, st.none()),
        st.tuples(st.just("sparse"), PATH, st.none()),
        st.tuples(st.just("rename"), PATH, PATH),
        st.tuples(st.just("rename"), PATH, PATH),
        st.tuples(st.just("chmod"), PATH, MODE),
        st.tuples(st.just("symlink"), PATH, PATH),
        st.tuples(st.just("link"), PATH, PATH),
        st.tuples(st.just("mkdir"), PATH, st.none()),
        st.tuples(st.just("delete"), PATH, st.none()),
        st.tuples(st.just("delete"), PATH, st.none()),
        st.tuples(st.just("touch"), PATH, st.none()),
        st.tuples(st.just("remake"), PATH, DATA),
    ),
    max_size=14,
)


def _do(top: bytes, operation: str, path: bytes, value: object) -> None:
    where = top + b"/" + path
    # An operation that makes no sense here (a file in the place of a folder) changes nothing.
    with contextlib.suppress(OSError, shutil.Error):
        if operation in ("write", "symlink", "mkdir", "link", "rename", "sparse"):
            target = where if operation != "rename" else top + b"/" + value  # type: ignore[operator]
            os.makedirs(os.path.dirname(target), exist_ok=True)
        match operation:
            case "write" | "append":
                with open(where, "wb" if operation == "write" else "ab") as file:
                    file.write(value)  # type: ignore[arg-type]
            case "truncate":
                os.truncate(where, 1)
            case "sparse":
                with open(where, "wb") as file:
                    file.seek(200_000)
                    file.write(b"end")
            case "rename":
                os.rename(where, top + b"/" + value)  # type: ignore[operator]
            case "chmod":
                mode = int(value)  # type: ignore[call-overload]
                os.chmod(where, mode | 0o700 if os.path.isdir(where) else mode)
            case "symlink":
                os.symlink(value, where)  # type: ignore[arg-type]
            case "link":
                os.link(top + b"/" + value, where, follow_symlinks=False)  # type: ignore[operator]
            case "mkdir":
                os.mkdir(where)
            case "delete" | "remake":
                if os.path.isdir(where) and not os.path.islink(where):
                    shutil.rmtree(where)
                else:
                    os.unlink(where)
                if operation == "remake":
                    os.makedirs(where)
                    with open(where + b"/again", "wb") as file:
                        file.write(value)  # type: ignore[arg-type]
            case "touch":
                os.utime(where, (1, 1), follow_symlinks=False)


def apart(work: Callable[[], T]) -> T:
    """Run in a thread with a mount namespace of its own."""
    result: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            namespace.enter()
            result.append(work())
        except BaseException as error:  # noqa: BLE001 -- raised again by who waits
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return result[0]


def _judged(
    engine: Engine, index: Index, ground: Ground, room: Path, operations: list[tuple]
) -> Delta:
    """Do the operations, and have the delta compared with the whole."""
    top = os.fsencode(ground.place)
    with engine.show():
        for operation, path, value in operations:
            _do(top, operation, path, value)
        delta = engine.delta(index)
        merged = os.open(ground.place, os.O_RDONLY)
        try:
            whole = difference(index.below(b""), listing(merged, ground.skip))
        finally:
            os.close(merged)
        seen = [
            (c.path, c.action, c.after and c.after[:2], c.after and c.after.digest) for c in delta
        ]
        wanted = [
            (c.path, c.action, c.after and c.after[:2], c.after and c.after.digest) for c in whole
        ]
        assert seen == wanted
        commit.stage(delta, engine, room)
        return delta


@pytest.mark.req("002-19", "002-20", "002-21")
@settings(deadline=None, max_examples=120, suppress_health_check=list(HealthCheck))
@given(TREE, OPERATIONS, st.sampled_from(("overlay", "copy", "copy on the host")))
def test_the_delta_is_the_difference_and_is_committed_and_undone_exactly(
    tree: list[tuple], operations: list[tuple], kind: str
) -> None:
    def work() -> None:
        with tempfile.TemporaryDirectory() as folder:
            base = Path(folder, "base")
            home = base / ".actum"
            home.mkdir(parents=True)
            for operation, path, value in tree:
                _do(os.fsencode(base), operation, path, value)
            space = Space(home, base)
            before = space.scan().state
            room = space.run_folder("one")
            ground = Ground(base=base, place=base, mounts=space.mounts, home=home, skip=space.skip)
            if kind == "copy on the host":
                ground = replace(ground, on_host=room / "view")
            with space.index() as index:
                engine = OverlayEngine(ground) if kind == "overlay" else CopyEngine(ground)
                try:
                    delta = _judged(engine, index, ground, room, operations)
                    after = index.preview(delta)
                finally:
                    engine.close()
                assert not (room / "view").exists()
                assert index.scan(base, space.skip).state == before  # thawed: nothing happened
            staged = commit.keep(delta, base, room)
            space.change(room, staged, {}, lambda record: None)
            (space.folder / "index.db").unlink()
            assert space.scan().state == after.state
            steps, kept = space.backward("one")
            held = os.open(base, os.O_RDONLY)
            commit.apply(steps, held, kept)
            os.close(held)
            (space.folder / "index.db").unlink()
            assert space.scan().state == before

    apart(work)


@pytest.mark.parametrize(
    ("bounds", "made"),
    [
        ({"cap_bytes": 1 << 20}, "head -c 2M /dev/zero > large"),
        ({"cap_names": 50}, "mkdir d; for i in $(seq 60); do : > d/$i; done"),
    ],
)
def test_a_copy_on_the_host_is_measured(tmp_path: Path, bounds: dict[str, int], made: str) -> None:
    """No kernel limit holds there. What was in the project does not count."""

    def work() -> None:
        base = tmp_path / "base"
        home = base / ".actum"
        home.mkdir(parents=True)
        (base / "old").write_bytes(bytes(3 << 20))
        for number in range(70):
            (base / f"old{number}").touch()
        space = Space(home, base)
        space.scan()
        ground = Ground(base=base, place=base, mounts=space.mounts, home=home, skip=space.skip)
        engine = CopyEngine(replace(ground, on_host=space.run_folder("one") / "view", **bounds))
        try:
            with engine.show(), space.index() as index:
                assert engine.delta(index) == ()
                assert not engine.census().full
                subprocess.run(["sh", "-c", made], cwd=base, check=True)
                with pytest.raises(Refused, match="more than"):
                    engine.delta(index)
                assert engine.census().full
        finally:
            engine.close()

    apart(work)


@pytest.mark.parametrize("kind", [OverlayEngine, CopyEngine])
def test_the_right_to_be_somebody_else_is_not_brought_in(tmp_path: Path, kind: type) -> None:
    def work() -> None:
        base = tmp_path / "base"
        home = base / ".actum"
        home.mkdir(parents=True)
        (base / "old").write_text("old")
        space = Space(home, base)
        space.scan()
        room = space.run_folder("one")
        ground = Ground(base=base, place=base, mounts=space.mounts, home=home, skip=space.skip)
        engine = kind(ground)
        try:
            with engine.show(), space.index() as index:
                for name in ("old", "new"):
                    (base / name).write_text(name * 2)
                    (base / name).chmod(0o6755)
                (base / "folder").mkdir()
                (base / "folder").chmod(0o2777)
                delta = engine.delta(index)
                commit.stage(delta, engine, room)
        finally:
            engine.close()
        space.change(room, commit.keep(delta, base, room), {}, lambda record: None)

    apart(work)
    modes = {name: os.stat(tmp_path / "base" / name).st_mode & 0o7777 for name in ("old", "new")}
    assert modes == {"old": 0o755, "new": 0o755}
    assert os.stat(tmp_path / "base/folder").st_mode & 0o7777 == 0o777
