"""Compares copies in the home, which commands return or answer from, with the receipts.

    receipts/<receipt>.json            a receipt, exported
    session/<session>/<execution>/     exact output, for as long as its session lives
    session/<session>/cached-*.json    results that the session answers from
    golden/<key>.json                  outputs that are expected
    inbox/<sha256>                     calls that wait for a decision

All of them may be missing. Those that exist must be what a receipt signs; a call must match the
digest in its name, to which the log binds the request. No receipt covers who recorded an expected
output, when and why.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from actum import removal
from actum.contract.canonical import sha256_bytes
from actum.evidence.verify.findings import Finding, difference, guarded, judged
from actum.evidence.verify.unbound import Unbound
from actum.store import plain_files
from actum.store.plain_files import NotPlain
from actum.store.snapshot import Snapshot

_RECEIPTS, _SESSIONS, _GOLDEN, _WORK = "receipts", "session", "golden", "work"
_INBOX = "inbox"
_MOST_BYTES = 1 << 30
_STREAMS = ("stdout", "stderr")
#: Receipts and cached results of older versions have no type.
_FILE = ("name", "path", "kind", "type", "sha256", "blake3")
_DETERMINISM = "SELECT data FROM trace_events WHERE receipt_id = ? AND event_type = 'determinism'"


def home_file_findings(home: Path, database: Snapshot, unbound: Unbound) -> Iterator[Finding]:
    with plain_files.opened(home) as root:
        for name in _names(root, _RECEIPTS):
            if name != _WORK and not _is_passing(name):
                path = f"{_RECEIPTS}/{name}"
                found = _copy(root, home, path, name, database)
                yield from guarded(f"receipt file {home / path}", "copy", found)
        for session in _names(root, _SESSIONS):
            yield from _session(root, f"{_SESSIONS}/{session}", database, unbound)
        for name in _names(root, _GOLDEN):
            if not _is_passing(name):
                path = f"{_GOLDEN}/{name}"
                yield from guarded(f"file {path}", "content", _golden(root, path, database))
        for name in _names(root, _INBOX):
            if not _is_passing(name):
                path = f"{_INBOX}/{name}"
                yield from guarded(f"file {path}", "content", _call(root, path, name))


def _is_passing(name: str) -> bool:
    """The name of a file that is being written, or was when its process died."""
    return name.startswith(".") and name.endswith(".new")


def _copy(root: int, home: Path, path: str, name: str, database: Snapshot) -> Iterator[Finding]:
    subject = f"receipt file {home / path}"
    receipt_id = name.removesuffix(".json")
    row = database.row("SELECT sha256 FROM receipts WHERE receipt_id = ?", (receipt_id,))
    if row is None:
        yield Finding(subject, "copy", False, "receipts: there is no receipt of this name")
        return
    try:
        found = plain_files.file_held(root, path)
    except NotPlain as problem:
        yield Finding(subject, "copy", False, str(problem))
        return
    differs = difference("SHA-256", row[0], found.sha256)
    yield judged(subject, "copy", found.sha256 == row[0], differs)


def _session(root: int, folder: str, database: Snapshot, unbound: Unbound) -> Iterator[Finding]:
    for name in _names(root, folder):
        path = f"{folder}/{name}"
        if name == removal.MARKER or _is_passing(name):
            continue
        if name.startswith("cached-"):
            yield from guarded(f"file {path}", "content", _cached(root, path, database, unbound))
        else:
            yield from guarded(f"file {path}", "content", _output(root, path, name, database))


def _output(root: int, folder: str, execution_id: str, database: Snapshot) -> Iterator[Finding]:
    """Both streams of an execution, if it is over."""
    row = database.row("SELECT receipt_id FROM executions WHERE execution_id = ?", (execution_id,))
    if row is None or row[0] is None:
        return  # it runs, or its process died before the record was written
    streams = _predicate(row[0], database)["streams"]
    if streams is None:
        yield Finding(f"file {folder}", "content", False, "no tool ran under this id")
        return
    for name in _STREAMS:
        path, signed = f"{folder}/{name}", streams[name]
        try:
            found = plain_files.content(root, path, _MOST_BYTES)
        except NotPlain as problem:
            yield Finding(f"file {path}", "content", False, str(problem))
            continue
        if signed["kept"] == signed["bytes"]:
            differs = difference("SHA-256", signed["sha256"], sha256_bytes(found))
            yield judged(
                f"file {path}", "content", sha256_bytes(found) == signed["sha256"], differs
            )
        else:
            # The stored stream is truncated, and the signed digest covers all of it.
            differs = difference("bytes", signed["kept"], len(found))
            yield judged(f"file {path}", "length", len(found) == signed["kept"], differs)


def _cached(root: int, path: str, database: Snapshot, unbound: Unbound) -> Iterator[Finding]:
    subject = f"file {path}"
    try:
        text = plain_files.content(root, path, _MOST_BYTES)
    except NotPlain as problem:
        yield Finding(subject, "content", False, str(problem))
        return
    kept = json.loads(text)
    if json.dumps(kept).encode() != text:
        yield Finding(subject, "content", False, "it is not written as it was")
        return
    predicate = _predicate(kept["receipt_id"], database)
    expected: dict[str, Any] = {"execution_id": predicate["execution_id"]}
    found: dict[str, Any] = {"execution_id": kept["execution_id"]}
    for name in _STREAMS:
        signed, stream = predicate["streams"][name], kept[name]
        content = base64.b64decode(stream["kept"])
        whole = signed["kept"] == signed["bytes"]
        expected[name] = (signed["sha256"], signed["sha256"] if whole else "", signed["kept"])
        digest = sha256_bytes(content) if whole else ""
        found[name] = (stream["sha256"], digest, len(content))
    # A receipt names the first files one by one; the others it signs by its evidence record.
    files = kept["files"][: len(predicate["artifacts"])]
    expected["files"] = [[file.get(name) for name in _FILE] for file in predicate["artifacts"]]
    found["files"] = [[file.get(name) for name in _FILE] for file in files]
    expected["contents"] = [file["sha256"] for file in predicate["artifacts"]]
    found["contents"] = [sha256_bytes(base64.b64decode(file["content"])) for file in files]
    expected["enforcement"], found["enforcement"] = predicate["enforcement"], kept["enforcement"]
    event = database.row(_DETERMINISM, (predicate["receipt_id"],))
    claimed = json.loads(event[0]) if event else {}
    key = claimed.pop("cache_key", None)
    if key is None:
        unbound.count("keys of cached results")
    else:
        expected["key"], found["key"] = key, path.rpartition("cached-")[2].removesuffix(".json")
    expected["determinism"], found["determinism"] = claimed, kept["determinism"]
    wrong = [
        difference(name, value, found[name])
        for name, value in expected.items()
        if found[name] != value
    ]
    yield judged(subject, "content", not wrong, "; ".join(wrong))


def _golden(root: int, path: str, database: Snapshot) -> Iterator[Finding]:
    subject = f"file {path}"
    try:
        text = plain_files.content(root, path, _MOST_BYTES)
    except NotPlain as problem:
        yield Finding(subject, "content", False, str(problem))
        return
    kept = json.loads(text)
    if json.dumps(kept, indent=1).encode() != text:
        yield Finding(subject, "content", False, "it is not written as it was")
        return
    predicate = _predicate(kept["receipt_id"], database)
    expected = {
        "key": path.removeprefix(f"{_GOLDEN}/").removesuffix(".json"),
        "execution_id": predicate["execution_id"],
        "tool": f"{predicate['tool']['id']} {predicate['tool']['version']}",
        "adapter": f"{predicate['adapter']['id']} {predicate['adapter']['version']}",
        "input_digest": predicate["input_digest"],
        "exit_code": predicate["ending"]["exit_code"],
        **{name: predicate["streams"][name]["sha256"] for name in _STREAMS},
    }
    digests = {name: sha256_bytes(base64.b64decode(kept[name])) for name in _STREAMS}
    found = {**kept, **digests}
    wrong = [
        difference(name, value, found.get(name))
        for name, value in expected.items()
        if found.get(name) != value
    ]
    yield judged(subject, "content", not wrong, "; ".join(wrong))


def _call(root: int, path: str, name: str) -> Iterator[Finding]:
    """A call that is kept for the person who decides about it, under its own digest."""
    try:
        found = plain_files.file_held(root, path).sha256
    except NotPlain as problem:
        yield Finding(f"file {path}", "content", False, str(problem))
        return
    yield judged(f"file {path}", "content", found == name, difference("SHA-256", name, found))


def _predicate(receipt_id: str, database: Snapshot) -> dict[str, Any]:
    """The predicate of a receipt. The pass over the table checks its signature."""
    row = database.row("SELECT envelope FROM receipts WHERE receipt_id = ?", (receipt_id,))
    if row is None:
        raise ValueError(f"there is no receipt {receipt_id}")
    payload = json.loads(row[0])["payload"]
    predicate: dict[str, Any] = json.loads(base64.b64decode(payload))["predicate"]
    return predicate


def _names(root: int, folder: str) -> tuple[str, ...]:
    try:
        return plain_files.names(root, folder)
    except NotPlain:
        return ()
