"""Whether a delta still fits a state that others have changed since it was made.

Pure but for reading the index. What it lets through can be applied, and leads to exactly the state
that `Index.preview` foretells; so it is asked before anything is decided.
"""

from __future__ import annotations

from actum.workspace.index import Index
from actum.workspace.tree import Delta, Entry, Kind, parent_of


def in_the_way(delta: Delta, index: Index) -> bytes | None:
    """The first path at which `delta` would meet something that it has not seen."""
    after = {change.path: change.after for change in delta}
    for change in delta:
        if not _as_seen(index.entry(change.path), change.before):
            return change.path
        if change.path and change.after is not None:
            parent = parent_of(change.path)
            if not _is_folder(after[parent] if parent in after else index.entry(parent)):
                return change.path  # its folder went meanwhile
        if _is_folder(change.before) and not _is_folder(change.after):
            for below, _entry in index.below(change.path):
                if below not in after:
                    return below  # it came into a folder that goes
    return None


def _as_seen(found: Entry | None, wanted: Entry | None) -> bool:
    if found is None or wanted is None:
        return found is wanted
    if _is_folder(found):
        return found[:2] == wanted[:2]  # what is in it are changes of their own
    return found == wanted


def _is_folder(entry: Entry | None) -> bool:
    return entry is not None and entry.kind is Kind.FOLDER
