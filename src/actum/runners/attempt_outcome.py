"""The outcome of an attempt on the local runner: ending, denials and collected files."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from itertools import islice
from typing import TYPE_CHECKING

from actum.capture import collection
from actum.capture.endings import interpret
from actum.capture.model import (
    Cancelled,
    Closed,
    Collected,
    Connection,
    CoverLost,
    DeadlinePassed,
    Denial,
    Ending,
    Exited,
    GoverningChanged,
    LimitKilled,
    NotCollected,
    PolicyBroken,
    SealLost,
    Signalled,
    Workspace,
    network_denials,
)
from actum.contract.call import TOKEN_FILE, Plan
from actum.contract.levels import is_within
from actum.contract.limits import ARTIFACTS_BYTES, OUTPUT_FILES_BYTES
from actum.kernel import open_exact
from actum.runners.layers import place_of
from actum.runners.supervise import Stop, Supervised
from actum.value import replace

if TYPE_CHECKING:
    from actum.runners.comparison import Differences
    from actum.sandbox.cgroup import Usage
    from actum.sandbox.handle import Sandbox
    from actum.sandbox.wire import Request

#: Paths that a result names at most.
_MOST_NAMED = 20

#: Reason for the stop -> ending, whatever the tool's own exit status.
_STOPPED: dict[Stop | None, Callable[[int], Ending]] = {
    Stop.DEADLINE: DeadlinePassed,
    Stop.CANCEL: Cancelled,
    Stop.CLOSED: Closed,
    Stop.IDLE: Closed,
}


def ending_of(plan: Plan, supervised: Supervised, usage: Usage) -> Ending:
    exited = os.WIFEXITED(supervised.wait_status)
    signal = 0 if exited else os.WTERMSIG(supervised.wait_status)
    if supervised.violation:
        return PolicyBroken(supervised.violation)
    if supervised.seal_lost and plan.sealed:
        return SealLost(supervised.seal_lost)
    if usage.oom_kills:
        return LimitKilled("memory_mb", usage.oom_proof)
    if supervised.stop is Stop.MESSAGE:
        return LimitKilled("message_bytes", "one message was longer")
    if supervised.stop in _STOPPED:
        return _STOPPED[supervised.stop](signal)
    return Exited(os.WEXITSTATUS(supervised.wait_status)) if exited else Signalled(signal)


def judged(
    found: Differences, supervised: Supervised, request: Request, ending: Ending
) -> tuple[Ending, Workspace]:
    """Judge changes of names that decide what is executed later.

    A file that was covered all the time can be changed only by the host, unless it has another name
    that was not covered. An init that was killed cannot report whether its covers were lost.
    """
    covers = [*request["protect"], *request["deny"]]
    lost = [covers[number] for number in supervised.lost_covers or ()]
    gone = covers if supervised.lost_covers is None else lost
    held = [path for path in request["protect"] if path not in gone]

    def by_host(path: str) -> bool:
        return path not in found.linked and any(is_within(path, cover) for cover in held)

    # A change under a lost cover may be the host's or the tool's: the loss itself is the finding.
    uncovered = [path for path in found.changed if not by_host(path)]
    written = [path for path in uncovered if not any(is_within(path, cover) for cover in lost)]
    if found.cut_short:
        written.append(_CUT_SHORT)
    if isinstance(ending, PolicyBroken):
        pass  # a more serious ending already
    elif written:
        verdict = interpret(ending)
        ending = GoverningChanged(_named(written), verdict.exit_code, verdict.signal, bool(lost))
    elif lost:
        ending = CoverLost(_named(lost))
    return ending, Workspace(
        state="direct",
        mode="direct",
        why=_named(uncovered),
        changed_by_host=_named(filter(by_host, found.changed)),
        covers_lost=_named(lost),
        compared=found.complete,
    )


def _named(paths: Iterable[str]) -> tuple[str, ...]:
    """The first paths, in the form of records: names need not be text."""
    return tuple(collection.shown(os.fsencode(path)) for path in islice(paths, _MOST_NAMED))


#: In place of a path: a tool could hide a repository behind that many folders.
_CUT_SHORT = "more folders, or closed ones, than can be compared"


def denials_of(supervised: Supervised, connections: tuple[Connection, ...]) -> tuple[Denial, ...]:
    if not supervised.denials and not connections:
        return ()
    return (*supervised.denials, *network_denials(connections))


def collect_outputs(
    plan: Plan, sandbox: Sandbox
) -> tuple[tuple[Collected, ...], tuple[NotCollected, ...]]:
    """Only after the last process is gone, so that no file can be replaced meanwhile."""
    collected, missed = _declared(plan) if plan.output_files else ((), ())
    if sandbox.artifacts >= 0:
        taken, lost = collection.collect_tree(
            sandbox.artifacts,
            "artifact",
            limit_bytes=ARTIFACTS_BYTES,
            deadline=time.monotonic() + 5,
        )
        collected += taken
        missed += lost
    return collected, missed


def _declared(plan: Plan) -> tuple[tuple[Collected, ...], tuple[NotCollected, ...]]:
    collected: tuple[Collected, ...] = ()
    missed: tuple[NotCollected, ...] = ()
    grants = sorted({*plan.policy.write, *plan.policy.read}, key=len, reverse=True)
    left = OUTPUT_FILES_BYTES
    for path in plan.output_files:
        if any(is_within(path, denied) for denied in plan.policy.deny):
            missed += (NotCollected(path=path, kind="output_file", reason="denied"),)
            continue
        anchor = next((grant for grant in grants if is_within(path, grant)), None)
        if anchor is None:
            missed += (NotCollected(path=path, kind="output_file", reason="outside every grant"),)
            continue
        relative = os.path.relpath(path, anchor)
        if any(is_within(path, grant) for grant in plan.layers):
            place = place_of(plan, path)
            if place is None:
                missed += (NotCollected(path=relative, kind="output_file", reason="missing"),)
                continue
            anchor, inside = place
        else:
            inside = relative
        try:
            root = open_exact(anchor, os.O_PATH)
        except OSError as error:  # moved meanwhile, by another tool or the caller
            reason = f"its directory: {error.strerror}"
            missed += (NotCollected(path=path, kind="output_file", reason=reason),)
            continue
        taken, lost = collection.collect_files(root, (inside,), "output_file", left)
        os.close(root)
        if inside != relative:
            taken = tuple(replace(item, path=relative) for item in taken)
            lost = tuple(replace(item, path=relative) for item in lost)
        left -= sum(item.size for item in taken)
        collected += taken
        missed += lost
    return collected, missed


def without_token(
    plan: Plan,
    collected: tuple[Collected, ...],
    not_collected: tuple[NotCollected, ...],
    keep: Callable[[bytes], None],
) -> tuple[tuple[Collected, ...], tuple[NotCollected, ...]]:
    """The collected files without the tool's token, which only `keep` gets."""
    if not any(use.token for use in plan.secrets):
        return collected, not_collected
    for item in collected:
        if _is_token(item):
            keep(item.content)
    return (
        tuple(item for item in collected if not _is_token(item)),
        tuple(item for item in not_collected if not _is_token(item)),
    )


def _is_token(item: Collected | NotCollected) -> bool:
    return item.kind == "artifact" and item.path == TOKEN_FILE
