"""The changes of one execution, folder by folder, and their form in records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from actum.contract.canonical import sha256_json
from actum.value import value
from actum.workspace.grant_layer import Layer
from actum.workspace.tree import Action, Change, Entry, shown
from actum.workspace.upper import Found


@value
class Changes:
    """The changes of one execution, folder by folder."""

    layers: tuple[tuple[Layer, Found], ...]

    def paths(self) -> Iterator[tuple[str, Change]]:
        for layer, found in self.layers:
            for change in found.delta:
                yield joined_path(layer.grant, change.path), change

    @property
    def overtaken(self) -> tuple[str, ...]:
        return tuple(
            joined_path(layer.grant, path)
            for layer, found in self.layers
            for path in found.overtaken
        )

    @property
    def left_out(self) -> tuple[str, ...]:
        return tuple(
            joined_path(layer.grant, path)
            for layer, found in self.layers
            for path in found.left_out
        )

    def count(self, action: Action) -> int:
        return sum(change.action is action for _path, change in self.paths())

    def document(self) -> list[dict[str, Any]]:
        return [
            {"grant": layer.grant, "changes": [_document(change) for change in found.delta]}
            for layer, found in self.layers
        ]

    @property
    def sha256(self) -> str:
        return sha256_json(self.document())

    def __bool__(self) -> bool:
        return any(found.delta for _layer, found in self.layers)


def joined_path(grant: str, path: bytes) -> str:
    return f"{grant}/{shown(path)}" if path else grant


def _document(change: Change) -> dict[str, Any]:
    return {
        "path": shown(change.path),
        "action": change.action.value,
        "before": entry_document(change.before),
        "after": entry_document(change.after),
    }


def entry_document(entry: Entry | None) -> list[Any] | None:
    return None if entry is None else [entry.kind.value, entry.mode, entry.digest.hex()]
