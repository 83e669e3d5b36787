"""`Runtime.python`: a snippet as fields of a contract, and its value from the capture."""

from __future__ import annotations

import json
from binascii import b2a_base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from actum.capture.collection import ARTIFACT
from actum.contract.limits import INPUT_FILES_BYTES
from actum.contract.model import SCRATCH, SCRATCH_INSIDE, Json
from actum.contract.snippet_order import framed
from actum.errors import ContractInvalid, Problem
from actum.execution.artifact import VALUE_TYPE, WORKING_TYPE
from actum.execution.interpret import SMALL_BYTES
from actum.execution.result import Result
from actum.store.blobs import BlobStore
from actum.value import replace

if TYPE_CHECKING:
    from actum.capture.model import Capture, Collected
    from actum.registry.registry import Registry

TOOL = "snippet"
CWD = "inputs.working_directory"
_VALUE = "value.json"
_WORKING = "cwd/"  #: the folder among the artifacts with what a snippet wrote
_SHOWN_BYTES = 16_384
_MOST_LEFT_OUT = 100
#: Files up to this size in total are part of the JSON document, which people can read.
_INLINE_BYTES = 65_536
LeftOut: TypeAlias = tuple[tuple[str, int, str], ...]  #: path, size, reason
_ENCODER = json.JSONEncoder(allow_nan=False)
_quoted = json.encoder.encode_basestring_ascii


#: Keywords of `exec` that a snippet cannot have, and what has their meaning.
_NOT_FOR_SNIPPETS = {
    "tool": "the tool is `snippet`; use Runtime.exec for another one",
    "arguments": "pass values in params",
    "parameters": "pass values in params",
    "stdin": "pass values in params, and content in files",
}
#: Keywords of one call, which a session as a whole cannot have.
_FOR_ONE_CALL = dict.fromkeys(("on_output", "cancel", "queue_s", "turn"), "give it to run()") | {
    "wait_s": "have the request approved first: `actum approvals`"
}


def order(code: str, params: Mapping[str, Json], files: Mapping[str, bytes | str]) -> bytes:
    """The document that the snippet program reads from stdin."""
    if isinstance(code, str) and not code.strip():
        raise ContractInvalid(
            (Problem(field="code", message="the snippet is empty.", permitted="a Python program"),)
        )
    if type(code) is str and not params and not files:
        return b'{"code": %b, "params": {}, "files": {}}' % _quoted(code).encode()
    contents = {
        name: content.encode() if isinstance(content, str) else content
        for name, content in files.items()
    }
    size = sum(memoryview(content).nbytes for content in contents.values())
    if size > _INLINE_BYTES:
        sizes = {name: memoryview(content).nbytes for name, content in contents.items()}
        # Files that are too large are refused by their size; nothing else is needed of them.
        sent = contents.values() if size <= INPUT_FILES_BYTES else ()
        return framed(_document(code, params, {"attached": sizes}), sent, size)
    encoded = {
        name: b2a_base64(content, newline=False).decode() for name, content in contents.items()
    }
    return _document(code, params, {"files": encoded})


def _document(code: str, params: Mapping[str, Json], files: dict[str, Json]) -> bytes:
    document = {"code": code, "params": dict(params), **files}
    try:
        return _ENCODER.encode(document).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise _without_json(params, error) from error


def _without_json(params: Mapping[str, Json], error: Exception) -> ContractInvalid:
    """The parameters that have no JSON form, by name."""
    problems = []
    for name, given in params.items():
        try:
            _ENCODER.encode(given)
        except (TypeError, ValueError, RecursionError) as wrong:
            problems.append(
                Problem(field=f"params.{name}", message=f"{wrong}.", permitted="a JSON value")
            )
    found = Problem(field="params", message=f"{error}.", permitted="JSON values")
    return ContractInvalid(tuple(problems) or (found,))


def require_fit(words: Mapping[str, Any], *, kept: bool = False) -> None:
    """Refuse keywords that have no meaning for a snippet, or for a session."""
    for name, instead in (_NOT_FOR_SNIPPETS | (_FOR_ONE_CALL if kept else {})).items():
        if name in words:
            where = "a session" if kept and name in _FOR_ONE_CALL else "a snippet"
            raise _invalid(name, f"{where} does not take it: {instead}", "")


def words(
    preload: Sequence[str], venv: Path | None, cwd: str | None, registry: Registry
) -> tuple[tuple[str, ...], dict[str, Any]]:
    """(arguments, contract fields): no directory of the host but `cwd` and a venv's packages."""
    fields: dict[str, Any] = {CWD: SCRATCH if cwd is None else cwd}
    if venv is None:
        return tuple(preload), fields
    from actum.execution.snippet_venv import site_packages  # few calls need it

    packages = site_packages(venv.resolve(), registry, TOOL)
    fields["sandbox.filesystem.level"] = "extended"
    fields["sandbox.filesystem.read"] = [str(packages)]
    if fields[CWD] != SCRATCH:
        fields["sandbox.filesystem.read"].append(cwd)
    return (f"@{packages}", *preload), fields


def require_own_folder(cwd: str, files: Mapping[str, bytes | str] | None) -> None:
    """Refuse files for a snippet whose working directory is a folder of the host."""
    if files and cwd not in (SCRATCH, SCRATCH_INSIDE):
        raise _invalid(
            "files",
            f"cannot be put into cwd={cwd!r}, which is a folder of the host",
            "cwd without files, or files without cwd",
        )


def _invalid(field: str, message: str, permitted: str) -> ContractInvalid:
    return ContractInvalid((Problem(field=field, message=message, permitted=permitted),))


def named(capture: Capture) -> Capture:
    """The capture of a snippet, with the file that holds its value called so."""
    return replace(capture, collected=tuple(map(_called, capture.collected)))


def _called(item: Collected) -> Collected:
    if item.kind != ARTIFACT:
        return item
    if item.path == _VALUE:
        return replace(item, type=VALUE_TYPE)
    if item.path.startswith(_WORKING):
        return replace(item, type=WORKING_TYPE, name=item.path.removeprefix(_WORKING))
    return item


def answer_in(capture: Capture) -> tuple[Json, LeftOut]:
    """(value, files that were not collected) of a snippet that has just ended, if its answer is
    small. A large one is read after its record is closed: the snippet wrote it, and parsed JSON can
    take much memory."""
    for found in capture.collected:
        if found.type == VALUE_TYPE and found.size <= SMALL_BYTES:
            return _answer(found.content)
    return None, ()


def with_value(result: Result, blobs: BlobStore) -> Result:
    """The result with the snippet's value as `output`, if it has none yet: the value is large, or
    the result is a recorded one. An exception is in its stderr as well."""
    if result.output is not None or not result.artifacts:
        return result
    found = next((item for item in result.artifacts if item.type == VALUE_TYPE), None)
    if found is None:
        return result
    content = (result.small_files or {}).get(found.blake3)
    value, left_out = _answer(blobs.read(found.blake3) if content is None else content)
    return replace(result, output=value, left_out=left_out)


def _answer(content: bytes) -> tuple[Json, LeftOut]:
    """The answer of a snippet. The snippet may have written the file itself: then the value is a
    mark with the beginning of that file."""
    try:
        answer = json.loads(content, parse_constant=_no_constant)
        if isinstance(answer, dict):
            return answer.get("value"), _left_out(answer.get("left_out"))
    except (ValueError, RecursionError):
        pass
    text = content[:_SHOWN_BYTES].decode(errors="replace")
    mark: dict[str, Json] = {"$type": _VALUE, "$repr": text}
    return mark | {"$truncated": True} if len(content) > _SHOWN_BYTES else mark, ()


def _left_out(listed: Json) -> LeftOut:
    rows = listed if isinstance(listed, list) else []
    return tuple(
        (row[0], row[1], row[2])
        for row in rows[:_MOST_LEFT_OUT]
        if isinstance(row, list) and [*map(type, row)] == [str, int, str]
    )


def _no_constant(name: str) -> Json:
    raise ValueError(f"{name} is not JSON")
