"""An item that is ready and waits for its turn: stored so that any later process can commit it.

Its process writes everything that the commit needs beside the staged content, and ends. Nothing of
the project was changed, so whatever happens next is right: another process commits the item when
its turn comes, after checking every staged file against its digest. Recovery leaves such an item
alone; a continued run adopts it and does not run it again.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from datetime import datetime
from typing import Any, Final
from urllib.parse import quote_from_bytes, unquote_to_bytes

from actum import kernel
from actum.contract.canonical import sha256_bytes
from actum.contract.model import Json
from actum.errors import Fault
from actum.value import replace, value
from actum.work.admission import ToolOp, make_capsule
from actum.work.item_state import ItemContext, Run, declared_outputs
from actum.work.model import WorkItem
from actum.work.work_receipt import Before
from actum.workspace import commit, files
from actum.workspace.space import READY
from actum.workspace.tree import Change, Entry, Kind, shown


@value
class Held:
    """The outcome of a step whose item is stored and not committed yet."""


HELD: Final = Held()


class HeldChanged(Fault):
    """The stored work of an item was changed before it could be committed."""

    code = "WORK_HELD_CHANGED"


def hold(run: Run, context: ItemContext) -> None:
    """Store a run that is ready; durable when this returns."""
    before, room = run.before, run.room
    body: dict[str, Json] = {
        "v": 1,
        "run_id": before.run_id,
        "receipt_id": before.receipt_id,
        "item": before.item.document(),
        "agent_sha256": before.agent_sha256,
        "started_at": before.started_at.isoformat(),
        "elapsed_s": time.monotonic() - run.began,
        "waiting_s": run.waiting_s,
        "state": run.state,
        "looked": run.looked,
        "tested_on": run.tested_on,
        "engine": run.engine,
        "run_hash": run.run_hash,
        "test_exit": run.test_exit,
        "test_output": run.test_output,
        "counted": None if run.counted is None else list(run.counted),
        "delta": [_change_document(change) for change in run.delta],
        "tool_trace": [
            {name: getattr(op, name) for name in _OP_FIELDS} for op in run.capsule.tool_trace
        ],
    }
    text = json.dumps(body, sort_keys=True)
    document = {"body": text, "sha256": sha256_bytes(text.encode())}
    unnamed = room / f"{READY}.new"
    unnamed.write_text(json.dumps(document))
    folder = os.open(context.space.folder, files.FOLDER_FLAGS)
    try:
        kernel.syncfs(folder)  # the staged files and this one
    finally:
        os.close(folder)
    os.replace(unnamed, room / READY)
    commit.sync_folder(room)


_OP_FIELDS = ("tool_id", "input_digest", "outcome", "execution_id", "receipt_id", "duration_ms")


def taken_up(item: WorkItem, context: ItemContext, run_id: str) -> Run:
    """A held run, in the process that will commit it. Raises `HeldChanged`."""
    room = context.space.run_folders / run_id
    document = json.loads((room / READY).read_bytes())
    body: dict[str, Any] = json.loads(document["body"])
    sound = sha256_bytes(document["body"].encode()) == document["sha256"]
    if not sound or (body["run_id"], body["item"]) != (run_id, item.document()):
        raise _changed(READY)
    now = time.monotonic()
    run = Run(
        Before(
            run_id=run_id,
            item=item,
            agent_sha256=body["agent_sha256"],
            workspace=context.space.base,
            started_at=datetime.fromisoformat(body["started_at"]),
            receipt_id=body["receipt_id"],
        ),
        now + body["waiting_s"],
        now - body["elapsed_s"],
        room,
    )
    for name in ("waiting_s", "state", "looked", "tested_on", "engine", "run_hash"):
        setattr(run, name, body[name])
    run.recorded = run.held = True
    run.test_exit, run.test_output = body["test_exit"], body["test_output"]
    run.counted = None if body["counted"] is None else (body["counted"][0], body["counted"][1])
    run.delta = tuple(_change(each) for each in body["delta"])
    trace = tuple(ToolOp(**each) for each in body["tool_trace"])
    run.capsule = replace(
        make_capsule(run.delta, trace, declared_outputs(item, context)), tool_trace=trace
    )
    _require_unchanged(run)
    context.space.own(room)
    return run


def _require_unchanged(run: Run) -> None:
    folder = os.open(run.room / "new", files.FOLDER_FLAGS)
    try:
        for name, change in _staged(run):
            look = files.look(name, folder)
            wanted = change.after
            if look is None or wanted is None:
                raise _changed(shown(change.path))
            if files.entry_of(look, files.read_digest(name, folder, look)) != wanted:
                raise _changed(shown(change.path))
    finally:
        os.close(folder)


def _staged(run: Run) -> Iterator[tuple[bytes, Change]]:
    for number, change in enumerate(run.delta):
        if change.after is not None and change.after.kind in (Kind.FILE, Kind.LINK):
            yield b"%d" % number, change


def _changed(what: str) -> HeldChanged:
    return HeldChanged(
        f"{what}: the stored work of this item was changed before it was committed.",
        remedy="Nothing was committed. Run the item again.",
    )


def _change_document(change: Change) -> list[Json]:
    return [
        quote_from_bytes(change.path),
        _entry_document(change.before),
        _entry_document(change.after),
    ]


def _entry_document(entry: Entry | None) -> Json:
    return None if entry is None else [entry.kind.value, entry.mode, entry.digest.hex()]


def _change(document: list[Any]) -> Change:
    path, before, after = document
    return Change(unquote_to_bytes(path), _entry(before), _entry(after))


def _entry(document: list[Any] | None) -> Entry | None:
    if document is None:
        return None
    kind, mode, digest = document
    return Entry(Kind(kind), mode, bytes.fromhex(digest))
