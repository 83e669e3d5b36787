"""The layer over one writable folder, and the folder below it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

from actum import kernel
from actum.errors import Fault
from actum.runners.layers import COPY
from actum.value import value
from actum.workspace import files
from actum.workspace.placed import Placed


@value
class Layer:
    """Where the changes of one writable folder go."""

    grant: str
    folder: str
    #: The upper layer's content before the tool starts: sealed inputs and the folders above them.
    placed: tuple[Placed, ...] = ()

    @property
    def copy(self) -> str:
        return f"{self.folder}/{COPY}"

    @property
    def is_copy(self) -> bool:
        """Whether the tool works on a copy of the folder instead of an overlay."""
        return os.path.isdir(self.copy)

    @property
    def tree(self) -> str:
        """The folder that holds the tool's writes."""
        return self.copy if self.is_copy else f"{self.folder}/upper"


@contextlib.contextmanager
def opened(folder: str) -> Iterator[int]:
    descriptor = kernel.open_exact(folder, files.FOLDER_FLAGS)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def opened_base(layer: Layer) -> Iterator[int]:
    """Open the folder below the layer. The tool has run, so a failure is a fault, not a refusal."""
    try:
        descriptor = kernel.open_exact(layer.grant, files.FOLDER_FLAGS)
    except OSError as error:
        raise _moved(layer, error) from error
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def base_of(layer: Layer) -> os.stat_result:
    try:
        return os.stat(layer.grant, follow_symlinks=False)
    except OSError as error:
        raise _moved(layer, error) from error


def _moved(layer: Layer, error: OSError) -> Fault:
    return Fault(
        f"{layer.grant} was moved or removed while the tool ran, so the tool's changes cannot be"
        f" committed: {error.strerror}.",
        remedy="Run again once nothing moves the folder.",
    )
