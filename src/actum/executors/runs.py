"""One executor in one child: builds its request and interprets its answer.

The pipeline uses it for calls and the review gate for probes, so both judge alike. The answer comes
from an untrusted process; this module checks all of it, on the host.
"""

from __future__ import annotations

import json
from datetime import datetime
from json.encoder import encode_basestring_ascii
from typing import Any

from actum.contract.canonical import NotCanonical
from actum.contract.outcome import ActionStatus
from actum.errors import Refused
from actum.executors import child_frames
from actum.executors.model import Declaration
from actum.executors.pool import Child, End, Pool, Reply
from actum.executors.reasons import Reason
from actum.executors.shape import Snapshot, TooDeep, strict_loads
from actum.executors.values import Note
from actum.value import value

#: Time limit to compile or describe the code, without a payload.
_ASK_S = 3.0
_MOST_DESCRIPTION_BYTES = 1 << 20
_MOST_CODE_BYTES = 8 << 20


@value
class Ran:
    """The outcome of one run. Only this value holds the output."""

    status: ActionStatus
    reason: Reason | None = None
    output: Snapshot | None = None  #: ``None``: the executor returned none, or did not succeed
    note: Note | None = None


class Unloadable(Refused):
    """The source cannot be compiled, or its module cannot be run in a child."""


def compile_source(pool: Pool, source: bytes) -> bytes:
    """Compile reviewed bytes in a child; no line of them is run."""
    reply = pool.ask(
        child_frames.request(child_frames.COMPILE, source, b""),
        timeout_s=_ASK_S,
        max_reply_bytes=_MOST_CODE_BYTES,
    )
    if reply.end is not End.REPLIED or reply.kind != child_frames.CODE:
        raise _unloadable(reply)
    return reply.body


def describe(pool: Pool, code: bytes) -> dict[str, Any]:
    """The executor's own description, after its module has run in a child. Untrusted."""
    reply = pool.ask(
        child_frames.request(child_frames.DESCRIBE, code, b""),
        timeout_s=_ASK_S,
        max_reply_bytes=_MOST_DESCRIPTION_BYTES,
    )
    if reply.end is not End.REPLIED or reply.kind != child_frames.DESCRIPTION:
        raise _unloadable(reply)
    try:
        description = strict_loads(reply.body)
    except (ValueError, TooDeep) as error:
        raise _unloadable(reply) from error
    if not isinstance(description, dict):
        raise _unloadable(reply)
    return description


def _unloadable(reply: Reply) -> Unloadable:
    note = _note(reply)
    why = {
        End.FORBIDDEN: "it did something forbidden while it was loaded",
        End.TIMED_OUT: "loading it took too long",
    }.get(reply.end, f"{note}" if note else "it could not be loaded")
    return Unloadable(
        "EXECUTOR_UNLOADABLE",
        f"The executor cannot be loaded: {why}.",
        remedy="Run `actum executors review PATH`; it names the lines.",
    )


def _attributes(declared: Declaration) -> bytes:
    """In the form that the child compares."""
    attributes = [
        declared.executor_id,
        declared.version,
        declared.capabilities,
        declared.limits.values(),
    ]
    return json.dumps(attributes).encode()


def call_frame(
    code: bytes, declared: Declaration, *, action: str, payload: bytes, trace_id: str, at: datetime
) -> child_frames.Request:
    """The one message a child receives: code, declaration and canonical request."""
    limits = declared.limits
    body = b'{"declared":%b,"request":{"action":%b,"payload":%b,"trace_id":%b,"ts_utc":"%b"}}' % (
        _attributes(declared),
        encode_basestring_ascii(action).encode(),
        payload,
        encode_basestring_ascii(trace_id).encode(),
        # Always the same length, so that it has the same address in the child's memory.
        at.isoformat(timespec="microseconds").encode(),
    )
    ceilings = (limits.max_payload_bytes, limits.max_depth, limits.max_list_items)
    return child_frames.request(child_frames.EXECUTE, code, body, ceilings)


def run(
    pool: Pool,
    frame: child_frames.Request,
    declared: Declaration,
    timeout_s: float,
    prepared: Child | None = None,
) -> tuple[Child, Ran]:
    """Run one call in a new child; the caller finishes the child."""
    limits = declared.limits
    # Escapes make an encoding longer than its canonical form; the exact size is checked below.
    most = 6 * limits.max_payload_bytes + 64
    child, reply = pool.call(frame, timeout_s=timeout_s, max_reply_bytes=most, prepared=prepared)
    return child, interpret(reply, declared)


_BLOCKED_BY_END = {
    End.TIMED_OUT: Reason.EXECUTOR_TIMEOUT,
    End.FLOODED: Reason.LIMIT_EXCEEDED,
    End.KILLED: Reason.LIMIT_EXCEEDED,
    End.FORBIDDEN: Reason.POLICY_VIOLATION,
}


def interpret(reply: Reply, declared: Declaration) -> Ran:
    if reply.end in _BLOCKED_BY_END:
        return _blocked(_BLOCKED_BY_END[reply.end])
    if reply.end is End.DIED:
        return _failed(Reason.EXECUTOR_EXCEPTION)
    match reply.kind:
        case child_frames.NOTHING:
            return Ran(status=ActionStatus.SUCCESS)
        case child_frames.RAISED:
            return _failed(Reason.EXECUTOR_EXCEPTION, _note(reply))
        case child_frames.OVER_LIMIT:
            return _blocked(Reason.LIMIT_EXCEEDED)
        case child_frames.CHANGED:
            return _blocked(Reason.EXECUTOR_CHANGED)
        case child_frames.VALUE:
            return _value(reply.body, declared)
        case _:
            return _failed(Reason.OUTPUT_INVALID)


def _value(body: bytes, declared: Declaration) -> Ran:
    try:
        value = strict_loads(body)
        if value is None:
            return Ran(status=ActionStatus.SUCCESS)
        output = Snapshot.of(value)
    except TooDeep:
        return _blocked(Reason.LIMIT_EXCEEDED)
    except (ValueError, NotCanonical):
        return _failed(Reason.OUTPUT_INVALID)
    if output.exceeds(declared.limits):
        return _blocked(Reason.LIMIT_EXCEEDED)
    return Ran(status=ActionStatus.SUCCESS, output=output)


def _blocked(reason: Reason) -> Ran:
    return Ran(status=ActionStatus.BLOCKED, reason=reason)


def _failed(reason: Reason, note: Note | None = None) -> Ran:
    return Ran(status=ActionStatus.FAILED, reason=reason, note=note)


def _note(reply: Reply) -> Note | None:
    try:
        said = strict_loads(reply.body)
        return Note(kind=str(said["type"])[:80], line=int(said["line"]))
    except (ValueError, TypeError, KeyError, TooDeep):
        return None
