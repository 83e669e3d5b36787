"""Whether a delta still fits a state that was changed after the delta was made.

Pure, except that it reads the index. A delta that passes can be applied, and leads exactly to the
state that `Index.preview` computes. So the check comes before the decision.
"""

from __future__ import annotations

from actum.workspace.index import Index
from actum.workspace.tree import Delta, Entry, Kind, parent_of


def in_the_way(delta: Delta, index: Index) -> bytes | None:
    """The first path at which the state differs from the one that `delta` started from."""
    after = {change.path: change.after for change in delta}
    for change in delta:
        if not _as_seen(index.entry(change.path), change.before):
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


def _as_seen(found: Entry | None, wanted: Entry | None) -> bool:
    if found is None or wanted is None:
        return found is wanted
    if _is_folder(found):
        return found[:2] == wanted[:2]  # its entries are changes of their own
    return found == wanted


def _is_folder(entry: Entry | None) -> bool:
    return entry is not None and entry.kind is Kind.FOLDER
