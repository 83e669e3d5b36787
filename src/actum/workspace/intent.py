"""The intent of a transaction: the file that decides a commit or an undo.

A process that is killed before the intent has its name has changed nothing. Any later command
finishes an intent (`retention.recover`).
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from actum import removal
from actum.contract.canonical import sha256_bytes
from actum.runners.layers import COPY, LAYERS
from actum.store.whole_file import write_whole
from actum.workspace import commit
from actum.workspace.commit import Step
from actum.workspace.copies import COPY_LIST
from actum.workspace.grant_layer import opened
from actum.workspace.transaction_record import RECORD, Kept, Tell, home_of

INTENT = "intent.json"
#: Removed from each layer's folder when a transaction is decided.
_TREES = (*LAYERS, COPY, COPY_LIST)

#: Of one folder: its path, the name of its layer's folder, the steps, and the state before them.
Part = tuple[str, str, Iterable[Step], Iterable[Step]]


@contextlib.contextmanager
def locked(transactions: Path) -> Iterator[None]:
    """Commits, undos, decisions and recovery of one home happen one after the other."""
    descriptor = os.open(transactions / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def write(folder: Path, record: bytes, parts: Iterable[Part]) -> None:
    body = {
        "v": 1,
        "home": home_of(folder),
        "record": record.decode(),
        "rooms": [
            {
                "base": base,
                "room": layer,
                "steps": [step.document() for step in steps],
                "before": [step.document() for step in before],
            }
            for base, layer, steps, before in parts
        ],
    }
    text = json.dumps(body, sort_keys=True)
    document = {"body": text, "sha256": sha256_bytes(text.encode())}
    write_whole(folder / INTENT, json.dumps(document).encode(), synced=False)


def read(folder: Path) -> dict[str, Any]:
    document = json.loads((folder / INTENT).read_bytes())
    if sha256_bytes(document["body"].encode()) != document["sha256"]:
        raise commit.WorkspaceDamaged(
            f"{folder / INTENT} does not match its own digest.",
            remedy="Check the files of the project; restore missing ones from a backup.",
        )
    body: dict[str, Any] = json.loads(document["body"])
    return body


def carry_through(folder: Path, tell: Tell, *, again: bool) -> None:
    """Apply the intent, and store what an undo and a diff need. The intent is removed last: until
    then the next command applies it again."""
    body = read(folder)
    for each in body["rooms"]:
        layer = folder / each["room"]
        if not (layer / "new").exists():
            continue  # applied by a process that was killed later
        steps: Iterable[Step] = map(Step.read, each["steps"])
        with opened(each["base"]) as base:
            if again:
                steps = commit.left_to_do(steps, map(Step.read, each["before"]), base, layer)
            commit.apply(steps, base, layer / "new", synced=False)
        removal.remove_part(layer, "new")
    for each in body["rooms"]:
        for tree in _TREES:
            removal.remove_part(folder / each["room"], tree)
    record = body["record"].encode()
    write_whole(folder / RECORD, record, synced=False)
    tell(Kept(folder, record))
    os.unlink(folder / INTENT)
