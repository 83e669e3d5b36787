"""`actum images`: the images that tools run in: add, list, show, remove."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from actum.doors.cli import command_table, exit_codes, table, terminal

if TYPE_CHECKING:
    from actum.images.model import Image
    from actum.registry.project_images import Use


@click.group("images", cls=command_table.Group)
def command() -> None:
    """Root file systems for tools: add, list, show, remove."""


@command.command("add")
@click.argument(
    "source", type=click.Path(path_type=Path, exists=True, allow_dash=True), metavar="DIR|FILE|-"
)
@click.option("--image", default="", metavar="NAME", help="Which image of the archive: its name.")
def add_image(source: Path, image: str) -> int:
    """Add an image: an OCI layout (folder or archive), the output of `docker save`, or an archive
    of a root file system. `-` reads from stdin.

    Every digest is verified. The image is unpacked once, and no name, link or device in it reaches
    anything outside. Prints what tool.yaml writes as `image`.
    """
    with command_table.open_runtime() as runtime:
        given = sys.stdin.buffer if str(source) == "-" else source
        added = runtime.images.add(given, image=image)
    if command_table.wants_json():
        terminal.document({**added.image.document(), "is_new": added.is_new})
        return exit_codes.SUCCESS
    terminal.line(f"image {added.image.reference}")
    if not added.is_new:
        terminal.aside("actum: the image was here already.")
        return exit_codes.SUCCESS
    terminal.aside(
        f"actum: added {added.image.files} files, {added.image.size_bytes >> 20} MiB."
        f"{_changed(added.image)}"
    )
    return exit_codes.SUCCESS


def _changed(image: Image) -> str:
    said = ""
    if image.left_out:
        said += f" Left out {image.left_out} devices, fifos or sockets."
    if image.masked:
        said += f" Removed setuid, setgid or sticky bits of {image.masked}."
    return said


@command.command("list")
def list_images() -> int:
    """List every image, the last added first."""
    with command_table.open_runtime() as runtime:
        images = runtime.images.list()
        uses = [runtime.images.uses(image) for image in images]
    if command_table.wants_json():
        terminal.document(
            {
                "images": [
                    {**image.document(), "tools": _documents(used)}
                    for image, used in zip(images, uses, strict=True)
                ]
            }
        )
        return exit_codes.SUCCESS
    table.show(
        (table.whole("IMAGE"), "NAMES", "SIZE", "ADDED", "TOOLS"),
        [
            (
                image.reference,
                ", ".join(image.names) or "-",
                f"{image.size_bytes >> 20} MiB",
                image.added_at,
                ", ".join(use.name for use in used) or "-",
            )
            for image, used in zip(images, uses, strict=True)
        ],
    )
    return exit_codes.SUCCESS


@command.command("show")
@click.argument("image", metavar="IMAGE")
def show_image(image: str) -> int:
    """Show one image: its digests, layers, platform, and the tools that run in it.

    IMAGE is an id or its beginning, what tool.yaml writes, a digest, or a name.
    """
    with command_table.open_runtime() as runtime:
        found = runtime.images.show(image)
        used = runtime.images.uses(found)
    document = {**found.document(), "tools": _documents(used)}
    if command_table.wants_json():
        terminal.document(document)
    else:
        terminal.readable(document)
    return exit_codes.SUCCESS


@command.command("remove")
@click.argument("image", metavar="IMAGE")
@click.option("--force", is_flag=True, help="Also an image that an approved tool runs in.")
def remove_image(image: str, force: bool) -> int:
    """Remove one image. Its tools are refused until it is added again."""
    with command_table.open_runtime() as runtime:
        removed = runtime.images.remove(image, force=force)
    if command_table.wants_json():
        terminal.document(removed.document())
    else:
        terminal.line(f"removed {removed.id}")
    return exit_codes.SUCCESS


@command.command("gc")
@click.option("--dry-run", is_flag=True, help="Show what would be removed; remove nothing.")
def collect_images(dry_run: bool) -> int:
    """Remove every image that no tool of the project names or is approved for."""
    with command_table.open_runtime() as runtime:
        removed = runtime.images.gc(dry_run=dry_run)
    size = sum(image.size_bytes for image in removed)
    if command_table.wants_json():
        documents = [image.document() for image in removed]
        terminal.document({"images": documents, "bytes": size, "dry_run": dry_run})
        return exit_codes.SUCCESS
    for image in removed:
        terminal.line(image.id)
    would = "would be " if dry_run else ""
    terminal.line(f"{len(removed)} images {would}removed, {size} bytes.")
    return exit_codes.SUCCESS


def _documents(uses: tuple[Use, ...]) -> list[dict[str, object]]:
    return [{"tool_id": use.tool_id, "name": use.name, "approved": use.is_approved} for use in uses]
