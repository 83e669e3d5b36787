"""Runs inside a one-shot child: loads the reviewed code, runs it once, answers and ends.

The child is fully confined before this is called, so the executor's module-level code is confined
too. Nothing here is a security boundary: the executor shares this memory and can change all of it.
The host checks every limit and every byte again.
"""

from __future__ import annotations

import json
import marshal
import os
import sys
import types
from datetime import datetime

from actum.executors import child_frames, rehearsed
from actum.executors.filter import DESCRIPTOR

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, NoReturn

DECLARED = ("executor_id", "version", "capabilities", "limits")
LIMITS = ("timeout_ms", "max_payload_bytes", "max_depth", "max_list_items")
_EXACT = 2**53
_SCALARS = (str, int, float, bool, type(None))


class ActionRequest:
    """The canonical request, as `execute` receives it. It is read-only."""

    __slots__ = ("action", "payload", "trace_id", "ts_utc")

    def __init__(self, action: str, payload: dict[str, Any], trace_id: str, ts_utc: str) -> None:
        for name, value in (
            ("action", action),
            ("payload", payload),
            ("trace_id", trace_id),
            ("ts_utc", datetime.fromisoformat(ts_utc)),
        ):
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"ActionRequest.{name} cannot be changed")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"ActionRequest.{name} cannot be removed")


def rehearsal() -> tuple[types.CodeType, types.CodeType, bytes]:
    """Two warm-up calls for `serve`, a long and a short one, and the request of both.

    The template process makes them, and runs the long one too: children inherit what is computed
    once, such as a compiled pattern.
    """
    long, short = (
        compile(source, child_frames.FILE_NAME, "exec", dont_inherit=True)
        for source in (rehearsed.LONG, rehearsed.SHORT)
    )
    asked = json.dumps(rehearsed.ASKED).encode()
    _execute(long, asked, *rehearsed.LIMITS)
    del sys.modules["executor"]
    return long, short, asked


def serve(rehearsal: tuple[types.CodeType, types.CodeType, bytes]) -> NoReturn:
    """Answer the one request that arrives, and end."""
    long, short, asked = rehearsal
    # A new fork copies every page on its first write. Here no caller waits for that.
    _rehearse(long, asked)
    operation, code_bytes, body_bytes, *limits = child_frames.REQUEST.unpack(
        _read(child_frames.REQUEST.size)
    )
    code = _read(code_bytes)
    if operation == child_frames.COMPILE:
        kind, reply = _compile(code)
    elif operation == child_frames.DESCRIBE:
        kind, reply = _describe(marshal.loads(code))  # noqa: S302 -- made by `_compile`
    else:
        unpacked = marshal.loads(code)  # noqa: S302
        # It may have waited for long: while the host writes PENDING, the processor's caches are
        # filled again. Always, so that every call finds the memory in the same state.
        _rehearse(short, asked)
        # The host sends the rest when the call is on record, so no line of it has run before.
        kind, reply = _execute(unpacked, _read(body_bytes), *limits)
    answer = _frame(kind, reply)
    if _write(answer) == len(answer):
        # Exiting is work for the kernel, which would compete with the host while it records the
        # answer. A child that has answered waits to be killed.
        _read(1)
    os._exit(0)


def _rehearse(code: types.CodeType, asked: bytes) -> None:
    """Run a whole call without writing its answer."""
    answer = _frame(*_execute(code, asked, *rehearsed.LIMITS))
    _write(answer[:0])
    del sys.modules["executor"]


def _frame(kind: int, reply: bytes) -> bytes:
    return child_frames.REPLY.pack(kind, len(reply)) + reply


def _read(count: int) -> bytearray:
    """Exactly `count` bytes, into memory taken beforehand: in how many parts a request arrives must
    not decide where the objects of the call are placed."""
    whole, filled = bytearray(count), 0
    while filled < count:
        part = os.read(DESCRIPTOR, min(count - filled, 1 << 16))
        if not part:
            os._exit(0)  # the host does not need this child
        whole[filled : filled + len(part)] = part
        filled += len(part)
    return whole


def _write(data: bytes) -> int:
    view, written = memoryview(data), 0
    while True:
        part = os.write(DESCRIPTOR, view)
        view, written = view[part:], written + part
        if not view:
            return written


def _compile(source: bytearray) -> tuple[int, bytes]:
    try:
        code = compile(source, child_frames.FILE_NAME, "exec", dont_inherit=True, optimize=0)
    except BaseException as error:  # noqa: BLE001 -- any source at all may come
        return child_frames.UNLOADABLE, _about(error)
    return child_frames.CODE, marshal.dumps(code)


def _load(code: types.CodeType) -> tuple[list[str], Any]:
    """Run the module and make its executor; also returns the names of all candidate classes."""
    module = types.ModuleType("executor")
    sys.modules["executor"] = module
    exec(code, module.__dict__)  # noqa: S102 -- this is the child's purpose
    found = {
        name: value
        for name, value in list(vars(module).items())
        if isinstance(value, type)
        and value.__module__ == "executor"
        and not name.startswith("_")
        and any(hasattr(value, wanted) for wanted in ("executor_id", "execute"))
    }
    return sorted(found), next(iter(found.values()))() if len(found) == 1 else None


def _execute(
    code: types.CodeType, body: bytes | bytearray, max_bytes: int, max_depth: int, max_items: int
) -> tuple[int, bytes]:
    try:
        said = _decode(body.decode())
        declared = said["declared"]
        _names, executor = _load(code)
        if _declaration(executor) != declared:
            return child_frames.CHANGED, b""
        value = executor.execute(ActionRequest(**said["request"]))
        if _declaration(executor) != declared:
            return child_frames.CHANGED, b""
        return _encoded(value, max_bytes, max_depth, max_items)
    except BaseException as error:  # noqa: BLE001 -- SystemExit and KeyboardInterrupt are meant too
        return child_frames.RAISED, _about(error)


def _whole(text: str) -> float:
    # Canonical JSON writes 1e16 without an exponent; beyond 2^53 it can only have been a float.
    number = int(text)
    return number if -_EXACT < number < _EXACT else float(number)


_decode = json.JSONDecoder(parse_int=_whole).decode


def _declaration(executor: Any) -> list[Any]:
    limits = executor.limits
    return [
        executor.executor_id,
        executor.version,
        list(executor.capabilities),
        [_limit(limits, name) for name in LIMITS],
    ]


def _limit(limits: Any, name: str) -> Any:
    return limits[name] if isinstance(limits, dict) else getattr(limits, name)


def _encoded(value: Any, max_bytes: int, max_depth: int, max_items: int) -> tuple[int, bytes]:
    if value is None:
        return child_frames.NOTHING, b""
    # Before encoding: a value far over its limits must not cost its size twice over in memory.
    problem = _judge(value, max_bytes, max_depth, max_items)
    if problem:
        return problem, b""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return child_frames.VALUE, text.encode()
    except (TypeError, ValueError):
        return child_frames.NOT_JSON, b""


def _judge(value: Any, max_bytes: int, max_depth: int, max_items: int) -> int:
    """0, or the kind of reply that states why this value is refused. Not recursive."""
    size, over = 0, False
    path: list[int] = []  # containers around the current one
    stack: list[tuple[Any, int]] = [(value, 0)]
    while stack:
        item, depth = stack.pop()
        del path[depth:]
        kind = type(item)
        if kind in _SCALARS:
            size += len(item) if kind is str else 1
        elif kind in (list, tuple, dict):
            if id(item) in path:
                return child_frames.NOT_JSON  # a cycle
            path.append(id(item))
            size += len(item)
            over = over or depth + 1 > max_depth or (kind is not dict and len(item) > max_items)
            if kind is dict and any(type(key) is not str for key in item):
                return child_frames.NOT_JSON
            if depth < 2 * max_depth:  # deep enough to see a cycle, shallow enough to end
                inside = item.values() if kind is dict else item
                stack.extend((part, depth + 1) for part in inside)
        else:
            return child_frames.NOT_JSON
        if size > max_bytes:
            return child_frames.OVER_LIMIT
    return child_frames.OVER_LIMIT if over else 0


def _about(error: BaseException) -> bytes:
    """Kind and line of a failure for its author; never its text, which may hold the payload."""
    try:
        place, trace = 0, error.__traceback__
        while trace is not None:
            if trace.tb_frame.f_code.co_filename == child_frames.FILE_NAME:
                place = trace.tb_lineno
            trace = trace.tb_next
        if isinstance(error, SyntaxError) and error.lineno:
            place = error.lineno
        name = type(error).__name__
        return json.dumps({"type": str(name)[:80], "line": place}).encode()
    except BaseException:  # noqa: BLE001 -- a hostile exception class may fail to be asked
        return b"{}"


def _describe(code: types.CodeType) -> tuple[int, bytes]:
    """Everything that the review gate checks, as data."""
    try:
        names, executor = _load(code)
        said: dict[str, Any] = {"classes": names, "attributes": {}}
        if executor is not None:
            said["attributes"] = {
                name: _attribute(getattr(executor, name))
                for name in DECLARED
                if hasattr(executor, name)
            }
            if hasattr(executor, "limits"):
                said["limits"] = {
                    name: _attribute(_limit(executor.limits, name))
                    for name in LIMITS
                    if _has(executor.limits, name)
                }
            said["execute"] = _callable_with_one(getattr(executor, "execute", None))
            said["documented"] = bool(sys.modules["executor"].__doc__)
            samples = getattr(executor, "samples", None)
            said["samples"] = samples if isinstance(samples, list) else []
        return child_frames.DESCRIPTION, json.dumps(said, allow_nan=False).encode()
    except BaseException as error:  # noqa: BLE001
        return child_frames.UNLOADABLE, _about(error)


def _has(limits: Any, name: str) -> bool:
    return name in limits if isinstance(limits, dict) else hasattr(limits, name)


def _attribute(value: Any) -> dict[str, Any]:
    kind = type(value).__name__
    plain = kind in ("str", "int", "float", "bool")
    if kind in ("list", "tuple"):
        plain, value = True, [item if type(item) is str else None for item in value]
    return {"type": kind, "value": value if plain else None}


def _callable_with_one(execute: Any) -> bool:
    """Whether it can be called as execute(req)."""
    if not callable(execute):
        return False
    code = getattr(execute, "__code__", None)
    if code is None:
        return True
    bound = 1 if hasattr(execute, "__self__") else 0
    required = code.co_argcount - bound - len(execute.__defaults__ or ())
    takes_one = code.co_argcount - bound >= 1 or bool(code.co_flags & 0x04)
    asks_more = required > 1 or code.co_kwonlyargcount > len(execute.__kwdefaults__ or ())
    return takes_one and not asks_more
