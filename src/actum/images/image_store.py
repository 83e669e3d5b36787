"""The images of a project: `.actum/images/`, one folder for each, named by its digest.

An image is built in a folder with a passing name and gets its own by one rename, after every digest
was compared. So a killed process leaves it absent or whole; the next change removes what is left of
it. A lock orders those who change the store. Who uses an image holds a lock of its own, and an
image in use is not removed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from actum import kernel, removal
from actum.contract.image_reference import ImageReference, RootImage
from actum.errors import Fault, Refused
from actum.images.image_bounds import Bounds, shown
from actum.images.model import Image
from actum.store.whole_file import write_whole
from actum.value import replace, value

if TYPE_CHECKING:
    from actum.images.image_intake import Intake
    from actum.images.manifests import Description

_RECORD, _ROOT, _LOCK = "image.json", "root", ".lock"
_NAME = re.compile(r"[0-9a-f]{64}")
_LEAST_PREFIX = 6
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
#: The host's own errors that the archive's content causes: it names more than a file system takes.
_OF_ARCHIVE = (errno.EMLINK, errno.ENAMETOOLONG, errno.EINVAL)


class ImageStoreFailed(Fault):
    """The file system did not take the image, or does not hold it as it was written."""

    code = "IMAGE_STORE_FAILED"


@value
class Added:
    image: Image
    is_new: bool


class ImageStore:
    """The images below `home`. Safe to share by threads and processes."""

    def __init__(self, home: Path) -> None:
        self.folder = home / "images"
        #: Digest of a manifest -> id of its image. Never wrong: the one is computed from the other.
        self._known: dict[str, str] = {}

    # -- reading -----------------------------------------------------------------------------------

    def all(self) -> tuple[Image, ...]:
        """Every image, the last added first."""
        found = [self._read(name) for name in self._names()]
        images = [image for image in found if image is not None]
        return tuple(sorted(images, key=lambda image: (image.added_at, image.id), reverse=True))

    def get(self, text: str) -> Image:
        """The image with this id, digest, reference or name; the beginning of an id is enough."""
        images = self.all()
        exact = [each for each in images if _is_called(each, text)]
        prefix = text.removeprefix("sha256:")
        if not exact and len(prefix) >= _LEAST_PREFIX:
            exact = [each for each in images if each.id.removeprefix("sha256:").startswith(prefix)]
        if len(exact) == 1:
            return exact[0]
        what = shown(os.fsencode(text))
        if exact:
            listed = ", ".join(each.id for each in exact)
            raise Refused(
                "IMAGE_AMBIGUOUS",
                f"{what} names several images: {listed}.",
                remedy="Give the id of one.",
            )
        raise Refused(
            "IMAGE_UNKNOWN",
            f"There is no image {what} in this project.",
            remedy="`actum images list` lists all images.",
        )

    def find(self, reference: ImageReference) -> RootImage | None:
        """The unpacked tree of an image, for a plan; ``None`` if it was not added."""
        digest = reference.digest
        id_, root = digest, self._root(digest)
        if root is None:
            id_ = self._known.get(digest) or self._named(digest)
            root = self._root(id_) if id_ else None
        if root is None:
            return None
        return RootImage(
            id=id_,
            reference=str(reference),
            folder=root[0],
            device=root[1].st_dev,
            inode=root[1].st_ino,
        )

    def _named(self, digest: str) -> str:
        for image in self.all():
            self._known.update(dict.fromkeys(image.digests, image.id))
        return self._known.get(digest, "")

    def _root(self, id_: str) -> tuple[str, os.stat_result] | None:
        path = f"{self.folder}/{id_.removeprefix('sha256:')}/{_ROOT}"
        try:
            return path, os.lstat(path)
        except OSError:
            return None

    def _names(self) -> list[str]:
        try:
            return sorted(name for name in os.listdir(self.folder) if _NAME.fullmatch(name))
        except FileNotFoundError:
            return []

    def _read(self, name: str) -> Image | None:
        """``None`` for an image that is being removed."""
        path = self.folder / name / _RECORD
        try:
            read = json.loads(path.read_bytes())
            return _image(read, f"{self.folder}/{name}/{_ROOT}")
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise ImageStoreFailed(
                f"{path} is not what Actum wrote ({error}).",
                remedy=f"Remove {path.parent} and add the image again.",
            ) from error

    # -- changing ----------------------------------------------------------------------------------

    def add(
        self,
        source: Path | IO[bytes],
        *,
        at: datetime,
        image: str = "",
        bounds: Bounds | None = None,
    ) -> Added:
        """Add the image of an OCI layout, a `docker save` archive or a root file system archive.

        `source` is a folder, a file, or an open stream. `image` chooses one of several in it.
        """
        from actum.images.image_intake import opened  # reads archives; no execution does

        try:
            with (
                self._changing(),
                opened(source, self.folder, image, bounds or Bounds()) as intake,
            ):
                described = intake.described
                if described is not None and (known := self._read(_folder_of(described.id))):
                    return Added(image=self._renamed(known, described), is_new=False)
                return self._build(intake, at)
        except OSError as error:
            if error.errno in _OF_ARCHIVE:
                raise Refused(
                    "IMAGE_INVALID",
                    f"The image was not added: the file system takes no such name ({error}).",
                    remedy="Make the archive again, or get it again from its source.",
                ) from error
            raise ImageStoreFailed(
                f"The image was not added: {error}.",
                remedy="Make room in the file system of the project.",
            ) from error

    def _build(self, intake: Intake, at: datetime) -> Added:
        passing = self.folder / f".new-{os.urandom(8).hex()}"
        removal.make(passing)
        try:
            image = intake.unpack(passing, at)
            write_whole(passing / _RECORD, _record(image), synced=False)
            # The whole file system in one call, in place of a sync for each of its files.
            _at(passing, kernel.syncfs)
            name = _folder_of(image.id)
            known = self._read(name)
            if known is not None:  # a plain archive, whose id was not known before
                removal.remove(passing)
                return Added(image=known, is_new=False)
            os.rename(passing, self.folder / name)
            _at(self.folder, os.fsync)
        except BaseException:
            removal.remove(passing)
            raise
        return Added(image=replace(image, folder=f"{self.folder}/{name}/{_ROOT}"), is_new=True)

    def _renamed(self, known: Image, described: Description) -> Image:
        """The image that is here already, with what this archive calls it."""
        image = replace(
            known,
            digests=tuple(dict.fromkeys((*known.digests, *described.digests))),
            names=tuple(dict.fromkeys((*known.names, *described.names))),
        )
        if image != known:
            path = self.folder / _folder_of(image.id) / _RECORD
            write_whole(path, _record(image), synced=True)
        return image

    def remove(self, image: Image) -> None:
        """Remove an image that no sandbox uses."""
        with self._changing():
            path = self.folder / _folder_of(image.id)
            try:
                held = os.open(path, _FOLDER)
            except FileNotFoundError:
                return
            try:
                self._remove_unused(image, path, held)
            finally:
                os.close(held)  # not before: the lock keeps those out who start meanwhile

    def _remove_unused(self, image: Image, path: Path, held: int) -> None:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Refused(
                "IMAGE_IN_USE",
                f"The image {image.id} was not removed: a tool runs in it.",
                remedy="Try again when the tool has ended.",
            ) from None
        passing = self.folder / f".old-{os.urandom(8).hex()}"
        os.rename(path, passing)
        removal.remove(passing)

    @contextlib.contextmanager
    def _changing(self) -> Iterator[None]:
        os.makedirs(self.folder, 0o700, exist_ok=True)
        lock = os.open(self.folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            # Nobody else changes anything now: these are of processes that were killed.
            for name in os.listdir(self.folder):
                if name.startswith((".new-", ".old-")):
                    removal.remove(self.folder / name)
            yield
        finally:
            os.close(lock)


@contextlib.contextmanager
def in_use(image: RootImage | None) -> Iterator[None]:
    """Hold an image while a sandbox uses it. Refuses one that was removed since the plan."""
    if image is None:
        yield
        return
    folder = os.path.dirname(image.folder)
    try:
        held = os.open(folder, _FOLDER)
    except OSError:
        raise missing(image.reference) from None
    try:
        try:
            fcntl.flock(held, fcntl.LOCK_SH | fcntl.LOCK_NB)
            # It may have been removed between the open and the lock.
            if not os.path.samestat(os.fstat(held), os.stat(folder, follow_symlinks=False)):
                raise missing(image.reference)
        except (BlockingIOError, FileNotFoundError):
            raise missing(image.reference) from None
        yield
    finally:
        os.close(held)


def missing(reference: str, tool: str = "") -> Refused:
    of = f" of {tool}" if tool else ""
    return Refused(
        "IMAGE_MISSING",
        f"The image {reference}{of} is not in this project.",
        remedy="Add it: `actum images add ARCHIVE`, with an OCI layout, the output of"
        f" `docker save {reference}`, or a root file system archive.",
    )


def _is_called(image: Image, text: str) -> bool:
    digest = text.rpartition("@")[2]
    return text in (image.id, image.reference, *image.names) or digest in image.digests


def _folder_of(id_: str) -> str:
    return id_.removeprefix("sha256:")


def _at(folder: Path, call: Callable[[int], None]) -> None:
    opened = os.open(folder, _FOLDER)
    try:
        call(opened)
    finally:
        os.close(opened)


def _record(image: Image) -> bytes:
    document = image.document()
    del document["folder"], document["reference"]
    return json.dumps(document, indent=1).encode() + b"\n"


def _image(read: dict[str, Any], folder: str) -> Image:
    return Image(
        id=str(read["id"]),
        digests=tuple(map(str, read["digests"])),
        names=tuple(map(str, read["names"])),
        platform=str(read["platform"]),
        layers=tuple(map(str, read["layers"])),
        files=int(read["files"]),
        size_bytes=int(read["size_bytes"]),
        masked=int(read["masked"]),
        left_out=int(read["left_out"]),
        added_at=str(read["added_at"]),
        folder=folder,
    )
