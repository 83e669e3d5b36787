"""Compares a commit that was decided but not finished with the receipt that was signed for it.

Recovery will finish it. So its steps must be the changes that the receipt names, and the staged
files must be those that the steps name. `evidence.work_files` checks that the receipt itself is
signed and belongs to this run.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from actum.evidence.verify.findings import Finding, difference, judged
from actum.evidence.verify.work_findings import read_work_receipt
from actum.store import plain_files
from actum.store.keys import PublicKey
from actum.store.plain_files import NotPlain
from actum.work.admission import entry_text
from actum.workspace.commit import Step, pending_intent
from actum.workspace.space import Space
from actum.workspace.tree import Entry, Kind, parent_of, shown

_MOST_SHOWN = 3


def intent_findings(home: Path, trusted: Mapping[str, PublicKey]) -> Iterator[Finding]:
    space = Space(home, home.parent, looks=True)
    body = pending_intent(space.folder)
    if body is None:
        return
    folder = space.folder.relative_to(home)
    subject = f"file {folder}/intent.json"
    steps = [Step.read(step) for step in body["steps"]]
    predicate: Any = read_work_receipt(json.loads(body["record"]["receipt"]), trusted)
    wrong = list(_other_steps(steps, predicate["capsule"]["deltas"]))
    yield judged(subject, "steps", not wrong, "; ".join(wrong[:_MOST_SHOWN]))
    with plain_files.opened(home) as root:
        for step in steps:
            path = f"{folder}/rooms/{body['room']}/new/{step.staged}"
            if step.staged and plain_files.is_there(root, path):  # else it was already applied
                yield _staged(root, path, step)


def _other_steps(
    steps: list[Step], deltas: Mapping[str, list[tuple[str, str, str | None, str | None]]]
) -> Iterator[str]:
    """Steps that differ from the changes of the receipt."""
    signed = {target: after for part in deltas.values() for _, target, _, after in part}
    # A folder created or deleted with its content is not a change of its own (`make_capsule`).
    holding = {parent_of(step.path) for step in steps if step.path}
    for step in steps:
        target, after = shown(step.path) or ".", _after(step)
        if target in signed:
            expected = signed.pop(target)
            if expected != after:
                yield difference(target, expected, after)
        elif step.path not in holding or step.kind not in (Kind.FOLDER, None):
            yield f"{target}: the receipt names no such change"
    for target, expected in signed.items():
        yield difference(target, expected, None)


def _after(step: Step) -> str | None:
    if step.kind is None:
        return None
    return entry_text(Entry(step.kind, step.mode, bytes.fromhex(step.digest)))


def _staged(root: int, path: str, step: Step) -> Finding:
    subject = f"file {path}"
    try:
        found = plain_files.held(root, path)
    except NotPlain as problem:
        return Finding(subject, "content", False, str(problem))
    kind = Kind.LINK if found.link else Kind.FILE
    same = (kind, found.mode, found.blake3) == (step.kind, step.mode, step.digest)
    return judged(subject, "content", same, difference("BLAKE3", step.digest, found.blake3))
