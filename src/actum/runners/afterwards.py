"""What came of an attempt on the local runner: how it ended, what was refused, what it left."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable
from itertools import islice
from typing import TYPE_CHECKING

from actum.capture import collect
from actum.capture.interpret import interpret
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
)
from actum.contract.call import TOKEN_FILE, Plan
from actum.contract.levels import is_within
from actum.contract.limits import ARTIFACTS_BYTES, OUTPUT_FILES_BYTES
from actum.kernel import open_exact
from actum.runners.attend import Attended, Stop
from actum.runners.layers import place_of
from actum.value import replace

if TYPE_CHECKING:
    from actum.runners.comparison import Differences
    from actum.sandbox.cgroup import Usage
    from actum.sandbox.handle import Sandbox
    from actum.sandbox.wire import Request

#: Paths that a result names at most.
_MOST_NAMED = 20

#: What it was ended for, and what that is called, however it went then.
_STOPPED: dict[Stop | None, Callable[[int], Ending]] = {
    Stop.DEADLINE: DeadlinePassed,
    Stop.CANCEL: Cancelled,
    Stop.CLOSED: Closed,
    Stop.IDLE: Closed,
}


def ending_of(plan: Plan, attended: Attended, usage: Usage) -> Ending:
    exited = os.WIFEXITED(attended.wait_status)
    signal = 0 if exited else os.WTERMSIG(attended.wait_status)
    if attended.violation:
        return PolicyBroken(attended.violation)
    if attended.seal_lost and plan.sealed:
        return SealLost(attended.seal_lost)
    if usage.oom_kills:
        return LimitKilled("memory_mb", usage.oom_proof)
    if attended.stop is Stop.MESSAGE:
        return LimitKilled("message_bytes", "one message was longer")
    if attended.stop in _STOPPED:
        return _STOPPED[attended.stop](signal)
    return Exited(os.WEXITSTATUS(attended.wait_status)) if exited else Signalled(signal)


def judged(
    found: Differences, attended: Attended, request: Request, ending: Ending
) -> tuple[Ending, Workspace]:
    """What it means that names differ which decide what is executed later.

    Only the host can change what was covered all the time, unless the file has another name that
    was not. An init that was killed cannot say whether its covers have held.
    """
    covers = [*request["protect"], *request["deny"]]
    lost = [covers[number] for number in attended.lost_covers or ()]
    gone = covers if attended.lost_covers is None else lost
    held = [path for path in request["protect"] if path not in gone]

    def by_host(path: str) -> bool:
        return path not in found.linked and any(is_within(path, cover) for cover in held)

    # A change under a lost cover may be the host's or the tool's: the loss itself is the finding.
    uncovered = [path for path in found.changed if not by_host(path)]
    written = [path for path in uncovered if not any(is_within(path, cover) for cover in lost)]
    if found.cut_short:
        written.append(_CUT_SHORT)
    if isinstance(ending, PolicyBroken):
        pass  # it was ended for more than that
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
    """The first of them, as records can hold them: names need be no text."""
    return tuple(collect.shown(os.fsencode(path)) for path in islice(paths, _MOST_NAMED))


#: In place of a path: a tool could hide a repository behind so many folders.
_CUT_SHORT = "more folders, or closed ones, than can be compared"


def denials_of(attended: Attended, connections: tuple[Connection, ...]) -> tuple[Denial, ...]:
    if not attended.denials and not connections:
        return ()
    found = [*attended.denials]
    found += [
        Denial(
            kind="network",
            target=f"{item.host}:{item.port} ({item.refused})",
            time_ms=item.time_ms,
        )
        for item in connections
        if item.refused
    ]
    return tuple(found)


def collect_outputs(
    plan: Plan, sandbox: Sandbox
) -> tuple[tuple[Collected, ...], tuple[NotCollected, ...]]:
    """After the last process is gone, so that nothing can be swapped under our hands."""
    collected, missed = _declared(plan) if plan.output_files else ((), ())
    if sandbox.artifacts >= 0:
        taken, lost = collect.collect_tree(
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
        except OSError as error:  # moved away meanwhile, by another tool or the caller
            reason = f"its directory: {error.strerror}"
            missed += (NotCollected(path=path, kind="output_file", reason=reason),)
            continue
        taken, lost = collect.collect_files(root, (inside,), "output_file", left)
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
    """What the tool has left behind but for its token, which nobody else is shown."""
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
