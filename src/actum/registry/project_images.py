"""The images of a project and the tools that name them: `Runtime.images`.

A tool's approval covers the image that it names, so an image that an approved tool names is not
removed by accident: without it the tool is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import IO

from actum.contract.image_reference import parse_reference
from actum.errors import Refused
from actum.images.image_bounds import Bounds
from actum.images.image_store import Added, ImageStore
from actum.images.model import Image
from actum.registry.registry import Registry
from actum.value import value


@value
class Use:
    """A tool that names an image."""

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
        """The tools that name it, approved or not."""
        approved = {pin.tool_id for pin in self._registry.lock().pins}
        digests = {image.id, *image.digests}
        found = []
        for tool in self._registry.tools():
            reference = parse_reference(tool.image)
            if reference is not None and reference.digest in digests:
                is_approved = tool.tool_id in approved
                found.append(Use(tool_id=tool.tool_id, name=tool.name, is_approved=is_approved))
        return tuple(found)

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
        """Remove every image that no tool of the project names; those that were (or would be)
        removed."""
        unused = tuple(image for image in self._store.all() if not self.uses(image))
        if not dry_run:
            for image in unused:
                self._store.remove(image)
        return unused
