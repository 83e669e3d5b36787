"""Admission of a run's changes: four rules, in order; the first broken rule gives the reason.

A pure function of a capsule, which describes what a run did. It reads no file and has no state.
"""

from __future__ import annotations

import os
from collections.abc import Container, Mapping
from pathlib import Path, PurePosixPath

from blake3 import blake3

from actum.contract.canonical import canonical
from actum.contract.model import Json
from actum.value import value
from actum.work.model import Constraints, WorkItem
from actum.workspace.tree import Action, Change, Delta, Entry, Kind, parent_of, shown


@value
class Artifact:
    """A result of a run. Only artifacts with a path are files."""

    type: str  #: create, edit, delete or command
    path: str | None = None
    content_hash: str | None = None


@value
class ToolOp:
    """One call of a tool, described by digests."""

    tool_id: str
    input_digest: str
    outcome: str
    execution_id: str = ""
    receipt_id: str = ""
    duration_ms: int = 0

    @property
    def substance(self) -> list[Json]:
        """The call without ids and times: equal calls have equal substance."""
        return [self.tool_id, self.input_digest, self.outcome]


@value
class Resource:
    """One changed resource, in exactly one class."""

    action: str
    target: str
    before: str | None
    after: str | None

    def document(self) -> list[Json]:
        return [self.action, self.target, self.before, self.after]


@value
class RunCapsule:
    artifacts: tuple[Artifact, ...] = ()
    tool_trace: tuple[ToolOp, ...] = ()
    delta_o: tuple[Resource, ...] = ()  #: files and records
    delta_pi: tuple[Resource, ...] = ()  #: derived files: the declared outputs
    delta_lambda: tuple[Resource, ...] = ()  #: governing files: policy and configuration
    delta_q: tuple[Resource, ...] = ()  #: tests
    odd: tuple[str, ...] = ()  #: pipes, sockets and devices, which a state cannot represent

    @property
    def files(self) -> frozenset[str]:
        return frozenset(item.path for item in self.artifacts if item.path is not None)

    @property
    def delta_size(self) -> int:
        parts = (self.delta_o, self.delta_pi, self.delta_lambda, self.delta_q)
        return sum(map(len, parts))


@value(kw_only=False)
class Admission:
    ok: bool
    reason: str | None = None


def check_admission(
    capsule: RunCapsule,
    constraints: Constraints,
    history: Container[str] = frozenset(),
    run_hash: str = "",
) -> Admission:
    """`history` holds the hashes of all admitted runs."""
    files, ops, size = len(capsule.files), len(capsule.tool_trace), capsule.delta_size
    if files > constraints.max_files:
        return Admission(False, f"Exceeded max files: {files} > {constraints.max_files}")
    if ops > constraints.max_tool_ops:
        return Admission(False, f"Exceeded max tool ops: {ops} > {constraints.max_tool_ops}")
    if size > constraints.max_delta_size:
        return Admission(False, f"Exceeded max delta size: {size} > {constraints.max_delta_size}")
    if run_hash and run_hash in history:
        return Admission(False, duplicate(run_hash))
    if capsule.odd:
        return Admission(False, f"Neither file, folder nor link: {', '.join(capsule.odd)}")
    return Admission(True)


def duplicate(run_hash: str) -> str:
    """Why rule 4 denies a run."""
    return (
        f"Duplicate run (already in history): {run_hash}. The same work was committed from the same"
        " state before, and nothing has changed since. To repeat it on purpose, give the item"
        " `trials: N` in a work file, or another description."
    )


def run_hash(item: WorkItem, agent_sha256: str, before_hash: str, capsule: RunCapsule) -> str:
    """Identifies a run without ids and times: the same run from the same state has the same
    hash."""
    parts = (capsule.delta_o, capsule.delta_pi, capsule.delta_lambda, capsule.delta_q)
    return blake3(
        canonical(
            {
                "item": item.substance,
                "agent": agent_sha256,
                "before": before_hash,
                "deltas": [[resource.document() for resource in part] for part in parts],
                "trace": [op.substance for op in capsule.tool_trace],
            }
        )
    ).hexdigest()


_TYPES = {Action.CREATED: "create", Action.MODIFIED: "edit", Action.DELETED: "delete"}


def make_capsule(delta: Delta, trace: tuple[ToolOp, ...], outputs: Container[str]) -> RunCapsule:
    """`outputs` are the declared output files, as paths within the workspace."""
    classes: dict[str, list[Resource]] = {"o": [], "pi": [], "lambda": [], "q": []}
    holding = {parent_of(change.path) for change in delta if change.path}
    artifacts = []
    for change in delta:
        target = shown(change.path) or "."
        action = change.file_action
        if action is not None:
            after = change.after.digest.hex() if change.after and change.after.is_file else None
            artifacts.append(Artifact(type=_TYPES[action], path=target, content_hash=after))
        elif change.path in holding and (
            change.action is not Action.MODIFIED
            or _side(change, before=True) == _side(change, before=False)
        ):
            # A folder created or deleted with its content is not a resource of its own; neither is
            # one that another item has made meanwhile.
            continue
        classes[_class_of(target, outputs)].append(
            Resource(
                action=change.action.value,
                target=target,
                before=_side(change, before=True),
                after=_side(change, before=False),
            )
        )
    return RunCapsule(
        artifacts=tuple(artifacts),
        tool_trace=trace,
        delta_o=tuple(classes["o"]),
        delta_pi=tuple(classes["pi"]),
        delta_lambda=tuple(classes["lambda"]),
        delta_q=tuple(classes["q"]),
        odd=tuple(
            shown(change.path)
            for change in delta
            # An undo cannot restore one that was there either.
            if any(each and each.kind is Kind.OTHER for each in (change.before, change.after))
        ),
    )


def changed_files(delta: Delta, base: Path, action: Action) -> tuple[str, ...]:
    """The files with this action, as exact absolute paths. A name that is not UTF-8 has surrogate
    escapes, as everywhere in Python, so the path opens the file."""
    return tuple(exact_path(change.path, base) for change in delta if change.file_action is action)


def exact_path(path: bytes, base: Path) -> str:
    return os.path.join(base, os.fsdecode(path))


def _side(change: Change, *, before: bool) -> str | None:
    return entry_text(change.before if before else change.after)


def entry_text(entry: Entry | None) -> str | None:
    """An entry as receipts describe it."""
    if entry is None:
        return None
    held = entry.digest.hex() if entry.kind in (Kind.FILE, Kind.LINK) else ""
    return f"{entry.kind.value}{entry.mode:03o}:{held}"


_TEST_FOLDERS = {"tests", "test", "spec", "specs", "__tests__", "invariants"}
_GOVERNING_FOLDERS = {"rules", "policies", "tools", "agents", ".github", "config"}
_GOVERNING_NAMES = {
    *("actum.toml", "tools.lock", "pyproject.toml", "package.json", "Cargo.toml", "go.mod"),
    *("Makefile", "Dockerfile", ".gitignore", ".editorconfig", "tsconfig.json", "setup.cfg"),
}
_GOVERNING_ENDS = (".toml", ".ini", ".cfg", ".conf", ".lock")


def _class_of(target: str, outputs: Container[str]) -> str:
    """By the item's declaration first, then by the name."""
    if target in outputs:
        return "pi"
    path = PurePosixPath(target)
    name = path.name
    if (
        _TEST_FOLDERS.intersection(path.parts[:-1])
        or name.startswith("test_")
        or path.stem.endswith(("_test", ".test", ".spec"))
    ):
        return "q"
    if (
        _GOVERNING_FOLDERS.intersection(path.parts[:1])
        or name in _GOVERNING_NAMES
        or name.endswith(_GOVERNING_ENDS)
    ):
        return "lambda"
    return "o"


def counts(capsule: RunCapsule) -> Mapping[str, int]:
    return {
        "deltaO": len(capsule.delta_o),
        "deltaPi": len(capsule.delta_pi),
        "deltaLambda": len(capsule.delta_lambda),
        "deltaQ": len(capsule.delta_q),
    }
