"""Whether a delta still fits a state that was changed after the delta was made.

Pure, except that it reads the index. A delta that passes can be applied, and leads exactly to the
state that `Index.preview` computes. So the check comes before the decision.
"""

from __future__ import annotations

from collections.abc import Callable

from actum.value import replace
from actum.workspace.index import Index
from actum.workspace.tree import Delta, Entry, Kind, parent_of


def in_the_way(
    delta: Delta, index: Index, is_ignored: Callable[[bytes], bool] = lambda _path: False
) -> bytes | None:
    """The first path at which the state differs from the one that `delta` started from.

    Two deltas may make the same folder, and the last one wins at a path that `is_ignored`.
    """
    after = {change.path: change.after for change in delta}
    for change in delta:
        found = index.entry(change.path)
        if not (
            _as_seen(found, change.before)
            or (_is_folder(found) and change.before is None and _is_folder(change.after))
            or (
                not any(map(_is_folder, (found, change.before, change.after)))
                and is_ignored(change.path)
            )
        ):
            return change.path
        if change.path and change.after is not None:
            parent = parent_of(change.path)
            if not _is_folder(after[parent] if parent in after else index.entry(parent)):
                return change.path  # its folder was removed meanwhile
        if _is_folder(change.before) and not _is_folder(change.after):
            for below, _entry in index.below(change.path):
                if below not in after:
                    return below  # it was added to a folder that the delta removes
    return None


def on_top(delta: Delta, index: Index) -> Delta:
    """A delta that nothing is in the way of, as a change of the state in the index."""
    return tuple(
        change
        if _as_seen(found := index.entry(change.path), change.before)
        else replace(change, before=found)
        for change in delta
    )


def _as_seen(found: Entry | None, wanted: Entry | None) -> bool:
    if found is None or wanted is None:
        return found is wanted
    if _is_folder(found):
        return found[:2] == wanted[:2]  # its entries are changes of their own
    return found == wanted


def _is_folder(entry: Entry | None) -> bool:
    return entry is not None and entry.kind is Kind.FOLDER
