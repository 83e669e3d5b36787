"""Decides whether a tool and an adapter may be used, and which files they are.

A file on disk grants no right to run. `Registry.entry` returns an `Entry` only when the folder is
byte for byte what a trusted key has pinned and everything in it is active; the entry is parsed
from the very bytes that were compared. The registry executes nothing and decides without a clock.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, MutableMapping, Sequence
from pathlib import Path
from typing import Any

from actum.contract.call import Executable
from actum.contract.image_reference import RootImage, parse_reference
from actum.errors import ContractInvalid, Problem, Refused
from actum.images.image_store import ImageStore, missing
from actum.registry.digest import (
    Snapshot,
    SnapshotCache,
    Stamp,
    changed_files,
    file_clock_ns,
    hold,
)
from actum.registry.disclosure import summary
from actum.registry.disk_cache import Card, DiskCache, ToolCard
from actum.registry.executable import MINIMAL_PATH, Executables, located
from actum.registry.load import Loaded, adapter_of, load_snapshot, tool_of, well_formed
from actum.registry.lock import FILE_NAME, Lock, lock_bytes, lock_stamp, parse_lock
from actum.registry.model import Adapter, AdapterKind, AdapterStatus, Entry, Pin, Tool, ToolStatus
from actum.registry.path_snapshot import PathSnapshot
from actum.registry.selection import Task, ambiguous, select
from actum.store.keys import PublicKey
from actum.value import value

_TOOL = "tool.yaml"
_ANYTHING = Task()
_MOST_ENTRIES = 256  #: cached at once; callers choose the names of tasks


@value
class Recalled:
    """A tool's id and command, as last read."""

    tool_id: str
    executable: str | None  #: of a cli adapter; ``None``: it has operations
    takes_program: bool = False  #: whether stdin is a program, and required


@value(kw_only=False)
class _Recollection:
    """What is cached about a tool, for which pins, and since when."""

    lock: Lock
    at: float
    recalled: Recalled


@value(kw_only=False)
class _Found:
    """A returned entry, and what it depends on."""

    entry: Entry
    lock: Lock
    stamps: tuple[Stamp, ...]  #: of its folder
    at: float


@value(kw_only=False)
class _LockRead:
    """`tools.lock` as read."""

    content: bytes | None
    lock: Lock
    stamp: tuple[int, ...] | None  #: of the file, if it can tell whether the file changed


class Registry:
    """The tools below `root`/tools and the pins of `root`/tools.lock. Safe to share by threads.

    An entry is found level by level: level 0 of the tool (cached if warm), level 1 only if several
    adapters match, level 2 of the chosen one. `loaded` counts them.
    """

    def __init__(
        self,
        root: Path,
        trusted: Mapping[str, PublicKey],
        *,
        digests: MutableMapping[str, str] | None = None,
        kept: DiskCache | None = None,
        images: ImageStore | None = None,
    ) -> None:
        self.root = root
        self._lock_file = f"{root}/{FILE_NAME}"
        self.kept = kept or DiskCache()
        self.loaded: Counter[int] = Counter()  #: level of disclosure -> number of loads
        self._trusted = trusted
        self._images = images
        self._snapshots = SnapshotCache()
        self._loaded: dict[Path, tuple[Snapshot, Loaded]] = {}
        self._lock_read: _LockRead | None = None  #: replaced as a whole, so it needs no lock
        self._entries: dict[Hashable, _Found] = {}
        self._recalled: dict[tuple[str, str | None, str], _Recollection] = {}
        self._guard = threading.Lock()
        self._executables = Executables(digests)

    def tools(self) -> tuple[Tool, ...]:
        """Every well-formed tool, approved or not, sorted by id."""
        return self.survey()[0]

    def survey(self) -> tuple[tuple[Tool, ...], tuple[Problem, ...]]:
        """The well-formed tools, and the problems of the other folders."""
        tools: list[Tool] = []
        problems: list[Problem] = []
        for folder in self._folders():
            try:
                tools.append(self._load(folder).tool)
            except ContractInvalid as invalid:
                problems.extend(invalid.problems)
            except Refused as refused:
                problems.append(Problem(field="", message=str(refused), file=str(folder)))
        return tuple(sorted(tools, key=lambda tool: tool.tool_id)), tuple(problems)

    def find_tool(self, id_or_name: str) -> Tool:
        """The tool with this id or name; a malformed folder raises `ContractInvalid`."""
        folder = self.root / "tools" / id_or_name
        if folder in self._folders():
            return self._load(folder).tool
        matching = [tool for tool in self.tools() if tool.tool_id == id_or_name]
        if len(matching) > 1:
            folders = ", ".join(tool.folder for tool in matching)
            raise Refused(
                "TOOL_AMBIGUOUS",
                f"The tool id {id_or_name} is claimed by several folders: {folders}.",
                remedy="Give each tool its own tool_id.",
            )
        if not matching:
            self._require_well_formed(id_or_name)
            raise self._unknown(id_or_name)
        return matching[0]

    def _require_well_formed(self, tool_id: str) -> None:
        """Raise `ContractInvalid` if the folder that was approved under this id is malformed."""
        try:
            pin = self.lock().pin(tool_id)
        except Refused:
            return
        if pin is not None and (folder := self.root / "tools" / pin.name) in self._folders():
            self._load(folder)

    def id_is_taken(self, tool: Tool) -> bool:
        """Whether the id that this folder claims is the id of another approved tool."""
        pin = self.lock().pin(tool.tool_id)
        return pin is not None and pin.name != tool.name

    def recall(
        self, id_or_name: str, adapter_id: str | None = None, operation: str = ""
    ) -> Recalled | None:
        """What is cached about a pinned tool, for display only; grants no right."""
        try:
            lock = self.lock()
        except Refused:
            return None
        named = id_or_name, adapter_id, operation
        known = self._recalled.get(named)
        if known is not None and known.lock is lock and self.kept.lasts(known.at):
            return known.recalled
        recalled = self._recall(lock.pin(id_or_name), adapter_id, operation)
        if recalled is not None:
            if len(self._recalled) >= _MOST_ENTRIES:
                self._recalled.clear()
            self._recalled[named] = _Recollection(lock, self.kept.now(), recalled)
        return recalled

    def _recall(self, pin: Pin | None, adapter_id: str | None, operation: str) -> Recalled | None:
        card = self.kept.card(pin.tool_id, pin.digest) if pin is not None else None
        if card is None:
            return None
        cards = [each for each in card.adapters if adapter_id in (None, each.adapter_id)]
        if len(cards) > 1:
            summaries = {c.adapter_id: self.kept.summary(c.adapter_id, card.digest) for c in cards}
            cards.sort(key=lambda each: _rank(summaries[each.adapter_id], operation))
        if not cards:
            return None
        if cards[0].type != AdapterKind.CLI:
            return Recalled(tool_id=card.tool_id, executable=None)
        document = self.kept.document(cards[0].sha256, None)
        if document is None:
            return None
        cli = document["interface"]["cli"]
        return Recalled(
            tool_id=card.tool_id, executable=cli["executable"], takes_program="program" in cli
        )

    def recall_schema(self, id_or_name: str) -> Mapping[str, Any] | None:
        """The cached args_schema of a pinned tool, if any; as for `recall`."""
        try:
            pin = self.lock().pin(id_or_name)
        except Refused:
            return None
        sha256 = pin.files.get(_TOOL, "").removesuffix("+x") if pin is not None else ""
        document = self.kept.document(sha256, None) if sha256 else None
        schema: Mapping[str, Any] | None = None if document is None else document["args_schema"]
        return schema

    def adapters(self, tool: Tool) -> tuple[Adapter, ...]:
        return self._load(Path(tool.folder)).adapters

    def lock(self) -> Lock:
        """The current pins; refused unless a trusted key signed them."""
        read = self._lock_read
        found = lock_stamp(self._lock_file)
        if read is not None and found is not None and read.stamp == found:
            return read.lock
        # Read the clock first: a later change is stamped no earlier than this.
        tick = file_clock_ns()
        stamp = lock_stamp(self._lock_file)
        content = lock_bytes(self.root)
        same = read is not None and read.content == content
        lock = read.lock if read is not None and same else parse_lock(content, self._trusted)
        # Changed in the current clock tick, it could change again with the same times.
        settled = stamp is not None and stamp[-1] < tick and lock_stamp(self._lock_file) == stamp
        self._lock_read = _LockRead(content, lock, stamp if settled else None)
        return lock

    def entry(
        self,
        tool: str,
        adapter_id: str | None,
        *,
        task: Task = _ANYTHING,
        lock: Lock | None = None,
    ) -> Entry:
        """The usable tool and adapter; raises `Refused` with the first reason against it.

        Without `adapter_id`, the only active adapter; of several, the only one that serves
        `task`. Experimental and deprecated adapters are used only by explicit id. `lock` holds the
        pins in force, if the caller has just read them.
        """
        key = (tool, adapter_id, task.operation, task.parameters)
        known = self._entries.get(key)
        # The result would be the same: the pins are the very object that was verified, every stamp
        # of the folder is unchanged, and no cached part has expired.
        if (
            known is not None
            and (lock or self.lock()) is known.lock
            and hold(known.stamps)
            and self.kept.lasts(known.at)
        ):
            return known.entry
        lock, pin, folder = self._pinned(tool, lock)
        _require_not_blocked(pin)
        snapshot = self._snapshots.read(folder)
        _unchanged(pin, snapshot)
        spec = tool_of(self._document(snapshot, _TOOL, ()), snapshot.folder)
        _require_active(pin, spec)
        cards = self._cards(pin, snapshot)
        if adapter_id is None:
            card = select(cards, task, lambda: self._summaries(cards, snapshot))
        else:
            card = self._named(cards, adapter_id)
        adapter = self._adapter(snapshot, card, cards)
        if adapter_id is None and adapter.status is not AdapterStatus.ACTIVE:
            listed = f"{adapter.adapter_id} ({adapter.name}, {adapter.status})"
            raise ambiguous(spec.name, "no active adapter", listed)
        if pin.version != spec.version or pin.adapters.get(adapter.adapter_id) != adapter.version:
            approved = pin.adapters.get(adapter.adapter_id, "no version")
            raise Refused(
                "ADAPTER_VERSION_MISMATCH",
                f"The adapter {adapter.adapter_id} {adapter.version} of {pin.name} "
                f"{spec.version} was not approved: the pin has {approved} for tool "
                f"version {pin.version}.",
                remedy=_approve(pin.tool_id),
            )
        entry = Entry(tool=spec, adapter=adapter, pin=pin)
        stamps = self._snapshots.stamps(snapshot)
        if stamps is not None:
            if len(self._entries) >= _MOST_ENTRIES:
                self._entries.clear()
            self._entries[key] = _Found(entry, lock, stamps, self.kept.now())
        return entry

    def listed(self) -> Iterator[ToolCard]:
        """Level 0 of every pinned and active tool, sorted by id.

        A warm card is the one cached for the pinned digest: no folder is read. A folder that was
        changed meanwhile is refused when it is used.
        """
        fresh: list[ToolCard] = []
        cards: list[ToolCard] = []
        for pin in self.lock().pins:
            if pin.status is not ToolStatus.ACTIVE:
                continue
            card = self.kept.card(pin.tool_id, pin.digest)
            if card is None:
                card = self._read_card(pin)
                if card is None:
                    continue
                fresh.append(card)
            if card.status == ToolStatus.ACTIVE:
                cards.append(card)
        if fresh:
            self.kept.keep_cards(fresh)
        self.loaded[0] += len(cards)
        return iter(cards)

    def summaries(self, card: ToolCard) -> Mapping[str, Mapping[str, Any]]:
        """Level 1 of the adapters of a listed tool, by id."""
        return self._summaries(card, None)

    def forget(self) -> None:
        """Manual refresh: later requests read the tools themselves."""
        self._entries.clear()
        self._recalled.clear()
        self.kept.forget()

    def executable(
        self,
        entry: Entry,
        search_path: Sequence[str] = MINIMAL_PATH,
        *,
        program: str,
        snapshot: PathSnapshot | None = None,
    ) -> Executable:
        """`program` on the tool's scoped PATH, else on `search_path`."""
        snapshot = snapshot or PathSnapshot()
        search_path = entry.tool.path or tuple(search_path)
        manifest = f"{entry.tool.folder}/tool.yaml"
        image = self.image(entry, snapshot)
        if image is not None:
            return self._executables.find_in(
                image,
                program,
                search_path,
                hint=f"Name an image that has {program}, or the directory that holds it there in"
                f" `path` of {manifest}.",
                snapshot=snapshot,
            )
        return self._executables.find(
            program,
            search_path,
            hint=(
                f"Install {program} from your system's packages, or name the directory "
                f"that holds it in `path` of {manifest}."
            ),
            snapshot=snapshot,
        )

    def image(self, entry: Entry, snapshot: PathSnapshot) -> RootImage | None:
        """The unpacked image that a tool names; ``None`` for a tool that runs on the host's own
        programs. Refuses an image that was not added."""
        reference = parse_reference(entry.tool.image)
        if reference is None:
            return None
        found = self._images.find(reference) if self._images is not None else None
        if found is None:
            raise missing(entry.tool.image, entry.tool.name)
        snapshot.status(found.folder)  # a decision ends with the image
        return found

    def located(self, entry: Entry, *, program: str, snapshot: PathSnapshot) -> str:
        """Where `executable` finds the program, links not resolved."""
        return located(program, entry.tool.path or MINIMAL_PATH, snapshot)

    def identified(self, snapshot: PathSnapshot) -> Callable[[str], Executable]:
        """The digest of a resolved path, cached like those of executables."""
        return lambda path: self._executables.identified(path, snapshot)

    def _folders(self) -> list[Path]:
        directory = self.root / "tools"
        if not directory.is_dir():
            return []
        return sorted(path for path in directory.iterdir() if (path / "tool.yaml").is_file())

    def _load(self, folder: Path) -> Loaded:
        return self._load_from(self._snapshots.read(folder))

    def _load_from(self, snapshot: Snapshot) -> Loaded:
        """Parse once per snapshot: the same object means the same bytes."""
        with self._guard:
            known = self._loaded.get(snapshot.folder)
        if known is None or known[0] is not snapshot:
            known = (snapshot, load_snapshot(snapshot))
            with self._guard:
                self._loaded[snapshot.folder] = known
        return known[1]

    def _pinned(self, tool: str, lock: Lock | None) -> tuple[Lock, Pin, Path]:
        try:
            lock = lock or self.lock()
        except Refused:
            self.find_tool(tool)  # reports an unknown tool first
            raise
        pin = lock.pin(tool)
        if pin is None:
            found = self.find_tool(tool)
            raise Refused(
                "TOOL_NOT_APPROVED",
                f"The tool {found.name} ({found.tool_id}) is not pinned in tools.lock.",
                remedy=_approve(found.tool_id),
            )
        folder = self.root / "tools" / pin.name
        if not os.path.isdir(folder):
            raise self._unknown(tool)
        return lock, pin, folder

    def _cards(self, pin: Pin, snapshot: Snapshot) -> ToolCard:
        """Level 0."""
        card = self.kept.card(pin.tool_id, pin.digest)
        if card is None:
            card = self._carded(snapshot, pin.digest)
            self.kept.keep_cards([card])
        self.loaded[0] += 1
        return card

    def _read_card(self, pin: Pin) -> ToolCard | None:
        """Level 0 of a folder that is still the approved one; ``None`` if it is not."""
        try:
            snapshot = self._snapshots.read(self.root / "tools" / pin.name)
            if snapshot.digest != pin.digest:
                return None
            return self._carded(snapshot, pin.digest)
        except (Refused, ContractInvalid):
            return None  # gone or invalid: using it reports the reason

    def _carded(self, snapshot: Snapshot, digest: str) -> ToolCard:
        loaded = self._load_from(snapshot)
        tool = loaded.tool
        return ToolCard(
            tool_id=tool.tool_id,
            name=tool.name,
            digest=digest,
            status=tool.status.value,
            runner=tool.permissions.runner.value,
            adapters=tuple(
                Card(
                    adapter_id=each.adapter_id,
                    name=each.name,
                    tool_id=each.tool_id,
                    type=each.kind.value,
                    path=loaded.paths[each.adapter_id],
                    sha256=each.sha256,
                )
                for each in loaded.adapters
            ),
        )

    def _summaries(
        self, cards: ToolCard, snapshot: Snapshot | None
    ) -> Mapping[str, Mapping[str, Any]]:
        """Level 1."""
        self.loaded[1] += 1
        cached = {
            card.adapter_id: self.kept.summary(card.adapter_id, cards.digest)
            for card in cards.adapters
        }
        found = {name: each for name, each in cached.items() if each is not None}
        if len(found) == len(cached):
            return found
        if snapshot is None:
            snapshot = self._snapshots.read(self.root / "tools" / cards.name)
        loaded = self._load_from(snapshot)
        read = {each.adapter_id: summary(each, loaded.tool) for each in loaded.adapters}
        self.kept.keep_summaries(read, snapshot.digest)
        return read

    def _adapter(self, snapshot: Snapshot, card: Card, cards: ToolCard) -> Adapter:
        """Level 2."""
        self.loaded[2] += 1
        known = [each.adapter_id for each in cards.adapters]
        return adapter_of(self._document(snapshot, card.path, known), card.sha256)

    def _document(self, snapshot: Snapshot, path: str, known: Sequence[str]) -> Mapping[str, Any]:
        """Parsed from the bytes that were compared with the pin, or cached under their digest."""
        sha256 = snapshot.files[path].removesuffix("+x")
        document = self.kept.document(sha256, None)
        if document is None:
            document = well_formed(snapshot, path, known)
            self.kept.keep_document(sha256, document)
        return document

    def _named(self, cards: ToolCard, adapter_id: str) -> Card:
        own = {card.adapter_id: card for card in cards.adapters}
        if adapter_id in own:
            return own[adapter_id]
        for tool in self.tools():
            if any(adapter.adapter_id == adapter_id for adapter in self.adapters(tool)):
                raise Refused(
                    "ADAPTER_MISMATCH",
                    f"The adapter {adapter_id} belongs to {tool.name} ({tool.tool_id}), "
                    f"not to {cards.name} ({cards.tool_id}).",
                    remedy=f"Adapters of {cards.name}: {', '.join(own) or 'none'}.",
                )
        raise Refused(
            "ADAPTER_UNKNOWN",
            f"There is no adapter {adapter_id}.",
            remedy=f"Adapters of {cards.name}: {', '.join(own) or 'none'}.",
        )

    def _unknown(self, tool: str) -> Refused:
        known = [word for each in self.tools() for word in (each.name, each.tool_id)]
        import difflib

        close = difflib.get_close_matches(tool, known, n=3)
        hint = f"Did you mean {' or '.join(close)}? " if close else ""
        return Refused(
            "TOOL_UNKNOWN",
            f"There is no tool {tool}.",
            remedy=f"{hint}`actum tools list` lists all tools.",
        )


_STRICTNESS = [ToolStatus.ACTIVE, ToolStatus.DEPRECATED, ToolStatus.BLOCKED]


def _unchanged(pin: Pin, snapshot: Snapshot) -> None:
    if snapshot.digest == pin.digest:
        return
    changed = ", ".join(changed_files(pin.files, snapshot.files)) or "unknown files"
    raise Refused(
        "TOOL_CHANGED",
        f"The folder of {pin.name} ({pin.tool_id}) is not the approved one: {changed}.",
        remedy=f"Undo the change, or review it (`actum tools diff {pin.name}`) and:"
        f" {_approve(pin.tool_id)}",
    )


def _approve(tool_id: str) -> str:
    return f"`actum tools approve {tool_id} --by WHO --evidence REF`."


def _require_active(pin: Pin, tool: Tool) -> None:
    status = max(tool.status, pin.status, key=_STRICTNESS.index)
    if status is not ToolStatus.ACTIVE:
        raise Refused(
            "TOOL_NOT_ACTIVE",
            f"The tool {pin.name} ({pin.tool_id}) is {status}.",
            remedy=f"Use another tool; `actum tools history {pin.tool_id}` says who decided.",
        )


def _require_not_blocked(pin: Pin) -> None:
    """A block is reported first, whatever happened to the folder since."""
    if pin.status is ToolStatus.BLOCKED:
        raise Refused(
            "TOOL_NOT_ACTIVE",
            f"The tool {pin.name} ({pin.tool_id}) is blocked.",
            remedy=f"`actum tools history {pin.tool_id}` says who decided;"
            f" `actum tools unblock {pin.name} --why TEXT` lifts it.",
        )


def _rank(summary: Mapping[str, Any] | None, operation: str) -> tuple[bool, bool]:
    """Active adapters that have the operation first; then by id."""
    found = summary or {}
    return found.get("status") != AdapterStatus.ACTIVE.value, operation not in found.get(
        "operations", ()
    )
