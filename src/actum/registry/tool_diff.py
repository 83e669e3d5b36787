"""A tool's folder against its pin: which files, fields and grants another approval would change.

Decides nothing and changes nothing. The approved side is what the signed lock states; contents come
from `approved_content` and are left out where they are not stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from actum.contract.model import Json
from actum.documents.document import load_document
from actum.errors import ContractInvalid, Problem, Refused
from actum.registry.approval_workflow import grants, propose, scope_change
from actum.registry.approved_content import ApprovedContent, content_of
from actum.registry.digest import is_document
from actum.registry.lock import Lock
from actum.registry.model import Pin, ScopeChange
from actum.value import value


@value
class FileChange:
    path: str
    change: str  #: added, removed, edited, now executable, no longer executable
    approved: str | None  #: SHA-256 in the pin, with ``+x`` if executable
    found: str | None  #: SHA-256 on the disk, in the same form
    before: bytes | None  #: ``None``: there was none, or it is not stored
    after: bytes | None

    @property
    def same_content(self) -> bool:
        return (self.approved or "").removesuffix("+x") == (self.found or "").removesuffix("+x")


@value
class FieldChange:
    """A field of a document; ``None`` on the side that does not have it."""

    file: str
    field: str
    before: Json
    after: Json


@value
class GrantChange:
    """Something that the tool may do more, or less."""

    name: str
    added: tuple[str, ...]
    removed: tuple[str, ...]


@value
class ToolDiff:
    pin: Pin
    digest: str  #: of the folder as it is now; empty if it is missing
    files: tuple[FileChange, ...]
    fields: tuple[FieldChange, ...]
    grants: tuple[GrantChange, ...]
    scope_change: ScopeChange | None  #: ``None``: the folder is not well-formed
    problems: tuple[Problem, ...]  #: for which it could not be approved

    @property
    def same(self) -> bool:
        return self.digest == self.pin.digest


def tool_diff(root: Path, home: Path, lock: Lock, tool: str) -> ToolDiff:
    """The difference of a pinned tool, by its id or name."""
    pin = lock.pin(tool)
    if pin is None:
        raise Refused(
            "TOOL_NOT_APPROVED",
            f"The tool {tool[:80]} is not pinned in tools.lock, so there is nothing to compare.",
            remedy="`actum tools propose DIR` shows what an approval would pin;"
            " `actum tools list` lists the tools.",
        )
    folder = root / "tools" / pin.name
    if not folder.is_dir():
        lost = tuple(_files(pin.files, {}, folder, ApprovedContent(home)))
        missing = Problem(field="tool", message=f"there is no folder {folder}.", value=pin.name)
        return ToolDiff(
            pin=pin,
            digest="",
            files=lost,
            fields=(),
            grants=(),
            scope_change=None,
            problems=(missing,),
        )
    proposal = propose(root, folder)
    files = tuple(_files(pin.files, proposal.files, folder, ApprovedContent(home)))
    new = None if proposal.tool is None else grants(proposal.tool)
    return ToolDiff(
        pin=pin,
        digest=proposal.digest,
        files=files,
        fields=tuple(_fields(files)),
        grants=() if new is None else tuple(_grants(pin.grants, new)),
        scope_change=None if new is None else scope_change(pin.grants, new),
        problems=proposal.problems,
    )


def _files(
    approved: Mapping[str, str], found: Mapping[str, str], folder: Path, stored: ApprovedContent
) -> Iterator[FileChange]:
    for path in sorted({*approved, *found}):
        before, after = approved.get(path), found.get(path)
        if before != after:
            yield FileChange(
                path=path,
                change=_change(before, after),
                approved=before,
                found=after,
                before=stored.get(before) if before else None,
                after=content_of(folder / path) if after else None,
            )


def _change(before: str | None, after: str | None) -> str:
    if before is None:
        return "added"
    if after is None:
        return "removed"
    if before.removesuffix("+x") != after.removesuffix("+x"):
        return "edited"
    return "now executable" if after.endswith("+x") else "no longer executable"


def _fields(files: tuple[FileChange, ...]) -> Iterator[FieldChange]:
    """The fields that differ in documents of which both sides can be read."""
    for file in files:
        if file.change != "edited" or not is_document(file.path):
            continue
        before, after = _flat(file.before), _flat(file.after)
        if before is None or after is None:
            continue
        for name in dict.fromkeys((*before, *after)):
            if before.get(name) != after.get(name):
                yield FieldChange(
                    file=file.path, field=name, before=before.get(name), after=after.get(name)
                )


def _flat(content: bytes | None) -> dict[str, Json] | None:
    if content is None:
        return None
    try:
        document = load_document(content).value
    except ContractInvalid:
        return None
    return dict(_leaves(document, ""))


def _leaves(value: Json, at: str) -> Iterator[tuple[str, Json]]:
    """Dotted name and value of everything that is no section."""
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from _leaves(inner, f"{at}.{name}" if at else str(name))
    else:
        yield at, value


def _grants(former: Mapping[str, Json], new: Mapping[str, Json]) -> Iterator[GrantChange]:
    for name in dict.fromkeys((*former, *new)):
        before, after = _items(former.get(name, [])), _items(new.get(name, []))
        added = tuple(each for each in after if each not in before)
        removed = tuple(each for each in before if each not in after)
        if added or removed:
            yield GrantChange(name=name, added=added, removed=removed)


def _items(value: Json) -> tuple[str, ...]:
    if isinstance(value, list):
        return tuple(map(str, value))
    return ("no limit" if value is None else str(value),)
