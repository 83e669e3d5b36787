"""The one place that says whether a tool and an adapter may be used, and which file they mean.

A file on disk gives no right to run. `Registry.entry` gives out an `Entry` only when the folder is
byte for byte what a trusted key has pinned and everything in it is active; what it hands out was
parsed from the very bytes that were compared. It executes nothing and reads no clock to decide.
"""

from __future__ import annotations

import difflib
import threading
from collections.abc import Mapping, MutableMapping, Sequence
from pathlib import Path

from actum.contract.call import Executable
from actum.errors import ContractInvalid, Problem, Refused
from actum.registry.digest import Snapshot, SnapshotCache, changed_files
from actum.registry.executable import MINIMAL_PATH, Executables
from actum.registry.load import Loaded, load_snapshot
from actum.registry.lock import Lock, lock_bytes, parse_lock
from actum.registry.model import (
    Adapter,
    AdapterKind,
    AdapterStatus,
    Entry,
    Pin,
    Tool,
    ToolStatus,
)
from actum.store.keys import PublicKey

_MAPPING_OF = {
    AdapterKind.API: "endpoint_mapping",
    AdapterKind.SDK: "function_mapping",
    AdapterKind.MCP: "tool_mapping",
}


class Registry:
    """The tools below `root`/tools and the pins of `root`/tools.lock. Safe to share by threads."""

    def __init__(
        self,
        root: Path,
        trusted: Mapping[str, PublicKey],
        *,
        digests: MutableMapping[str, str] | None = None,
    ) -> None:
        self.root = root
        self._trusted = trusted
        self._snapshots = SnapshotCache()
        self._loaded: dict[Path, tuple[Snapshot, Loaded]] = {}
        self._lock_read: tuple[bytes | None, Lock] | None = None
        self._guard = threading.Lock()
        self._executables = Executables(digests)

    def tools(self) -> tuple[Tool, ...]:
        """Every well-formed tool, approved or not, in the order of their ids."""
        return self.survey()[0]

    def survey(self) -> tuple[tuple[Tool, ...], tuple[Problem, ...]]:
        """The well-formed tools, and what is wrong with the other folders."""
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
            raise self._unknown(id_or_name)
        return matching[0]

    def recall(self, id_or_name: str) -> tuple[Tool, tuple[Adapter, ...]] | None:
        """A tool as it was last read, for naming things: gives no right, and may be out of date."""
        with self._guard:
            loaded = [known for _snapshot, known in self._loaded.values()]
        for known in loaded:
            if id_or_name in (known.tool.tool_id, known.tool.name):
                return known.tool, known.adapters
        return None

    def adapters(self, tool: Tool) -> tuple[Adapter, ...]:
        return self._load(Path(tool.folder)).adapters

    def lock(self) -> Lock:
        """The pins in force; refused unless a trusted key signed them."""
        content = lock_bytes(self.root)
        with self._guard:
            read = self._lock_read
        if read is None or read[0] != content:
            read = (content, parse_lock(content, self._trusted))
            with self._guard:
                self._lock_read = read
        return read[1]

    def entry(
        self, tool: str, adapter_id: str | None, *, task_operation: str | None = None
    ) -> Entry:
        """The tool and adapter that may be used; raises `Refused` with the first reason why not.

        Without `adapter_id` it is the only active adapter; of several, the only one that serves
        `task_operation`. Experimental and deprecated adapters are used only by explicit id.
        """
        pin, folder = self._pinned(tool)
        snapshot = self._snapshots.read(folder)
        _unchanged(pin, snapshot)
        loaded = self._load_from(snapshot)
        status = max(loaded.tool.status, pin.status, key=_STRICTNESS.index)
        if status is not ToolStatus.ACTIVE:
            raise Refused(
                "TOOL_NOT_ACTIVE",
                f"The tool {pin.name} ({pin.tool_id}) is {status}.",
                remedy=f"Use another tool; `actum tools history {pin.tool_id}` says who decided.",
            )
        if adapter_id is None:
            adapter = _only_active(loaded, task_operation)
        else:
            adapter = self._named(loaded, adapter_id)
        if pin.version != loaded.tool.version or pin.adapters.get(adapter.adapter_id) != (
            adapter.version
        ):
            approved = pin.adapters.get(adapter.adapter_id, "no version")
            raise Refused(
                "ADAPTER_VERSION_MISMATCH",
                f"The adapter {adapter.adapter_id} {adapter.version} of {pin.name} "
                f"{loaded.tool.version} was not approved: the pin has {approved} for tool "
                f"version {pin.version}.",
                remedy=_approve(pin.tool_id),
            )
        return Entry(tool=loaded.tool, adapter=adapter, pin=pin)

    def executable(
        self, entry: Entry, search_path: Sequence[str] = MINIMAL_PATH, *, program: str
    ) -> Executable:
        """`program` on the tool's scoped PATH or else on `search_path`."""
        return self._executables.find(
            program,
            entry.tool.path or tuple(search_path),
            hint=(
                f"Install {program} from your system's packages, or name the directory "
                f"that holds it in `path` of {entry.tool.folder}/tool.yaml."
            ),
        )

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

    def _pinned(self, tool: str) -> tuple[Pin, Path]:
        try:
            lock = self.lock()
        except Refused:
            self.find_tool(tool)  # that there is no such tool is the better answer
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
        if not folder.is_dir():
            raise self._unknown(tool)
        return pin, folder

    def _named(self, loaded: Loaded, adapter_id: str) -> Adapter:
        own = {adapter.adapter_id: adapter for adapter in loaded.adapters}
        if adapter_id in own:
            return own[adapter_id]
        for tool in self.tools():
            if any(adapter.adapter_id == adapter_id for adapter in self.adapters(tool)):
                raise Refused(
                    "ADAPTER_MISMATCH",
                    f"The adapter {adapter_id} is one of {tool.name} ({tool.tool_id}), "
                    f"not of {loaded.tool.name} ({loaded.tool.tool_id}).",
                    remedy=f"Adapters of {loaded.tool.name}: {', '.join(own) or 'none'}.",
                )
        raise Refused(
            "ADAPTER_UNKNOWN",
            f"There is no adapter {adapter_id}.",
            remedy=f"Adapters of {loaded.tool.name}: {', '.join(own) or 'none'}.",
        )

    def _unknown(self, tool: str) -> Refused:
        known = [word for each in self.tools() for word in (each.name, each.tool_id)]
        close = difflib.get_close_matches(tool, known, n=3)
        hint = f"Did you mean {' or '.join(close)}? " if close else ""
        return Refused(
            "TOOL_UNKNOWN",
            f"There is no tool {tool}.",
            remedy=f"{hint}`actum tools list` shows what there is.",
        )


_STRICTNESS = [ToolStatus.ACTIVE, ToolStatus.DEPRECATED, ToolStatus.BLOCKED]


def _unchanged(pin: Pin, snapshot: Snapshot) -> None:
    if snapshot.digest == pin.digest:
        return
    changed = ", ".join(changed_files(pin.files, snapshot.files)) or "unknown files"
    raise Refused(
        "TOOL_CHANGED",
        f"The folder of {pin.name} ({pin.tool_id}) is not the approved one: {changed}.",
        remedy=f"Undo the change, or review it and: {_approve(pin.tool_id)}",
    )


def _approve(tool_id: str) -> str:
    return f"`actum tools approve {tool_id} --by WHO --evidence REF`."


def _only_active(loaded: Loaded, task_operation: str | None) -> Adapter:
    active = [each for each in loaded.adapters if each.status is AdapterStatus.ACTIVE]
    if len(active) > 1 and task_operation is not None:
        active = [each for each in active if _serves(each, task_operation)] or active
    if len(active) == 1:
        return active[0]
    listed = ", ".join(f"{a.adapter_id} ({a.name}, {a.status})" for a in active or loaded.adapters)
    count = "several active adapters" if active else "no active adapter"
    raise Refused(
        "ADAPTER_AMBIGUOUS",
        f"The tool {loaded.tool.name} has {count}: {listed or 'none at all'}.",
        remedy="Name one in adapter_id.",
    )


def _serves(adapter: Adapter, operation: str) -> bool:
    if adapter.cli is not None:
        return operation == adapter.cli.executable
    return operation in adapter.interface[_MAPPING_OF[adapter.kind]]
