"""The types of the library's keywords. A wrong one is named, with what was given and expected.

Values of the environment, of parameters and of files are never repeated: they may be secrets.
Whether a value of the right type is permitted, the contract's schema and the pipeline decide.
"""

from __future__ import annotations

import keyword
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial

from actum.contract.request import ExecRequest
from actum.documents.source_position import shown
from actum.errors import ContractInvalid, Problem
from actum.execution.quantities import TIME, duration_ms, given_as, shown_number, size_mb
from actum.runners.base import Cancel, OnOutput

_TEXT = "text"
_CHANGES = ("commit", "hold", "discard")
_UNAWAITED = "it is async, and only the calls of `rt.aio` await it."
_CO_COROUTINE = 0x80  #: of `inspect`, which is not imported for one number
#: No caller waits longer: about 31 years.
_MOST_S = 10**9


def check_request(request: ExecRequest) -> None:
    """Raise `ContractInvalid` with every keyword of the wrong type."""
    _require(_request_problems(request))


def check_snippet(
    code: object,
    *,
    params: object,
    files: object,
    preload: object = (),
    venv: object = None,
    cwd: object = None,
    fields: object = None,
) -> None:
    """The keywords of `Runtime.python` and of sessions; `fields` are those of `set`."""
    _require(_snippet_problems(code, params, files, preload, venv, cwd, fields))


def check_call(
    *,
    on_output: object = None,
    on_waiting: object = None,
    cancel: object = None,
    turn: object = None,
    changes: object = "commit",
    may_be_async: bool = False,
    **seconds: object,
) -> None:
    """What a caller gives along with a request. `seconds` are times that may be left out."""
    problems = [
        *_listener("on_output", on_output, may_be_async),
        *_listener("on_waiting", on_waiting, may_be_async),
        *(found for name, given in seconds.items() for found in _seconds(name, given)),
    ]
    if cancel is not None and not isinstance(cancel, Cancel):
        problems.append(_wrong("cancel", cancel, "an actum.runners.base.Cancel"))
    if turn is not None and not callable(getattr(turn, "place", None)):
        problems.append(_wrong("turn", turn, "an actum.runners.concurrency.Turn"))
    if not isinstance(changes, str):
        problems.append(_wrong("changes", changes, ", ".join(_CHANGES)))
    elif changes not in _CHANGES:
        message = f"{shown(changes)} is none of them."
        problems.append(Problem(field="changes", message=message, permitted=", ".join(_CHANGES)))
    _require(problems)


def not_awaitable(on_output: OnOutput) -> OnOutput:
    """The listener, which fails if it returns something to await: nothing here awaits it."""

    def listen(stream: str, content: bytes) -> None:
        returned: object = on_output(stream, content)  # type: ignore[func-returns-value]
        if returned is not None and hasattr(returned, "__await__"):
            close = getattr(returned, "close", None)
            if close is not None:
                close()  # a coroutine that is never awaited would warn
            raise TypeError(f"on_output: {_UNAWAITED}")

    return listen


def _require(problems: Iterator[Problem] | list[Problem]) -> None:
    found = tuple(problems)
    if found:
        raise ContractInvalid(found)


def _request_problems(request: ExecRequest) -> Iterator[Problem]:
    yield from _text("tool", request.tool, optional=False)
    yield from _list("arguments", request.arguments, "text or paths", paths=True)
    yield from _mapping("parameters", request.parameters, "names to JSON values")
    if request.stdin is not None and not isinstance(
        request.stdin, (str, bytes, bytearray, memoryview)
    ):
        yield _wrong("stdin", request.stdin, "text or bytes; of a file, its content")
    yield from _list("files", request.files, 'paths, such as ["a.txt"]', paths=True)
    yield from _mapping("env", request.env, "names to text", texts=True)
    if isinstance(request.secrets, Mapping):
        yield from _mapping("secrets", request.secrets, "names to env, env:VARIABLE or fd", True)
    else:
        yield from _list("secrets", request.secrets, 'names, such as ["TOKEN"], or a mapping')
    yield from _path("cwd", request.cwd)
    yield from _quantity(duration_ms, "timeout", request.timeout)
    yield from _quantity(size_mb, "memory", request.memory)
    yield from _list("allow_hosts", request.allow_hosts, 'host names, such as ["example.com"]')
    yield from _mapping("set", request.set, "fields of the contract to JSON values")
    yield from _text("purpose", request.purpose)
    yield from _text("requested_by", request.requested_by)
    yield from _text("adapter_id", request.adapter_id)


def _snippet_problems(
    code: object,
    params: object,
    files: object,
    preload: object,
    venv: object,
    cwd: object,
    fields: object,
) -> Iterator[Problem]:
    yield from _text("code", code, optional=False)
    yield from _mapping("params", {} if params is None else params, "names to JSON values")
    if isinstance(params, Mapping):
        yield from _variables(params)
    files = {} if files is None else files
    yield from _mapping("files", files, 'names to content, such as {"a.txt": "text"}')
    if isinstance(files, Mapping):
        for name, content in files.items():
            if isinstance(name, str) and not _is_file_name(name):
                message = f"{shown(name)} cannot be the name of a file here."
                yield Problem(
                    field="files", message=message, permitted="relative paths without . and .."
                )
            if not isinstance(content, (str, bytes, bytearray, memoryview)):
                yield _wrong_kind(f"files.{name}", content, "text or bytes")
    yield from _list("preload", preload, 'modules, such as ["json"]')
    yield from _path("venv", venv)
    yield from _path("cwd", cwd)
    yield from _mapping(
        "set", {} if fields is None else fields, "fields of the contract to JSON values"
    )


def _variables(params: Mapping[object, object]) -> Iterator[Problem]:
    """Parameters that a snippet could not use, or would get otherwise than they were given."""
    for name, given in params.items():
        if not isinstance(name, str):
            continue  # `_mapping` has named it
        if not name.isidentifier() or keyword.iskeyword(name):
            yield Problem(
                field=f"params.{name}",
                message="it becomes a variable, and this cannot be the name of one.",
                permitted='a Python name; otherwise in a mapping, such as {"row": {"a b": 1}}',
            )
        wrong = _key_without_text(given)
        if wrong is not None:
            yield Problem(
                field=f"params.{name}",
                message=f"a key of type {wrong} is not text.",
                permitted="a JSON value",
            )


def _key_without_text(given: object) -> str | None:
    """JSON would turn such a key into text, and drop one of two that look alike then."""
    waiting: list[object] = [given]
    seen: set[int] = set()
    while waiting:
        held = waiting.pop()
        if not isinstance(held, (dict, list, tuple)) or id(held) in seen:
            continue
        seen.add(id(held))
        if isinstance(held, dict):
            wrong = next((type(key) for key in held if not isinstance(key, str)), None)
            if wrong is not None:
                return wrong.__name__
            waiting += held.values()
        else:
            waiting += held
    return None


def _is_file_name(name: str) -> bool:
    return "\0" not in name and not any(part in ("", ".", "..") for part in name.split("/"))


def _text(name: str, given: object, *, optional: bool = True) -> Iterator[Problem]:
    if not isinstance(given, str) and not (optional and given is None):
        yield _wrong(name, given, _TEXT)


def _path(name: str, given: object) -> Iterator[Problem]:
    if given is None or isinstance(given, str):
        return
    if not isinstance(given, os.PathLike) or not isinstance(os.fspath(given), str):
        yield _wrong(name, given, "a path, as text or pathlib.Path")


def _list(name: str, given: object, items: str, *, paths: bool = False) -> Iterator[Problem]:
    # A lone text is a collection too, of its letters.
    if isinstance(given, (str, bytes, bytearray, Mapping)) or not isinstance(given, Collection):
        yield _wrong(name, given, f"a list of {items}")
        return
    for number, item in enumerate(given):
        if paths and isinstance(item, os.PathLike):
            yield from _path(f"{name}[{number}]", item)
        elif not isinstance(item, str):
            yield _wrong(f"{name}[{number}]", item, _TEXT)


def _mapping(name: str, given: object, items: str, texts: bool = False) -> Iterator[Problem]:
    if not isinstance(given, Mapping):
        yield _wrong(name, given, f"a mapping of {items}")
        return
    for key, value in given.items():
        if not isinstance(key, str):
            yield _wrong(name, key, "names that are text")
        elif texts and not isinstance(value, str):
            yield _wrong_kind(f"{name}.{key}", value, _TEXT)


def _quantity(
    read: Callable[[object, str], int], name: str, given: object | None
) -> Iterator[Problem]:
    if given is not None:
        try:
            read(given, name)
        except ContractInvalid as error:
            yield from error.problems


def _seconds(name: str, given: object) -> Iterator[Problem]:
    if given is None:
        return
    if isinstance(given, bool) or not isinstance(given, (int, float)):
        yield _wrong(name, given, "seconds as a number, such as 5 or 2.5")
    elif not 0 <= given < _MOST_S:  # NaN is neither
        yield Problem(
            field=name, message=f"{shown_number(given)} is no length of time.", permitted=TIME
        )


def _listener(name: str, given: object, may_be_async: bool) -> Iterator[Problem]:
    if given is None:
        return
    if not callable(given):
        yield _wrong(name, given, "a function")
    elif not may_be_async and _is_coroutine_function(given):
        yield Problem(field=name, message=_UNAWAITED, permitted="a function")


def _is_coroutine_function(function: object) -> bool:
    while isinstance(function, partial):
        function = function.func
    if not hasattr(function, "__code__"):  # an instance of a class with `async def __call__`
        function = vars(type(function)).get("__call__")
    code = getattr(function, "__code__", None)
    return bool(getattr(code, "co_flags", 0) & _CO_COROUTINE)


def _wrong(name: str, given: object, expected: str) -> Problem:
    return Problem(field=name, message=f"{given_as(given)}.", permitted=expected)


def _wrong_kind(name: str, given: object, expected: str) -> Problem:
    """As `_wrong`, without the value."""
    kind = "None" if given is None else type(given).__name__
    return Problem(field=name, message=f"its value is of type {kind}.", permitted=expected)
