"""Compares the files of work items with the audit records that closed their runs.

    receipts/work/<receipt>/RECEIPT.json   the signed receipt, for people
    receipts/work/<receipt>/replay-*.sh    the script that does the work again
    work/<space>/kept/<run>/backward.json  how the run is undone
    work/<space>/kept/<run>/old/           what an undo puts back
    work/<space>/kept/<run>/met/           what recovery kept of people's edits
    work/<space>/base                      whose space it is
    work/<space>/intent.json               a commit that was decided and not finished

A closing record names the SHA-256 of the first three, and `backward.json` the digests of the
fourth. The other files of a space hold nothing that is relied on: two locks, and an index that a
scan makes again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import Any

from blake3 import blake3

from actum import removal
from actum.contract.canonical import sha256_bytes
from actum.contract.model import Json
from actum.evidence.records.work_names import BACKWARD, MET, RECEIPT
from actum.evidence.verify.findings import DATA_ERRORS, Finding, difference, guarded, judged, said
from actum.evidence.verify.unbound import Unbound
from actum.evidence.verify.work_findings import read_work_receipt
from actum.store import plain_files
from actum.store.keys import PublicKey
from actum.store.plain_files import NotPlain
from actum.value import value

_OLD = "old"
_OWNER = "owner"  #: versions before records bound these files left it behind
_RECEIPTS, _SPACES = "receipts/work", "work"
_MOST_BYTES = 64 << 20
_INTENT = "intent.json"
#: Files of a space that hold nothing but what a scan of the project finds again.
_CACHES = frozenset({"lock", "index.lock", "index.db", "index.db-wal", "index.db-shm"})
_ENTRIES = frozenset({"rooms", "kept", "base", _INTENT, f"{_INTENT}.new", *_CACHES})


@value
class ClosedRun:
    """A run whose receipt has a good signature."""

    run_id: str
    receipt_id: str
    receipt_sha256: str
    workspace: str
    committed: bool  #: it changed the project, so its undo is stored
    files: Mapping[str, Json] | None  #: of its closing record; ``None``: of an older version


def work_file_findings(
    home: Path,
    runs: Mapping[str, ClosedRun],
    trusted: Mapping[str, PublicKey],
    unbound: Unbound,
) -> Iterator[Finding]:
    """Every file of every run in `runs`, and files that belong to no run. `runs` is by run."""
    with plain_files.opened(home) as root:
        interrupted = yield from _space_findings(root, home, runs, trusted)
        for run in runs.values():
            yield from _receipt_folder(root, run, unbound)
            if run.committed and run.run_id not in interrupted:
                yield from _kept_folder(root, run, unbound)
        yield from _unknown_receipts(root, runs, trusted)


# Receipt and script


def _receipt_folder(root: int, run: ClosedRun, unbound: Unbound) -> Iterator[Finding]:
    folder = f"{_RECEIPTS}/{run.receipt_id}"
    expected = {RECEIPT: run.receipt_sha256, **_handed_out(run)}
    for name, digest in expected.items():
        yield _file(root, f"{folder}/{name}", digest)
    for name in _names(root, folder):
        if name in expected:
            continue
        if run.files is None and name.startswith("replay-"):
            unbound.count("replay scripts")
        else:
            yield _unknown(f"{folder}/{name}", "the record of its run names no such file")


def _handed_out(run: ClosedRun) -> dict[str, Json]:
    return {
        name: digest
        for name, digest in (run.files or {}).items()
        if name != BACKWARD and not name.startswith(f"{MET}/")
    }


def _unknown_receipts(
    root: int, runs: Mapping[str, ClosedRun], trusted: Mapping[str, PublicKey]
) -> Iterator[Finding]:
    known = {run.receipt_id for run in runs.values()}
    for name in _names(root, _RECEIPTS):
        if name in known:
            continue
        path = f"{_RECEIPTS}/{name}"
        try:
            text = plain_files.content(root, f"{path}/{RECEIPT}", _MOST_BYTES)
            signed = read_work_receipt(json.loads(text), trusted)["receipt_id"] == name
        except (NotPlain, *DATA_ERRORS):
            signed = False
        if _is_empty(root, path):
            # Made before the receipt that it was for: a crash or a full disk came in between.
            yield Finding(f"file {path}", "record", True, "an empty folder")
        elif signed:
            # Written before the commit that would have closed its run: a crash came in between.
            yield Finding(f"file {path}", "record", True, "its run was closed by another receipt")
        else:
            yield _unknown(path, "no work receipt has this id")


# Files that an undo needs


def _kept_folder(root: int, run: ClosedRun, unbound: Unbound) -> Iterator[Finding]:
    folder = f"{_SPACES}/{space_name(run.workspace)}/kept/{run.run_id}"
    bound = None if run.files is None else run.files.get(BACKWARD)
    allowed = {BACKWARD, _OLD, MET}
    if bound is None:
        unbound.count("files for an undo")
        allowed.add(_OWNER)
    else:
        finding = _file(root, f"{folder}/{BACKWARD}", bound)
        yield finding
        if not finding.passed:
            return
    subject = f"file {folder}/{BACKWARD}"
    yield from guarded(subject, "shape", _old_files(root, folder))
    met = {
        name.removeprefix(f"{MET}/"): digest
        for name, digest in (run.files or {}).items()
        if name.startswith(f"{MET}/")
    }
    for name, digest in met.items():
        yield _file(root, f"{folder}/{MET}/{name}", digest, links=True)
    if bound is not None:
        for name in _names(root, f"{folder}/{MET}"):
            if name not in met:
                yield _unknown(f"{folder}/{MET}/{name}", "the record of its run names no such file")
    for name in _names(root, folder):
        if name not in allowed:
            yield _unknown(f"{folder}/{name}", "no run keeps such a file")


def _old_files(root: int, folder: str) -> Iterator[Finding]:
    """What an undo puts back: kind, mode and content are those that its steps name."""
    try:
        steps = json.loads(plain_files.content(root, f"{folder}/{BACKWARD}", _MOST_BYTES))
    except NotPlain as problem:
        yield Finding(f"file {folder}/{BACKWARD}", "content", False, str(problem))
        return
    staged = {step["staged"]: step for step in steps if step["staged"]}
    for name, step in staged.items():
        yield _old_file(root, f"{folder}/{_OLD}/{name}", step)
    for name in _names(root, f"{folder}/{_OLD}"):
        if name not in staged:
            yield _unknown(f"{folder}/{_OLD}/{name}", f"{BACKWARD} names no such file")


def _old_file(root: int, path: str, step: Mapping[str, Any]) -> Finding:
    subject = f"file {path}"
    try:
        found = plain_files.held(root, path)
    except NotPlain as problem:
        return Finding(subject, "content", False, f"{problem}; an undo needs it")
    expected = ("l" if found.link else "f", found.mode, found.blake3)
    wanted = (step["kind"], step["mode"], step["digest"])
    names = ("kind", "mode", "BLAKE3")
    differing = [
        difference(what, want, have)
        for what, want, have in zip(names, wanted, expected, strict=True)
        if want != have
    ]
    return judged(subject, "content", not differing, "; ".join(differing))


# Spaces


def _space_findings(
    root: int, home: Path, runs: Mapping[str, ClosedRun], trusted: Mapping[str, PublicKey]
) -> Generator[Finding, None, set[str]]:
    """The files that a space has for itself. Returns the runs whose commit was interrupted."""
    interrupted: set[str] = set()
    for name in _names(root, _SPACES):
        folder = f"{_SPACES}/{name}"
        if removal.is_removable(home / folder):
            continue  # of one command, which removes it
        yield _base(root, folder, name)
        if plain_files.is_there(root, f"{folder}/{_INTENT}"):
            found = yield from _intent(root, f"{folder}/{_INTENT}", trusted)
            interrupted.add(found)
        for entry in _names(root, folder):
            if entry not in _ENTRIES:
                yield _unknown(f"{folder}/{entry}", "no space holds such a file")
        for run_id in _names(root, f"{folder}/kept"):
            if run_id not in runs:
                yield _unknown(f"{folder}/kept/{run_id}", "no committed run has this id")
    return interrupted


def _base(root: int, folder: str, name: str) -> Finding:
    subject = f"file {folder}/base"
    try:
        found = plain_files.content(root, f"{folder}/base", _MOST_BYTES)
    except NotPlain as problem:
        return Finding(subject, "content", False, str(problem))
    digest = blake3(found).hexdigest()[:16]
    return judged(subject, "content", digest == name, difference("BLAKE3", name, digest))


def _intent(
    root: int, path: str, trusted: Mapping[str, PublicKey]
) -> Generator[Finding, None, str]:
    """A commit that was decided. Returns its run."""
    subject = f"file {path}"
    try:
        document = json.loads(plain_files.content(root, path, _MOST_BYTES))
        body = json.loads(document["body"])
        whole = sha256_bytes(document["body"].encode()) == document["sha256"]
        receipt = read_work_receipt(json.loads(body["record"]["receipt"]), trusted)
        same = receipt["run_id"] == body["room"] == body["record"]["run_id"]
    except (NotPlain, *DATA_ERRORS) as error:
        yield Finding(subject, "content", False, f"it cannot be read: {said(error)}")
        return ""
    yield judged(subject, "content", whole and same, "it is not the intent of the receipt in it")
    return str(body["room"])


def space_name(workspace: str) -> str:
    """The name of the folder that a workspace has below `work/`."""
    return blake3(os.fsencode(workspace)).hexdigest()[:16]


# One file


def _file(root: int, path: str, sha256: Json, *, links: bool = False) -> Finding:
    subject = f"file {path}"
    try:
        found = plain_files.held(root, path) if links else plain_files.file_held(root, path)
    except NotPlain as problem:
        return Finding(subject, "content", False, f"{problem}; an audit record names it")
    differs = difference("SHA-256", sha256, found.sha256)
    return judged(subject, "content", found.sha256 == sha256, differs)


def _unknown(path: str, why: str) -> Finding:
    return Finding(f"file {path}", "record", False, why)


def _is_empty(root: int, folder: str) -> bool:
    """Whether it is a folder, and no link, with nothing in it."""
    try:
        return not plain_files.names(root, folder)
    except NotPlain:
        return False


def _names(root: int, folder: str) -> tuple[str, ...]:
    """The names in a folder; none if it is missing. Other defects are reported by file."""
    try:
        return plain_files.names(root, folder)
    except NotPlain:
        return ()
