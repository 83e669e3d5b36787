"""The difference between a tool's folder and its approval, as lines and as a document."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from actum.contract.model import Json
from actum.value import as_dict

if TYPE_CHECKING:
    from actum.registry.tool_diff import FileChange, GrantChange, ToolDiff

_MOST_LINES = 2_000


def diff_lines(found: ToolDiff) -> Iterator[str]:
    """Each is one line; text of the tool is never at the beginning of one."""
    pin = found.pin
    approved = f"approved by {pin.approver} on {pin.date}"
    if found.same:
        yield f"{pin.tool_id} {pin.name} {pin.version} is exactly as {approved}."
        return
    count = "1 file differs" if len(found.files) == 1 else f"{len(found.files)} files differ"
    yield f"{pin.tool_id} {pin.name} {pin.version}: {count} from what was {approved}."
    for file in found.files:
        yield f"  {file.change}: {file.path}"
    if found.fields:
        yield "fields:"
        for field in found.fields:
            yield f"  {field.file} {field.field}: {_shown(field.before)} -> {_shown(field.after)}"
    yield f"scope: {found.scope_change or 'unknown, the folder is not well-formed'}"
    for grant in found.grants:
        yield f"  {grant.name}: {_granted(grant)}"
    for problem in found.problems:
        yield f"problem: {problem}"
    for file in found.files:
        yield from _content_lines(file)
    if found.problems:
        yield "It cannot be approved like this. It does not run while it differs."
    else:
        yield f"It does not run while it differs. `actum tools approve {pin.tool_id} --by WHO"
        yield "  --evidence REF` would pin the folder with all of this."


def _granted(grant: GrantChange) -> str:
    return ", ".join(
        [*(f"+ {each}" for each in grant.added), *(f"- {each}" for each in grant.removed)]
    )


def _shown(value: Json) -> str:
    return "(nothing)" if value is None else str(value)


def _content_lines(file: FileChange) -> Iterator[str]:
    if file.same_content:
        return
    yield f"content of {file.path}:"
    texts: list[list[str]] = []
    for side, digest, content in (
        ("approved", file.approved, file.before),
        ("now", file.found, file.after),
    ):
        if digest is None:
            texts.append([])
            continue
        sha256 = digest.removesuffix("+x")
        if content is None:
            yield f"  ({side}: the content is not stored, SHA-256 {sha256})"
            return
        try:
            texts.append(content.decode().split("\n"))
        except UnicodeDecodeError:
            yield f"  ({side}: {len(content)} bytes, not text, SHA-256 {sha256})"
            return
    differing = difflib.unified_diff(texts[0], texts[1], "approved", "now", lineterm="")
    for number, line in enumerate(differing):
        if number == _MOST_LINES:
            yield "  (more lines differ)"
            return
        yield f"  {line}"


def diff_document(found: ToolDiff) -> dict[str, Json]:
    pin = found.pin
    return {
        "tool_id": pin.tool_id,
        "name": pin.name,
        "same": found.same,
        "approval": {
            "digest": pin.digest,
            "version": pin.version,
            "approver": pin.approver,
            "date": pin.date,
            "evidence": pin.evidence,
            "status": pin.status.value,
        },
        "digest": found.digest or None,
        "scope_change": None if found.scope_change is None else found.scope_change.value,
        "grants": [
            {"name": each.name, "added": list(each.added), "removed": list(each.removed)}
            for each in found.grants
        ],
        "fields": [as_dict(each) for each in found.fields],
        "files": [
            {
                "path": each.path,
                "change": each.change,
                "approved_sha256": each.approved,
                "found_sha256": each.found,
                "diff": list(_content_lines(each)),
            }
            for each in found.files
        ],
        "problems": [as_dict(each) for each in found.problems],
    }
