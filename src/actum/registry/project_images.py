"""The images of a project and the tools that name them: `Runtime.images`.

A tool's approval covers the image that it names, so an image that an approved tool names is not
removed by accident: without it the tool is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Container
from datetime import datetime
from pathlib import Path
from typing import IO

from actum.contract.image_reference import parse_reference
from actum.contract.model import Json
from actum.errors import Refused
from actum.images.image_bounds import Bounds
from actum.images.image_store import Added, ImageStore
from actum.images.model import Image
from actum.registry.registry import Registry
from actum.value import value


@value
class Use:
    """A tool that names an image, or is approved to run in it."""

    tool_id: str
    name: str
    is_approved: bool


class ProjectImages:
    """Add, list, show and remove images."""

    def __init__(
        self, store: ImageStore, registry: Registry, clock: Callable[[], datetime]
    ) -> None:
        self._store, self._registry, self._clock = store, registry, clock

    def add(
        self, source: Path | str | IO[bytes], *, image: str = "", bounds: Bounds | None = None
    ) -> Added:
        """Add the image of an OCI layout, a `docker save` archive or a root file system archive:
        a folder, a file, or an open stream. `image` chooses one of several in an archive.

        Raises `Refused` for an image that is malformed, has another digest than it says, exceeds
        the bounds, or is for another platform. Then nothing is added.
        """
        source = Path(source) if isinstance(source, str) else source
        return self._store.add(source, at=self._clock(), image=image, bounds=bounds)

    def list(self) -> tuple[Image, ...]:
        """Every image, the last added first."""
        return self._store.all()

    def show(self, image: str) -> Image:
        """The image with this id, beginning of an id, reference, digest or name."""
        return self._store.get(image)

    def uses(self, image: Image) -> tuple[Use, ...]:
        """The tools that name it, and those that are approved to run in it: an approval stays
        when the folder of its tool is edited or missing for a while."""
        digests = {image.id, *image.digests}
        approved = {
            pin.tool_id: pin.name
            for pin in self._registry.lock().pins
            if _is_named(pin.grants.get("image"), digests)
        }
        named = {
            tool.tool_id: tool.name
            for tool in self._registry.tools()
            if _is_named([tool.image], digests)
        }
        return tuple(
            Use(tool_id=tool_id, name=name, is_approved=tool_id in approved)
            for tool_id, name in sorted((named | approved).items())
        )

    def remove(self, image: str, *, force: bool = False) -> Image:
        """Remove an image. Without `force`, one that an approved tool names is kept and refused."""
        found = self._store.get(image)
        names = [use.name for use in self.uses(found) if use.is_approved]
        if names and not force:
            raise Refused(
                "IMAGE_PINNED",
                f"The image {found.id} was not removed: {', '.join(names)} runs in it.",
                remedy="Approve the tool with another image first, or give --force; the tool is"
                " refused until the image is added again.",
            )
        self._store.remove(found)
        return found

    def gc(self, *, dry_run: bool = False) -> tuple[Image, ...]:
        """Remove every image that no tool of the project names or is approved for; those that were
        (or would be) removed."""
        unused = tuple(image for image in self._store.all() if not self.uses(image))
        if not dry_run:
            for image in unused:
                self._store.remove(image)
        return unused


def _is_named(references: Json, digests: Container[str]) -> bool:
    """Whether one of these references names one of these digests."""
    listed = references if isinstance(references, list | tuple) else ()
    found = [parse_reference(each) for each in listed if isinstance(each, str)]
    return any(each is not None and each.digest in digests for each in found)
