"""Build a folder from a snapshot that may be hostile: whole, or not at all.

The manifest is read first (`snapshot_manifest.parse`): no absolute path, no `..`, no name twice, no
name below a file or a link, no bits beyond 0777, no device, and sizes within bounds. Then the tree
is built in a passing folder beside the target:

* Folders first, each with mode 0700, opened by openat2 below the tree's own (RESOLVE_BENEATH,
  RESOLVE_NO_SYMLINKS, RESOLVE_NO_XDEV).
* Files are made with O_EXCL|O_NOFOLLOW. Two names that the file system takes for one (case folding)
  end the restore. Nothing is compressed, and each file grows by exactly the bytes of its digests.
* Links when every file is written, then modes. While anything is written, there is no link.
* The tree gets its name by one rename, when its bytes are on the disk.

A link may point anywhere, as links in a project do. Nothing here follows one.

A failed restore removes the passing folder. That of a killed one stays, with a marker, and the next
restore of the same target removes it. Owners are those of the caller.
Proved by tests/integration/transport/test_restoring.py and test_hostile_snapshots.py.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Self

from actum import kernel, removal
from actum.errors import Fault, Refused
from actum.runs.transport import content_pack, snapshot_record
from actum.runs.transport.content_pack import SMALL_BYTES
from actum.runs.transport.object_store import ObjectStore, each
from actum.runs.transport.snapshot_manifest import Listed, SnapshotBounds, invalid
from actum.runs.transport.snapshot_record import PackRef, Stored, content_key
from actum.workspace import files
from actum.workspace.tree import Kind, name_of, parent_of, shown

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OLD = os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_TREE = "tree"


class RestoreFailed(Fault):
    """The file system did not take the tree."""

    code = "SNAPSHOT_NOT_RESTORED"


def restore(
    objects: ObjectStore, name: str, target: Path, *, bounds: SnapshotBounds | None = None
) -> Stored:
    """Make `target`, which must not exist, from a snapshot."""
    stored = snapshot_record.load(objects, name, bounds or SnapshotBounds())
    if os.path.lexists(target):
        raise _in_the_way(target)
    with _mapped(target), _passing(target) as passing:
        tree = passing / _TREE
        os.mkdir(tree, 0o700)
        top = os.open(tree, files.FOLDER_FLAGS)
        try:
            build(objects, stored, stored.manifest.entries, top)
            _finish(stored.manifest.entries, top)
            kernel.syncfs(top)
            if os.path.lexists(target):
                raise _in_the_way(target)
            os.rename(tree, target)
            # After the rename: without write permission the owner could not move it.
            os.fchmod(top, stored.manifest.entries[b""].mode)
        finally:
            os.close(top)
    return stored


def build(objects: ObjectStore, stored: Stored, wanted: Mapping[bytes, Listed], top: int) -> None:
    """Write folders and files of `wanted`, a part of a snapshot, below an open empty folder."""
    places: dict[bytes, list[tuple[bytes, int]]] = defaultdict(list)
    size_of: dict[bytes, int] = {}
    with Tree(top) as tree:
        for path, listed in wanted.items():
            if listed.kind is Kind.FOLDER and path:
                os.mkdir(name_of(path), 0o700, dir_fd=tree.at(parent_of(path)))
            elif listed.kind is Kind.FILE:
                os.close(os.open(name_of(path), _NEW, 0o600, dir_fd=tree.at(parent_of(path))))
                for digest, offset, size in listed.contents():
                    places[digest].append((path, offset))
                    if size_of.setdefault(digest, size) != size:
                        raise invalid(f"one digest has two sizes, the second at {shown(path)}")
        for digest, content in _fetched(objects, stored, size_of):
            for path, offset in places.pop(digest):
                tree.write(path, offset, content)
        for path, listed in wanted.items():
            if listed.parts and tree.digest(path) != listed.digest:
                raise invalid(f"the parts of {shown(path)} are not those of its digest")


def _fetched(
    objects: ObjectStore, stored: Stored, size_of: Mapping[bytes, int]
) -> Iterator[tuple[bytes, bytes]]:
    """Each content once, compared with its digest."""
    small = {digest for digest, size in size_of.items() if size < SMALL_BYTES}
    refs = []
    for ref, pack in snapshot_record.headers(objects, stored.packs if small else ()):
        held = {each.digest for each in pack.contents if size_of.get(each.digest) == each.size}
        if not small.isdisjoint(held):
            refs.append(ref)
            small -= held
    if small:
        raise invalid(f"no pack of its record holds the content {min(small).hex()}")
    given: set[bytes] = set()
    for contents in each(lambda ref: _pack(objects, ref), refs):
        for digest, content in contents:
            if size_of.get(digest) == len(content) and digest not in given:
                given.add(digest)
                yield digest, content
    large = [(digest, size) for digest, size in size_of.items() if size >= SMALL_BYTES]
    yield from each(lambda one: (one[0], _content(objects, *one)), large)


def _pack(objects: ObjectStore, ref: PackRef) -> list[tuple[bytes, bytes]]:
    def is_right(whole: bytes) -> bool:
        header = whole[: ref.header_bytes]
        if hashlib.sha256(header).hexdigest() != ref.name:
            return False
        return content_pack.holds(content_pack.read_header(header), whole)

    whole = objects.get(ref.key, ref.size, is_right)
    pack = content_pack.read_header(whole[: ref.header_bytes])
    return list(content_pack.contents_in(pack, whole))


def _content(objects: ObjectStore, digest: bytes, size: int) -> bytes:
    return objects.get(
        content_key(digest),
        size,
        lambda content: len(content) == size and hashlib.sha256(content).digest() == digest,
    )


def _finish(entries: Mapping[bytes, Listed], top: int) -> None:
    """Links, and then modes, those of folders from below."""
    with Tree(top) as tree:
        for path, listed in entries.items():
            if listed.kind is Kind.FILE:
                tree.set_mode(path, listed.mode)
        for path, listed in entries.items():
            if listed.kind is Kind.LINK:
                os.symlink(listed.target, name_of(path), dir_fd=tree.at(parent_of(path)))
        for path in reversed(tuple(entries)):
            listed = entries[path]
            if listed.kind is Kind.FOLDER and path:
                os.fchmod(tree.at(path), listed.mode)


class Tree:
    """An open tree; the folder used last stays open."""

    def __init__(self, top: int) -> None:
        self._top = top
        self._path: bytes = b""
        self._folder = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._close()

    def _close(self) -> None:
        if self._folder >= 0:
            os.close(self._folder)
            self._folder = -1

    def at(self, path: bytes) -> int:
        """The folder at a path, open until the next call."""
        if not path:
            return self._top
        if self._folder < 0 or path != self._path:
            self._close()
            self._folder = kernel.open_within(self._top, path, files.FOLDER_FLAGS)
            self._path = path
        return self._folder

    def write(self, path: bytes, offset: int, content: bytes) -> None:
        file = os.open(name_of(path), _OLD, dir_fd=self.at(parent_of(path)))
        try:
            rest = memoryview(content)
            while rest:
                written = os.pwrite(file, rest, offset)
                rest, offset = rest[written:], offset + written
        finally:
            os.close(file)

    def digest(self, path: bytes) -> bytes:
        file = os.open(name_of(path), files.FILE_FLAGS, dir_fd=self.at(parent_of(path)))
        with os.fdopen(file, "rb") as opened:
            return hashlib.file_digest(opened, "sha256").digest()

    def set_mode(self, path: bytes, mode: int) -> None:
        file = os.open(name_of(path), _OLD, dir_fd=self.at(parent_of(path)))
        try:
            os.fchmod(file, mode)
        finally:
            os.close(file)


@contextlib.contextmanager
def _passing(target: Path) -> Iterator[Path]:
    """The passing folder of a target, for one process at a time; removed at the end."""
    passing = passing_folder(target, "restore")
    held = hold(passing)
    try:
        yield passing
    finally:
        try:
            removal.remove(passing)
        finally:
            os.close(held)


def passing_folder(target: Path, purpose: str) -> Path:
    """Beside the target, on its file system. The name is derived: the next process finds it."""
    digest = hashlib.sha256(os.fsencode(target.name)).hexdigest()[:16]
    return target.parent / f".actum-{purpose}-{digest}"


def hold(folder: Path, *, emptied: bool = True) -> int:
    """Make a marked folder, or take over one whose process died. Returns its lock."""
    while True:
        try:
            removal.make(folder)
        except FileExistsError:
            raise RestoreFailed(
                f"{folder} is in the way and was not made by Actum.", remedy="Move it away."
            ) from None
        held = os.open(folder, files.FOLDER_FLAGS)
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(held)
            raise Refused(
                "SNAPSHOT_BUSY",
                f"Another process writes to {folder}.",
                remedy="Wait until it has ended.",
            ) from None
        # The process before may have removed the folder between the two calls.
        if _is_at(folder, held) and removal.is_removable(folder):
            break
        os.close(held)
    try:
        for name in os.listdir(folder) if emptied else ():
            if name != removal.MARKER:
                removal.remove_part(folder, name)
    except BaseException:
        os.close(held)
        raise
    return held


def _is_at(folder: Path, held: int) -> bool:
    try:
        found = os.lstat(folder)
    except FileNotFoundError:
        return False
    opened = os.fstat(held)
    return (found.st_dev, found.st_ino) == (opened.st_dev, opened.st_ino)


@contextlib.contextmanager
def _mapped(target: Path) -> Iterator[None]:
    """Failures of the file system as faults with a remedy."""
    try:
        yield
    except OSError as error:
        remedy = {
            errno.ENOSPC: "Free space on that file system.",
            errno.EDQUOT: "The disk quota is used up: remove files.",
            errno.EROFS: "Choose a folder on a writable file system.",
            errno.EACCES: "Choose a folder that this user can write.",
            errno.ENOENT: "Make the parent folder first.",
            errno.EEXIST: "Two names of the snapshot are one name on that file system, which"
            " ignores case: choose another one.",
            errno.ENAMETOOLONG: "That file system takes no name so long: choose another one.",
            errno.EINVAL: "That file system takes no such name: choose another one.",
            errno.EILSEQ: "That file system takes no such name: choose another one.",
        }.get(error.errno or 0, "Check the file system and the kernel log (`dmesg`).")
        raise RestoreFailed(
            f"{target} was not made: {error.strerror}. Nothing was left behind.", remedy=remedy
        ) from error


def _in_the_way(target: Path) -> Refused:
    return Refused(
        "SNAPSHOT_TARGET_EXISTS",
        f"{target} exists.",
        remedy="A snapshot is restored to a new folder. Give a path that does not exist.",
    )
