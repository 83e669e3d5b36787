"""Caches of the registry that outlast a process, so that fewer files are read and parsed.

| cache | holds | scope | until |
|---|---|---|---|
| tool metadata | levels 0 and 1 of each tool's adapters | project | 1 h, or `forget` |
| adapter schema | level 2: documents found well-formed | project | 24 h, or another version |

A cache entry grants no right to run: its key is the digest of a folder, and it is used only while
that digest is pinned. The files are in `.actum/`, which no tool sees. Without a folder, the cache
is in memory only.
"""

from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from actum.store.whole_file import write_whole
from actum.value import value

METADATA_S = 3_600.0
SCHEMA_S = 86_400.0

#: The files that decide whether a document is well-formed, and what is said about an adapter.
_RULES = (
    *("schemas/adapter.json", "schemas/tool.json", "load.py", "transforms.py", "coherence.py"),
    *("api_coherence.py", "disclosure.py", "queries.py", "disk_cache.py"),
)
_TOOLS, _SUMMARIES, _DOCUMENTS = "tools.json", "summaries.json", "documents"


def shape_of(registry: Path) -> str:
    """Names this code by its files. An entry of other code is not read: that code may have had
    other checks."""
    found = [os.stat(registry / name) for name in _RULES]
    return " ".join(f"{each.st_mtime_ns:x}.{each.st_size:x}" for each in found)


_SHAPE = shape_of(Path(__file__).parent)


@value
class Card:
    """Level 0 of an adapter, and its file in the tool's folder."""

    adapter_id: str
    name: str
    tool_id: str
    type: str
    path: str
    sha256: str

    @property
    def described(self) -> dict[str, str]:
        """The level 0 description."""
        return {
            "adapter_id": self.adapter_id,
            "name": self.name,
            "tool_id": self.tool_id,
            "type": self.type,
        }


@value
class ToolCard:
    """Level 0 of a tool's adapters, for the folder with this digest."""

    tool_id: str
    name: str
    digest: str
    status: str
    runner: str
    adapters: tuple[Card, ...]


class DiskCache:
    """Both caches of one project. Shared by threads, and by processes through the folder."""

    def __init__(self, folder: Path | None = None, now: Callable[[], float] = time.time) -> None:
        self._folder = folder
        self.now = now
        self._tools = _File(folder and folder / _TOOLS)
        self._summaries = _File(folder and folder / _SUMMARIES)
        self._documents: dict[str, dict[str, Any]] = {}
        self._made: dict[str, tuple[dict[str, Any], ToolCard]] = {}
        self._guard = threading.RLock()

    def card(self, tool_id: str, digest: str) -> ToolCard | None:
        """Level 0 of a tool, if cached for this digest and not expired."""
        with self._guard:
            found = self._tools.read().get(tool_id)
        if found is None or found["digest"] != digest or not self._fresh(found, METADATA_S):
            return None
        made = self._made.get(tool_id)
        if made is None or made[0] is not found:
            made = self._made[tool_id] = (found, _card(found))
        return made[1]

    def keep_cards(self, cards: Iterable[ToolCard]) -> None:
        """Level 0."""
        at = self.now()
        with self._guard:
            self._tools.add({card.tool_id: _plain(card, at) for card in cards})

    def keep_summaries(self, summaries: Mapping[str, Mapping[str, Any]], digest: str) -> None:
        """Level 1 of the adapters of the folder with this digest."""
        at = self.now()
        with self._guard:
            self._summaries.add(
                {
                    adapter_id: {"kept_at": at, "digest": digest, "summary": dict(found)}
                    for adapter_id, found in summaries.items()
                }
            )

    def summary(self, adapter_id: str, digest: str) -> dict[str, Any] | None:
        """Level 1 of an adapter, under the same conditions as level 0."""
        with self._guard:
            found = self._summaries.read().get(adapter_id)
        if found is None or found["digest"] != digest or not self._fresh(found, METADATA_S):
            return None
        summary: dict[str, Any] = found["summary"]
        return summary

    def document(self, sha256: str, version: str | None) -> dict[str, Any] | None:
        """A well-formed document with these bytes, of this version."""
        with self._guard:
            found = self._documents.get(sha256)
            if found is None and self._folder is not None:
                found = _json(self._folder / _DOCUMENTS / f"{sha256}.json")
                if found is not None:
                    self._documents[sha256] = found
        if found is None or not self._fresh(found, SCHEMA_S):
            return None
        document: dict[str, Any] = found["document"]
        return document if version in (None, document["version"]) else None

    def keep_document(self, sha256: str, document: dict[str, Any]) -> None:
        kept = {"shape": _SHAPE, "kept_at": self.now(), "document": document}
        with self._guard:
            self._documents[sha256] = kept
        if self._folder is not None:
            _write(self._folder / _DOCUMENTS / f"{sha256}.json", kept)

    def lasts(self, since: float) -> bool:
        """Whether data assembled from this cache at `since` may still be used."""
        return 0 <= self.now() - since < METADATA_S

    def forget(self) -> None:
        """Manual refresh: later requests read the tools themselves."""
        with self._guard:
            self._tools.clear()
            self._summaries.clear()
            self._documents.clear()
            if self._folder is not None:
                for path in (self._folder / _DOCUMENTS).glob("*.json"):
                    path.unlink(missing_ok=True)

    def _fresh(self, kept: Mapping[str, Any], seconds: float) -> bool:
        # A clock that was set back would otherwise prevent expiry.
        return bool(0 <= self.now() - kept["kept_at"] < seconds)


class _File:
    """A mapping in a file, read again when another process has replaced the file."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._stamp: tuple[int, int, int] | None = None
        self._values: dict[str, dict[str, Any]] = {}

    def read(self) -> dict[str, dict[str, Any]]:
        if self._path is not None:
            stamp = _stamp(self._path)
            if stamp != self._stamp:
                content = _json(self._path) or {}
                self._values, self._stamp = content.get("values", {}), stamp
        return self._values

    def add(self, values: Mapping[str, dict[str, Any]]) -> None:
        self._values = {**self.read(), **values}
        if self._path is not None:
            _write(self._path, {"shape": _SHAPE, "values": self._values})
            self._stamp = _stamp(self._path)

    def clear(self) -> None:
        self._values, self._stamp = {}, None
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def _stamp(path: Path) -> tuple[int, int, int] | None:
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _json(path: Path) -> dict[str, Any] | None:
    """The cached mapping, or nothing: an unreadable cache is an empty one."""
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) and content.get("shape") == _SHAPE else None


def _write(path: Path, content: Mapping[str, Any]) -> None:
    # On a full disk the next process reads the tools again.
    with contextlib.suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        write_whole(path, json.dumps(content).encode(), synced=False)


def _plain(card: ToolCard, at: float) -> dict[str, Any]:
    return {
        "kept_at": at,
        "tool_id": card.tool_id,
        "name": card.name,
        "digest": card.digest,
        "status": card.status,
        "runner": card.runner,
        "adapters": [
            [each.adapter_id, each.name, each.type, each.path, each.sha256]
            for each in card.adapters
        ],
    }


def _card(found: Mapping[str, Any]) -> ToolCard:
    return ToolCard(
        tool_id=found["tool_id"],
        name=found["name"],
        digest=found["digest"],
        status=found["status"],
        runner=found["runner"],
        adapters=tuple(
            Card(
                adapter_id=adapter_id,
                name=name,
                tool_id=found["tool_id"],
                type=kind,
                path=path,
                sha256=sha256,
            )
            for adapter_id, name, kind, path, sha256 in found["adapters"]
        ),
    )
