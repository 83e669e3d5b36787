"""The bounds of one image. An image is made elsewhere: each of these ends the reading."""

from __future__ import annotations

from actum.errors import Refused
from actum.value import value


@value
class Bounds:
    """The largest image that is unpacked. All layers together, superseded files included."""

    content_bytes: int = 16 << 30
    entries: int = 250_000  #: names in archives, and folders that they imply
    layers: int = 128
    ratio: int = 200  #: unpacked to compressed bytes, beyond `at_ease_bytes`
    at_ease_bytes: int = 64 << 20
    depth: int = 128  #: components of a path
    path_bytes: int = 3_000  #: below the folder of the image, whose own path is added to it
    top_names: int = 128  #: the sandbox mounts each of them
    header_bytes: int = 1 << 20  #: of the extended headers of one entry
    document_bytes: int = 4 << 20  #: of an index, a manifest or a configuration
    manifests: int = 64
    seconds: float = 900.0
    link_steps: int = 2_000_000  #: components of links that paths lead through


def too_large(what: str) -> Refused:
    return Refused(
        "IMAGE_TOO_LARGE",
        f"The image was not added: {what}.",
        remedy="docs/images.md lists the bounds. Remove what the tool does not need.",
    )


def invalid(what: str) -> Refused:
    return Refused(
        "IMAGE_INVALID",
        f"The image was not added: {what}.",
        remedy="Make the archive again, or get it again from its source.",
    )


def shown(name: bytes | str) -> str:
    """A name of an archive in a message: one line, no control character, shortened."""
    if isinstance(name, str):  # JSON can hold half a character
        name = name.encode("utf-8", "backslashreplace")
    text = name[:120].decode("utf-8", "backslashreplace")
    text = "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode()
        for letter in text
    )
    return f"{text}…" if len(name) > 120 else text
