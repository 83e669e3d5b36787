"""What is kept of transactions, held against receipts and audit records.

    transactions/<execution>-<attempt>/record.json        state, changes and their digests
    transactions/<execution>-<attempt>/<n>/backward.json  how the changes of a folder are undone

A receipt names the SHA-256 of `record.json` as it was when the tool had ended. A record of kind
CHANGES names it after each later decision, or says that the transaction is gone. `record.json`
names the SHA-256 of `backward.json`.

Contents (`old`, `after`, and the layers of changes that wait) are not looked at here. Their digests
are in the two files, and each content is compared with its digest whenever it is used: a program
that has a replaced file open may go on writing to it, which is nobody's attack.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from actum.contract.canonical import sha256_bytes
from actum.evidence.findings import Finding, difference, guarded, judged
from actum.evidence.log_facts import SettledChanges
from actum.evidence.unbound import Unbound
from actum.store import plain_files
from actum.store.plain_files import NotPlain
from actum.store.snapshot import Snapshot

_FOLDER = "transactions"
_RECORD, _BACKWARD = "record.json", "backward.json"
_NO_TRANSACTIONS = ("lock", "looked-at")
_GONE = ("discarded", "removed")
_MOST_BYTES = 1 << 30


def transaction_findings(
    home: Path,
    database: Snapshot,
    signed: Mapping[str, str],
    settled: Mapping[str, SettledChanges],
    unbound: Unbound,
) -> Iterator[Finding]:
    """Every transaction. `signed` has the digests of records that receipts name, `settled` what
    the log says of those that were decided later; both by transaction."""
    expected = {name: SettledChanges("", sha256) for name, sha256 in signed.items()} | dict(settled)
    with plain_files.opened(home) as root:
        there = set(_names(root))
        for name, known in expected.items():
            path = f"{_FOLDER}/{name}"
            if known.state in _GONE:
                detail = f"it is there, and was {known.state} on record"
                yield judged(f"file {path}", "record", name not in there, detail)
            else:
                found = _kept(root, path, known.record_sha256)
                yield from guarded(f"file {path}/{_RECORD}", "content", found)
        for name in sorted(there - expected.keys()):
            yield from _unnamed(root, name, database, unbound)


def _kept(root: int, path: str, sha256: str) -> Iterator[Finding]:
    try:
        text = plain_files.content(root, f"{path}/{_RECORD}", _MOST_BYTES)
    except NotPlain as problem:
        detail = f"{problem}; a receipt or an audit record names it"
        yield Finding(f"file {path}/{_RECORD}", "content", False, detail)
        return
    digest = sha256_bytes(text)
    differs = difference("SHA-256", sha256, digest)
    yield judged(f"file {path}/{_RECORD}", "content", digest == sha256, differs)
    if digest == sha256:
        yield from _backward(root, path, json.loads(text))


def _backward(root: int, path: str, record: Mapping[str, Any]) -> Iterator[Finding]:
    rooms = [room for _grant, room in record["layers"]]
    # Changes that wait have none.
    for room, sha256 in zip(rooms, record["backward_sha256"], strict=False):
        file = f"{path}/{room}/{_BACKWARD}"
        try:
            found = plain_files.file_held(root, file).sha256
        except NotPlain as problem:
            yield Finding(f"file {file}", "content", False, f"{problem}; an undo needs it")
            continue
        yield judged(
            f"file {file}", "content", found == sha256, difference("SHA-256", sha256, found)
        )


def _unnamed(root: int, name: str, database: Snapshot, unbound: Unbound) -> Iterator[Finding]:
    """A transaction that neither a receipt nor the log names."""
    path = f"{_FOLDER}/{name}"
    if not plain_files.is_there(root, f"{path}/{_RECORD}"):
        return  # under way, or dropped by the next command
    row = database.row(
        "SELECT receipt_id FROM executions WHERE execution_id = ?", (name.rpartition("-")[0],)
    )
    if row is None:
        yield Finding(f"file {path}", "record", False, "no execution has this id")
    elif row[0] is not None:
        # Its process was killed between the commit and the receipt.
        unbound.count("transactions of executions that were interrupted")


def _names(root: int) -> Iterator[str]:
    try:
        names = plain_files.names(root, _FOLDER)
    except NotPlain:
        return
    for name in names:
        if name not in _NO_TRANSACTIONS and not name.startswith("."):
            yield name
