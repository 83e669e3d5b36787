"""What came of an attempt on the local runner: how it ended, what was refused, what it left."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from actum.capture import collect
from actum.capture.model import (
    Cancelled,
    Closed,
    Collected,
    Connection,
    DeadlinePassed,
    Denial,
    Ending,
    Exited,
    LimitKilled,
    NotCollected,
    PolicyBroken,
    Signalled,
)
from actum.contract.call import TOKEN_FILE, Plan
from actum.contract.levels import is_within
from actum.contract.limits import ARTIFACTS_BYTES, OUTPUT_FILES_BYTES
from actum.kernel import open_exact
from actum.runners.attend import Attended, Stop
from actum.runners.layers import place_of
from actum.value import replace

if TYPE_CHECKING:
    from actum.sandbox.cgroup import Usage
    from actum.sandbox.handle import Sandbox


#: What it was ended for, and what that is called, however it went then.
_STOPPED: dict[Stop | None, Callable[[int], Ending]] = {
    Stop.DEADLINE: DeadlinePassed,
    Stop.CANCEL: Cancelled,
    Stop.CLOSED: Closed,
    Stop.IDLE: Closed,
}


def ending_of(attended: Attended, usage: Usage) -> Ending:
    exited = os.WIFEXITED(attended.wait_status)
    signal = 0 if exited else os.WTERMSIG(attended.wait_status)
    if attended.violation:
        return PolicyBroken(attended.violation)
    if usage.oom_kills:
        return LimitKilled("memory_mb", usage.oom_proof)
    if attended.stop is Stop.MESSAGE:
        return LimitKilled("message_bytes", "one message was longer")
    if attended.stop in _STOPPED:
        return _STOPPED[attended.stop](signal)
    return Exited(os.WEXITSTATUS(attended.wait_status)) if exited else Signalled(signal)


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
