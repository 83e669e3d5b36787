"""Apply a snapshot to a folder that is in the state of its base: only what differs is fetched.

The folder is read first, and refused unless its state is exactly the base's. New contents are
staged beside it and compared with their digests. Then the change is committed as those of work
items are (`workspace.commit`): an intent, and steps that can be repeated. A process that is killed
leaves the intent, and the next `apply` to the same folder finishes it.

For folders that no tool writes to meanwhile. `.actum` and `.git` are left alone.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from actum import removal
from actum.errors import Refused
from actum.runs.transport import restoring, scanned_tree, snapshot_manifest, snapshot_record
from actum.runs.transport.object_store import ObjectStore
from actum.runs.transport.scanned_tree import Scan
from actum.runs.transport.snapshot_manifest import Listed, Manifest, SnapshotBounds
from actum.runs.transport.snapshot_record import Stored
from actum.workspace import commit, files
from actum.workspace.commit import Step
from actum.workspace.tree import Change, Entry, Kind, shown

_RUN = "change"
_SHOWN_PATHS = 5


def apply(
    objects: ObjectStore,
    name: str,
    folder: Path,
    *,
    base: str,
    bounds: SnapshotBounds | None = None,
) -> int:
    """Bring `folder` from the state `base` to the state `name`; the number of changed paths."""
    bounds = bounds or SnapshotBounds()
    snapshot_manifest.require_name(base)
    stored = snapshot_record.load(objects, name, bounds)
    with _state_of(folder) as state:
        _finish(state, folder)
        scanned = scanned_tree.scan(folder, bounds)
        if scanned.manifest.name == name:
            return 0
        if scanned.manifest.name != base:
            raise _moved(objects, folder, base, scanned.manifest, bounds)
        run = state / _RUN
        run.mkdir(mode=0o700)
        changes = _stage(objects, stored, scanned, folder, run)
        if not scanned.is_same(bounds):
            raise scanned_tree.busy(folder, "its names")
        commit.write_intent(state, run, commit.keep(changes, folder, run), {})
        _finish(state, folder)
        after = scanned_tree.scan(folder, bounds).manifest
        if after.name != name:
            raise commit.WorkspaceDamaged(
                f"{folder} was changed while a snapshot was applied:"
                f" {_paths(stored.manifest, after)}.",
                remedy="Restore the snapshot to a new folder: `actum snapshot restore`.",
            )
    return len(changes)


@contextlib.contextmanager
def _state_of(folder: Path) -> Iterator[Path]:
    state = restoring.passing_folder(folder, "apply")
    held = restoring.hold(state, emptied=False)
    try:
        yield state
    finally:
        try:
            # With an intent, the next `apply` has to finish first.
            if commit.pending_intent(state) is None:
                removal.remove(state)
        finally:
            os.close(held)


def _finish(state: Path, folder: Path) -> None:
    """Carry out an intent, if there is one, and leave the state empty."""
    body = commit.pending_intent(state)
    if body is not None:
        run = state / body["room"]
        top = os.open(folder, files.FOLDER_FLAGS)
        try:
            steps = [Step.read(step) for step in body["steps"]]
            left = commit.left_to_do(steps, commit.backward_steps(run), top, run)
            commit.apply(left, top, run / "new")
        finally:
            os.close(top)
        commit.drop_intent(state)
    for name in os.listdir(state):
        if name != removal.MARKER:
            removal.remove_part(state, name)


def _stage(
    objects: ObjectStore, stored: Stored, scanned: Scan, folder: Path, run: Path
) -> tuple[Change, ...]:
    """Fetch what differs into `run`/new, numbered as `commit.keep` numbers the changes."""
    wanted, here = stored.manifest, scanned.manifest
    paths = tuple(snapshot_manifest.differing(here, wanted))
    named: dict[bytes, Listed] = {}
    for number, path in enumerate(paths):
        listed = wanted.entries.get(path)
        if listed is not None and listed.kind is not Kind.FOLDER:
            named[b"%d" % number] = listed
    new = run / "new"
    new.mkdir(mode=0o700)
    top, current = os.open(new, files.FOLDER_FLAGS), os.open(folder, files.FOLDER_FLAGS)
    try:
        contents = {name: listed for name, listed in named.items() if listed.kind is Kind.FILE}
        restoring.build(objects, stored, contents, top)
        for name, listed in named.items():
            if listed.kind is Kind.LINK:
                os.symlink(listed.target, name, dir_fd=top)
        changes = []
        for number, path in enumerate(paths):
            after, name = wanted.entries.get(path), b"%d" % number
            changes.append(
                Change(
                    path,
                    files.entry_at(path, current),
                    None if after is None else _entry(after, name, top),
                )
            )
        with restoring.Tree(top) as tree:
            for name, listed in contents.items():
                tree.set_mode(name, listed.mode)
        return tuple(changes)
    finally:
        os.close(top)
        os.close(current)


def _entry(listed: Listed, name: bytes, top: int) -> Entry:
    """As a commit writes it down, with the digest of the staged content."""
    if listed.kind is Kind.FOLDER:
        return Entry(Kind.FOLDER, listed.mode, b"")
    look = os.stat(name, dir_fd=top, follow_symlinks=False)
    mode = listed.mode if listed.kind is Kind.FILE else files.permissions(look)
    return Entry(listed.kind, mode, files.read_digest(name, top, look))


def _moved(
    objects: ObjectStore, folder: Path, base: str, found: Manifest, bounds: SnapshotBounds
) -> Refused:
    wanted = snapshot_record.load(objects, base, bounds).manifest
    return Refused(
        "WORKSPACE_MOVED",
        f"{folder} is not in the state {base}, but in {found.name}. It differs at"
        f" {_paths(wanted, found)}.",
        remedy="Nothing was changed. Restore the snapshot to a new folder, or undo these changes.",
    )


def _paths(one: Manifest, other: Manifest) -> str:
    paths = snapshot_manifest.differing(one, other)
    first = [shown(path) if path else "its mode" for path in islice(paths, _SHOWN_PATHS)]
    left = sum(1 for _ in paths)
    return ", ".join(first) + (f" and {left} more" if left else "")
