"""Compares the stored files of transactions with receipts and audit records.

    transactions/<execution>-<attempt>/record.json        state, changes and their digests
    transactions/<execution>-<attempt>/<n>/backward.json  how the changes of a folder are undone

A receipt names the SHA-256 of `record.json` as it was when the tool had ended. A record of kind
CHANGES names it after each later decision, or says that the transaction is gone. `record.json`
names the SHA-256 of `backward.json`.

Contents (`old`, `after`, and the layers of changes that wait) are not checked here. Their digests
are in the two files, and each content is compared with its digest whenever it is used: a program
that has a replaced file open may go on writing to it, which is no attack.
"""

from __future__ import annotations

import fcntl
import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from actum.contract.canonical import sha256_bytes
from actum.contract.outcome import Outcome
from actum.evidence.verify.findings import Finding, difference, guarded, judged
from actum.evidence.verify.log_facts import SettledChanges
from actum.evidence.verify.unbound import Unbound
from actum.store import plain_files
from actum.store.plain_files import NotPlain
from actum.store.snapshot import Snapshot
from actum.value import value

_FOLDER = "transactions"
_RECORD, _BACKWARD, _INTENT = "record.json", "backward.json", "intent.json"
_NO_TRANSACTIONS = ("lock", "looked-at")
_GONE = ("discarded", "removed")
_MOST_BYTES = 1 << 30
_MISSING = "it is missing"
_WAIT_S, _POLL_S = 30.0, 0.005
#: The outcome of an execution whose process was killed between the commit and the receipt.
_CUT_SHORT = Outcome.EXCEPTION.value


@value
class Kept:
    """What is on the disk of one transaction."""

    record_sha256: str | None
    problem: str  #: why the record cannot be read
    is_decided: bool  #: whether there is an intent, which the next command carries out
    backward: tuple[Finding, ...]


@contextmanager
def standing_still(home: Path) -> Iterator[None]:
    """No commit, undo or removal of a transaction is under way meanwhile, so that files and records
    taken here belong together. After some seconds it goes on all the same."""
    try:
        descriptor = os.open(home / _FOLDER / "lock", os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError:
        yield  # there are none, or what is there is no lock
        return
    try:
        until = time.monotonic() + _WAIT_S
        while not _is_locked(descriptor) and time.monotonic() < until:
            time.sleep(_POLL_S)
        yield
    finally:
        os.close(descriptor)


def _is_locked(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


@value
class KeptTransactions:
    problem: str  #: why their folder cannot be read
    kept: Mapping[str, Kept]  #: by name


def look_at_transactions(home: Path) -> KeptTransactions:
    """What is on the disk now."""
    with plain_files.opened(home) as root:
        try:
            names = plain_files.names(root, _FOLDER)
        except NotPlain as problem:
            said = "" if str(problem) == _MISSING else str(problem)
            return KeptTransactions(problem=said, kept={})
        found = {
            name: _kept(root, f"{_FOLDER}/{name}")
            for name in names
            if name not in _NO_TRANSACTIONS and not name.startswith(".")
        }
    return KeptTransactions(problem="", kept=found)


def transaction_findings(
    transactions: KeptTransactions,
    database: Snapshot,
    signed: Mapping[str, str],
    settled: Mapping[str, SettledChanges],
    unbound: Unbound,
) -> Iterator[Finding]:
    """Every transaction. `signed` has the digests of records that receipts name, `settled` what
    the log says of those that were decided later; both by transaction."""
    there = transactions.kept
    if transactions.problem:
        yield Finding(f"file {_FOLDER}", "content", False, transactions.problem)
    expected = {name: SettledChanges("", sha256) for name, sha256 in signed.items()} | dict(settled)
    for name, known in expected.items():
        path = f"{_FOLDER}/{name}"
        if known.state in _GONE:
            detail = f"it is there, and was {known.state} on record"
            yield judged(f"file {path}", "record", name not in there, detail)
        else:
            yield from _named(f"{path}/{_RECORD}", there.get(name), known.record_sha256)
    for name in sorted(there.keys() - expected.keys()):
        yield from _unnamed(name, there[name], database, unbound)


def _kept(root: int, path: str) -> Kept:
    is_decided = plain_files.is_there(root, f"{path}/{_INTENT}")
    try:
        text = plain_files.content(root, f"{path}/{_RECORD}", _MOST_BYTES)
    except NotPlain as problem:
        return Kept(record_sha256=None, problem=str(problem), is_decided=is_decided, backward=())
    digest = sha256_bytes(text)
    # Of a record that was changed nothing else is said.
    found = tuple(guarded(f"file {path}", "content", _backward(root, path, text)))
    return Kept(record_sha256=digest, problem="", is_decided=is_decided, backward=found)


def _named(subject: str, kept: Kept | None, sha256: str) -> Iterator[Finding]:
    if kept is None or kept.record_sha256 is None:
        problem = kept.problem if kept else _MISSING
        detail = f"{problem}; a receipt or an audit record names it"
        yield Finding(f"file {subject}", "content", False, detail)
        return
    same = kept.record_sha256 == sha256
    differs = difference("SHA-256", sha256, kept.record_sha256)
    yield judged(f"file {subject}", "content", same, differs)
    if same:
        yield from kept.backward


def _backward(root: int, path: str, text: bytes) -> Iterator[Finding]:
    record = json.loads(text)
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


def _unnamed(name: str, kept: Kept, database: Snapshot, unbound: Unbound) -> Iterator[Finding]:
    """A transaction that neither a receipt nor the log names."""
    path = f"{_FOLDER}/{name}"
    if kept.problem == _MISSING and not kept.is_decided:
        return  # under way, or dropped by the next command
    row = database.row(
        "SELECT outcome, receipt_id FROM executions WHERE execution_id = ?",
        (name.rpartition("-")[0],),
    )
    if row is None:
        yield Finding(f"file {path}", "record", False, "no execution has this id")
    elif row[1] is None:
        return  # its execution is not closed
    elif row[0] == _CUT_SHORT:
        unbound.count("transactions", "their process was killed before a record was written")
    else:
        detail = "the receipt of its execution names no such record"
        yield Finding(f"file {path}", "record", False, detail)
