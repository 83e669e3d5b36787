"""The snapshots of a project in one store: save, show, restore, expire."""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from actum.errors import Refused
from actum.runs.transport import object_expiry, restoring, saving, snapshot_record
from actum.runs.transport.object_expiry import Expired
from actum.runs.transport.object_store import ObjectStore, StoreAddress, folder_of
from actum.runs.transport.saving import Saved
from actum.runs.transport.snapshot_manifest import SnapshotBounds
from actum.runs.transport.snapshot_record import Stored


class Snapshots:
    """One store, and the project whose folder is saved there."""

    def __init__(
        self,
        address: StoreAddress,
        root: Path,
        reading: Callable[[], AbstractContextManager[Any]],
    ) -> None:
        """`reading` holds the lock under which no change to the project is committed."""
        self._address = address
        self._root = root
        self._reading = reading

    def save(self, *, base: str = "") -> Saved:
        """Save the project's folder as it is. `base` names a similar snapshot in the same store."""
        objects = self._opened(make=True)
        with self._reading():
            return saving.save(self._root, objects, base=base)

    def show(self, name: str) -> Stored:
        return snapshot_record.load(self._opened(), name, SnapshotBounds())

    def restore(self, name: str, target: Path) -> Stored:
        """Make a folder from a snapshot, outside of the project."""
        target = target.parent.resolve() / target.name
        if target.is_relative_to(self._root):
            raise Refused(
                "SNAPSHOT_TARGET_INSIDE",
                f"{target} is in the project, where tools can write while it is made.",
                remedy="Give a path outside of the project.",
            )
        return restoring.restore(self._opened(), name, target)

    def expire(self, keep: Collection[str], *, older_than_s: int, dry_run: bool = False) -> Expired:
        """Remove what is older than an age and what no kept snapshot needs."""
        objects = self._opened()
        return object_expiry.expire(objects, keep, older_than_s=older_than_s, dry_run=dry_run)

    def _opened(self, *, make: bool = False) -> ObjectStore:
        folder = folder_of(self._address)
        if folder is not None and folder.resolve().is_relative_to(self._root):
            raise Refused(
                "OBJECT_STORE_INVALID",
                f"{folder} is in the project, whose tools could change what is stored.",
                remedy="Give a folder outside of the project.",
            )
        return ObjectStore(self._address, make=make)
