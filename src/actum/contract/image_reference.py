"""References to images: which root file system a tool's programs come from.

`host` is this host's own system directories. Every other reference names content: a repository and
the digest of a manifest (`debian@sha256:…`), or the digest of an image's configuration, its id
(`sha256:…`). A tag names whatever was pushed last, so none is accepted.
"""

from __future__ import annotations

import re

from actum.value import value

#: The image of a tool that names none.
HOST = "host"

_DIGEST = r"sha256:[0-9a-f]{64}"
_COMPONENT = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_REGISTRY = r"[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]{1,5})?"
_ID = re.compile(_DIGEST)
_PINNED = re.compile(rf"((?:{_REGISTRY}/)?{_COMPONENT}(?:/{_COMPONENT})*)@({_DIGEST})")
_LONGEST = 400

REMEDY = (
    "write host, an image id (sha256: and 64 hexadecimal digits), or a name with a digest"
    " (name@sha256:…); a tag can be moved to another image. `actum images list` shows both."
)


@value
class ImageReference:
    """One of the two forms that name content."""

    name: str  #: repository, for people; empty for an image id
    digest: str  #: of the configuration, or with a name of the manifest or index

    @property
    def is_id(self) -> bool:
        return not self.name

    def __str__(self) -> str:
        return f"{self.name}@{self.digest}" if self.name else self.digest


@value
class RootImage:
    """An image as the root of one plan. Its digest is part of the plan's proof."""

    id: str  #: digest of its configuration, which names the digest of each layer
    reference: str  #: as tool.yaml names it
    #: The unpacked tree on this host, with its device and inode; a runner whose engine has the
    #: image itself does not use it.
    folder: str
    device: int
    inode: int


def parse_reference(text: str) -> ImageReference | None:
    """``None`` for `host`. Raises `ValueError` with the reason for a text that names no content."""
    if text == HOST:
        return None
    if len(text) <= _LONGEST:
        if _ID.fullmatch(text):
            return ImageReference(name="", digest=text)
        pinned = _PINNED.fullmatch(text)
        if pinned is not None:
            return ImageReference(name=pinned[1], digest=pinned[2])
    raise ValueError(REMEDY)
