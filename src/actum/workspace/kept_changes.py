"""A person's decision about recorded changes: commit, discard or undo."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from actum import removal
from actum.contract.canonical import sha256_bytes
from actum.errors import Refused
from actum.evidence.records.work_names import BACKWARD
from actum.workspace import commit, files, intent
from actum.workspace.changes import Changes, entry_document, joined_path
from actum.workspace.commit import Step
from actum.workspace.grant_layer import Layer, opened, opened_base
from actum.workspace.intent import Part, locked
from actum.workspace.retention import retire
from actum.workspace.transaction import Transaction
from actum.workspace.transaction_record import Kept, Tell
from actum.workspace.tree import Kind, unshown


def decide(
    kept: Kept,
    *,
    commit_it: bool,
    over: bool = False,
    conflicts: Callable[[Changes], tuple[str, ...]] = lambda changes: changes.overtaken,
    require: Callable[[Changes], None] = lambda _changes: None,
    tell: Tell = lambda _kept: None,
) -> str:
    """Commit or discard a transaction that waits. Returns its state.

    `over`: also overwrite what other programs have changed since. `require` refuses changes whose
    meaning has changed since they were shown.
    """
    if not kept.waits:
        raise Refused(
            "TRANSACTION_DECIDED",
            f"{kept.name}: this transaction is {kept.state}; there is nothing to decide.",
            remedy="`actum diff` without an ID lists those that wait.",
        )
    if not commit_it:
        with locked(kept.folder.parent):
            kept.require_current()
            retire(kept.folder, tell)
        return "discarded"
    kept.require_here()

    def judge(changes: Changes) -> tuple[str, ...]:
        kept.require_current()
        if not _are_shown(kept, changes):
            raise Refused(
                "CHANGES_DIFFER",
                f"{kept.name} does not hold the changes that were shown.",
                remedy="`actum diff ID --discard` drops them; run the tool again.",
            )
        require(changes)
        return ()

    transaction = Transaction(
        kept.folder,
        tuple(
            Layer(grant=grant, folder=str(kept.folder / layer), placed=placed)
            for (grant, layer), placed in zip(kept.layers, kept.placed, strict=True)
        ),
        kept.since_ns,
        waited=True,
        over=over,
    )
    return transaction.commit(judge, conflicts=conflicts, tell=tell)[1]


def undo(kept: Kept, tell: Tell = lambda _kept: None) -> None:
    """Restore the state before a commit. Refuses if one of the paths was changed since."""
    if kept.state != "committed":
        raise Refused(
            "TRANSACTION_NOT_COMMITTED",
            f"{kept.name}: this transaction is {kept.state}; there is nothing to undo.",
            remedy="Only changes that were committed can be undone.",
        )
    kept.require_here()
    with locked(kept.folder.parent):
        kept.require_current()
        parts: list[Part] = []
        for number, (grant, layer) in enumerate(kept.layers):
            document = kept.changes[number]
            _require_unchanged(grant, document["changes"])
            folder = kept.folder / layer
            steps = _backward(kept, number, folder)
            removal.remove_part(folder, "new")  # left by a process that was killed
            commit.stage_backward(steps, folder / "old", folder / "new")
            parts.append((grant, layer, steps, _forward(document["changes"])))
        record = json.dumps({**kept.record, "state": "undone"}).encode()
        intent.write(kept.folder, record, parts)
        intent.carry_through(kept.folder, tell, again=False)


def _backward(kept: Kept, number: int, folder: Path) -> tuple[Step, ...]:
    if sha256_bytes((folder / BACKWARD).read_bytes()) != kept.record["backward_sha256"][number]:
        raise Refused(
            "CHANGES_DIFFER",
            f"{folder / BACKWARD} does not match the record of the transaction.",
            remedy="Nothing was changed. `actum verify --all` lists everything that differs.",
        )
    return commit.backward_steps(folder)


def _are_shown(kept: Kept, changes: Changes) -> bool:
    """Whether these are the changes of the record, without those that the project already has:
    another execution may have made the same folder."""
    recorded, found = _wanted(kept.changes), _wanted(changes.document())
    if not found.items() <= recorded.items():
        return False
    for grant, folder in kept.layers:
        missing = [
            (path, after)
            for (of, path), after in recorded.items()
            if of == grant and (of, path) not in found
        ]
        if missing:
            with opened_base(Layer(grant=grant, folder=folder)) as base:
                for path, after in missing:
                    if entry_document(files.entry_at(unshown(path), base)) != after:
                        return False
    return True


def _wanted(changes: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str], Any]:
    """The state that changes lead to, by folder and path, whatever the current one is."""
    return {
        (each["grant"], change["path"]): change["after"]
        for each in changes
        for change in each["changes"]
    }


def _require_unchanged(grant: str, changes: Iterable[Mapping[str, Any]]) -> None:
    with opened(grant) as base:
        for change in changes:
            path = unshown(change["path"])
            if entry_document(files.entry_at(path, base)) != change["after"]:
                raise Refused(
                    "UNDO_CHANGED",
                    f"{joined_path(grant, path)} was changed after this execution.",
                    remedy="Nothing was changed. `actum diff ID` shows what to restore by hand.",
                )


def _forward(changes: Iterable[Mapping[str, Any]]) -> Iterator[Step]:
    """The state before an undo. Only paths and digests matter here."""
    for change in changes:
        after = change["after"]
        yield Step(
            path=unshown(change["path"]),
            kind=Kind(after[0]) if after else None,
            digest=after[2] if after else "",
        )
