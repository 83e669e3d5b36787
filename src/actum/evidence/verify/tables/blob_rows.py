"""`blobs` and `.actum/evidence/`: every file that an evidence record lists, and no row besides.

Small files are rows, larger ones are files of the home (`store.blobs`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from actum.contract.canonical import blake3_bytes, sha256_bytes
from actum.evidence.verify.findings import Finding, difference, guarded, judged
from actum.store import plain_files
from actum.store.plain_files import NotPlain
from actum.store.snapshot import Snapshot
from actum.value import field, value

_FOLDER = "evidence"


@value(kw_only=False)
class ListedFile:
    """A file as the first record that lists it has it."""

    name: str  #: kind and path
    sha256: str
    evidence_id: str


@value(frozen=False, kw_only=False)
class Listed:
    """Files that evidence records list, by BLAKE3."""

    files: dict[str, ListedFile] = field(default_factory=dict)
    #: Number of the audit record of the newest execution that lists it, by BLAKE3.
    newest: dict[str, int] = field(default_factory=dict)
    complete: bool = True  #: every record could be read


def file_findings(
    database: Snapshot, home: Path, listed: Listed, removed: Mapping[str, tuple[int, str]]
) -> Iterator[Finding]:
    """The content of every listed file. `removed` are those that the log says were removed: the
    number of the record, and when."""
    left = dict(listed.files)
    for blake3, content in database.scan("blobs", ("blake3", "content")):
        file = left.pop(blake3, None)
        if file is None:
            # A missing record lists no files: that is reported already.
            if listed.complete:
                detail = "blobs.blake3: no evidence record lists this content"
                yield Finding(f"file content {blake3}", "record", False, detail)
            continue
        subject = f"file {file.name}"
        yield from guarded(subject, "content", _row_findings(subject, blake3, content, file))
    with plain_files.opened(home) as root:
        for blake3, file in left.items():
            seq, at = removed.get(blake3, (0, ""))
            if seq > listed.newest[blake3] and not plain_files.is_there(root, _path(blake3)):
                yield Finding(f"file {file.name}", "content", True, f"removed by gc on {at}")
            else:
                yield _large(root, home, blake3, file)
        yield from _unlisted(root, listed.files)


def _row_findings(subject: str, blake3: str, content: Any, file: ListedFile) -> Iterator[Finding]:
    found = (blake3_bytes(content), sha256_bytes(content))
    differs = difference(f"BLAKE3 of blobs.content {blake3}", blake3, found[0])
    yield judged(subject, "content", found == (blake3, file.sha256), differs)


def _path(blake3: str) -> str:
    return f"{_FOLDER}/{blake3[:2]}/{blake3}"


def _large(root: int, home: Path, blake3: str, file: ListedFile) -> Finding:
    subject, path = f"file {file.name}", _path(blake3)
    try:
        found = plain_files.file_held(root, path)
    except NotPlain as problem:
        detail = (
            f"no row of blobs holds it, and {home / path}: {problem}; evidence record"
            f" {file.evidence_id} lists it"
        )
        return Finding(subject, "content", False, detail)
    same = (found.blake3, found.sha256) == (blake3, file.sha256)
    differs = difference(f"SHA-256 of {home / path}", file.sha256, found.sha256)
    return judged(subject, "content", same, differs)


def _unlisted(root: int, listed: dict[str, ListedFile]) -> Iterator[Finding]:
    """Files that no record lists: left by a crash before the record was written."""
    if not plain_files.is_there(root, _FOLDER):
        return
    try:
        folders = plain_files.names(root, _FOLDER)
        files = [
            name for folder in folders for name in plain_files.names(root, f"{_FOLDER}/{folder}")
        ]
    except NotPlain as problem:
        yield Finding("evidence files", "folder", False, f".actum/{_FOLDER}: {problem}")
        return
    strays = sum(name not in listed for name in files)
    if strays:
        detail = f"{strays} files that no record lists; `actum gc` removes them"
        yield Finding("evidence files", "unlisted", True, detail)
