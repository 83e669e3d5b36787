"""One image on its way into the store: its archive opened, described and unpacked.

Compares every digest that the archive names. Gives no image its name and writes no record: the
store does, once the image is whole.
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import IO

from actum import removal
from actum.errors import Refused
from actum.images.bounded_stream import BoundedStream, Budget
from actum.images.image_archive import Files, FolderFiles, TarFiles, seekable
from actum.images.image_bounds import Bounds, invalid, shown
from actum.images.manifests import Description, plain_image, read_image, require_layer
from actum.images.model import Image
from actum.images.unpacking import Unpacking

_ROOT, _CONTENTS = "root", "contents"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@contextlib.contextmanager
def opened(source: Path | IO[bytes], store: Path, image: str, bounds: Bounds) -> Iterator[Intake]:
    """The image called `image` in `source`, or the only one. `source` is a folder, a file, or an
    open stream; a stream that cannot seek is copied into `store` first."""
    budget = Budget(bounds)
    with _files(source, store, budget) as files:
        yield Intake(files, read_image(files, bounds, image), budget)


@contextlib.contextmanager
def _files(source: Path | IO[bytes], store: Path, budget: Budget) -> Iterator[Files]:
    with contextlib.ExitStack() as opened:
        if isinstance(source, Path):
            try:
                found = os.open(source, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            except OSError as error:
                raise Refused(
                    "IMAGE_UNREADABLE",
                    f"{shown(os.fsencode(source))} cannot be read: {error.strerror}.",
                    remedy="Give an OCI layout, an archive, or - for stdin.",
                ) from error
            kind = os.fstat(found).st_mode
            if stat.S_ISDIR(kind):
                opened.callback(os.close, found)
                yield FolderFiles(found)
                return
            os.set_blocking(found, True)
            source = opened.enter_context(os.fdopen(found, "rb"))
            if not (stat.S_ISREG(kind) or stat.S_ISFIFO(kind)):
                raise invalid("it is no file, folder or pipe")
        archive = opened.enter_context(seekable(source, str(store), budget.bounds))
        yield TarFiles(archive, budget)


class Intake:
    """One image of an open archive."""

    def __init__(self, files: Files, described: Description | None, budget: Budget) -> None:
        self.described = described  #: ``None`` for a plain root file system
        self._files = files
        self._budget = budget

    def unpack(self, folder: Path, at: datetime) -> Image:
        """Unpack the image into `folder`, which is marked as removable."""
        described = self.described
        with contextlib.ExitStack() as opened:
            inside = []
            for name in (_CONTENTS, _ROOT):
                os.mkdir(folder / name, 0o700)
                inside.append(os.open(folder / name, _FOLDER))
                opened.callback(os.close, inside[-1])
            unpacking = Unpacking(inside[0], inside[1], self._budget.bounds)
            if described is None:
                described = self._plain(unpacking)
            else:
                for layer in described.layers:
                    with self._files.open(layer.name) as (file, size):
                        digests = unpacking.add_layer(BoundedStream(file, size, self._budget))
                    require_layer(layer, size, *digests)
            names, size_bytes = unpacking.place()
            if not names:
                raise invalid("it has no files")
            removal.remove_part(folder, _CONTENTS)
        return Image(
            id=described.id,
            digests=described.digests,
            names=described.names,
            platform=described.platform,
            layers=tuple(layer.content_digest for layer in described.layers),
            files=names,
            size_bytes=size_bytes,
            masked=unpacking.tree.masked,
            left_out=unpacking.tree.left_out,
            added_at=at.isoformat(timespec="seconds").replace("+00:00", "Z"),
            folder="",
        )

    def _plain(self, unpacking: Unpacking) -> Description:
        if isinstance(self._files, FolderFiles):
            raise Refused(
                "IMAGE_INVALID",
                "The image was not added: the folder is no OCI layout (it has no index.json).",
                remedy="Pack a root file system first: `tar -C FOLDER -c . | actum images add -`.",
            )
        assert isinstance(self._files, TarFiles)  # noqa: S101 -- the other form
        with self._files.whole() as (file, size):
            _, content = unpacking.add_layer(BoundedStream(file, size, self._budget))
        return plain_image(content)
