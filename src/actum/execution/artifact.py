"""Collected files of a result: their bytes from the store, by name.

The tool chose the names. A name is a label here, and no path of the host is made of it: the caller
of `save` chooses the path.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from actum import kernel
from actum.contract.canonical import sha256_bytes
from actum.errors import Refused, VerificationFailed
from actum.store.blobs import BlobStore
from actum.store.whole_file import link_whole
from actum.value import field, value

#: Types of the collected files of a snippet: its value, and what it wrote in its working directory.
VALUE_TYPE = "snippet-value"
WORKING_TYPE = "working-file"

#: The content of a collected file, by its BLAKE3.
Contents = Callable[[str], bytes]


@value
class ArtifactRef:
    """A collected file, by reference; its bytes are in the evidence store under `blake3`."""

    name: str  #: as declared; for a file that is not, the last part of its path
    path: str
    type: str  #: as declared; ``file`` otherwise
    size: int
    sha256: str
    blake3: str
    trace_id: str
    kind: str = ""  #: ``artifact`` or ``output_file``; empty in results of older versions
    contents: Contents | None = field(default=None, compare=False, repr=False)

    def document(self) -> dict[str, str | int]:
        return {
            "name": self.name,
            "path": self.path,
            "type": self.type,
            "size": self.size,
            "sha256": self.sha256,
            "blake3": self.blake3,
            "trace_id": self.trace_id,
            "kind": self.kind,
        }

    def read(self) -> bytes:
        """Its bytes, compared with both digests. Raises `Refused` once the runtime is closed."""
        if self.contents is None:
            raise Refused(
                "RUNTIME_CLOSED",
                f"{self.path}: this result was not made by an open runtime.",
                remedy="Read it with `Runtime.evidence`, or `actum evidence get`.",
            )
        content = self.contents(self.blake3)
        if sha256_bytes(content) != self.sha256:
            raise VerificationFailed(
                f"The evidence {self.blake3} does not have the SHA-256 of its record.",
                remedy="`actum verify --all` compares everything.",
            )
        return content

    def text(self) -> str:
        """Its bytes as UTF-8."""
        return self.read().decode()

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> Path:
        """Write its bytes to `path`, in one step, and return that path.

        No symbolic link is followed, in no part of the path: a tool may have planted it. An
        existing file is replaced only with `overwrite`. Raises `Refused` otherwise.
        """
        content = self.read()
        target = Path(os.path.abspath(path))
        try:
            folder = kernel.open_exact(str(target.parent), os.O_PATH | os.O_DIRECTORY)
        except OSError as error:
            raise _not_saved(target, error) from error
        try:
            link_whole(folder, target.name, content, replace=overwrite)
        except OSError as error:
            raise _not_saved(target, error) from error
        finally:
            os.close(folder)
        return target


def _not_saved(target: Path, error: OSError) -> Refused:
    what, remedy = os.strerror(error.errno or 0), "Check the path and its permissions."
    if error.errno == errno.ELOOP:
        what = "there is a symbolic link in it"
        remedy = f"Give the path without links, if you mean it: {os.path.realpath(target)}."
    elif error.errno == errno.EEXIST:
        what, remedy = "it exists already", "Pass overwrite=True, or another path."
    if target.is_dir() and not stat.S_ISLNK(target.lstat().st_mode):
        what, remedy = "it is a folder", f"Name the file: {target}/NAME."
    return Refused("FILE_NOT_SAVED", f"path: {target} was not written: {what}.", remedy=remedy)


class OutputFiles(Mapping[str, ArtifactRef]):
    """The files that a tool produced, by name; see `Result.files`."""

    def __init__(
        self, artifacts: tuple[ArtifactRef, ...], left_out: tuple[tuple[str, int, str], ...]
    ) -> None:
        self._left_out = {path: (size, why) for path, size, why in left_out}
        self._files = {each.path: each for each in artifacts if each.type != VALUE_TYPE}
        for each in artifacts:
            if each.type == WORKING_TYPE and each.name not in self._files:
                self._files[each.name] = self._files.pop(each.path)

    def __getitem__(self, name: str) -> ArtifactRef:
        found = self._files.get(name)
        if found is not None:
            return found
        if name in self._left_out:
            size, why = self._left_out[name]
            raise KeyError(f"{name} ({size} bytes) was not collected: {why}")
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._files)

    def __len__(self) -> int:
        return len(self._files)

    def __repr__(self) -> str:
        return f"OutputFiles({[*self._files]})"


def contents_of(blobs: BlobStore) -> Contents:
    def read(blake3: str) -> bytes:
        if blobs.closed:
            raise Refused(
                "RUNTIME_CLOSED",
                "The runtime of this result is closed, and its files cannot be read any more.",
                remedy="Read or save files before. In a project that stays, `actum evidence get`"
                " has them.",
            )
        return blobs.read(blake3)

    return read
