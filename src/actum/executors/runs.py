"""One executor in one child: how it is asked, and what its answer means.

Used by the pipeline for calls and by the review gate for probes, so that both judge alike. The
answer is data from an untrusted process; everything about it is checked here, on this side.
"""

from __future__ import annotations

import json
from datetime import datetime
from json.encoder import encode_basestring_ascii
from typing import Any

from actum.contract.canonical import NotCanonical
from actum.contract.outcome import ActionStatus
from actum.errors import Refused
from actum.executors import frames
from actum.executors.model import Declaration
from actum.executors.pool import Child, End, Pool, Reply
from actum.executors.reasons import Reason
from actum.executors.shape import Snapshot, TooDeep, strict_loads
from actum.executors.values import Note
from actum.value import by_identity, value

#: For the two questions that are about the code and not about a payload.
_ASK_S = 3.0
_MOST_DESCRIPTION_BYTES = 1 << 20
_MOST_CODE_BYTES = 8 << 20


@value
class Ran:
    """What one run came to. The output is here and nowhere else."""

    status: ActionStatus
    reason: Reason | None = None
    output: Snapshot | None = None  #: ``None``: the executor returned none, or did not succeed
    note: Note | None = None


class Unloadable(Refused):
    """The source cannot be compiled, or its module cannot be run behind the walls."""


def compile_source(pool: Pool, source: bytes) -> bytes:
    """Code of reviewed bytes, made behind the walls; no line of it is run."""
    reply = pool.ask(
        frames.request(frames.COMPILE, source, b""),
        timeout_s=_ASK_S,
        max_reply_bytes=_MOST_CODE_BYTES,
    )
    if reply.end is not End.REPLIED or reply.kind != frames.CODE:
        raise _unloadable(reply)
    return reply.body


def describe(pool: Pool, code: bytes) -> dict[str, Any]:
    """What the executor says of itself, after its module has run in a child. Untrusted."""
    reply = pool.ask(
        frames.request(frames.DESCRIBE, code, b""),
        timeout_s=_ASK_S,
        max_reply_bytes=_MOST_DESCRIPTION_BYTES,
    )
    if reply.end is not End.REPLIED or reply.kind != frames.DESCRIPTION:
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


@by_identity(256)
def _attributes(declared: Declaration) -> bytes:
    """As the child compares them."""
    attributes = [
        declared.executor_id,
        declared.version,
        declared.capabilities,
        declared.limits.values(),
    ]
    return json.dumps(attributes).encode()


def call_frame(
    code: bytes, declared: Declaration, *, action: str, payload: bytes, trace_id: str, at: datetime
) -> frames.Request:
    """The one message a child receives: code, declaration and canonical request."""
    limits = declared.limits
    body = b'{"declared":%b,"request":{"action":%b,"payload":%b,"trace_id":%b,"ts_utc":"%b"}}' % (
        _attributes(declared),
        encode_basestring_ascii(action).encode(),
        payload,
        encode_basestring_ascii(trace_id).encode(),
        # As long as ever, so that it takes the same place in the child's memory.
        at.isoformat(timespec="microseconds").encode(),
    )
    ceilings = (limits.max_payload_bytes, limits.max_depth, limits.max_list_items)
    return frames.request(frames.EXECUTE, code, body, ceilings)


def run(
    pool: Pool,
    frame: frames.Request,
    declared: Declaration,
    timeout_s: float,
    prepared: Child | None = None,
) -> tuple[Child, Ran]:
    """One call in a fresh child; the caller finishes the child."""
    limits = declared.limits
    # Escapes make an encoding longer than its canonical form; what is exact is checked below.
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
        case frames.NOTHING:
            return Ran(status=ActionStatus.SUCCESS)
        case frames.RAISED:
            return _failed(Reason.EXECUTOR_EXCEPTION, _note(reply))
        case frames.OVER_LIMIT:
            return _blocked(Reason.LIMIT_EXCEEDED)
        case frames.CHANGED:
            return _blocked(Reason.EXECUTOR_CHANGED)
        case frames.VALUE:
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
