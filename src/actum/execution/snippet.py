"""`Runtime.python`: a snippet as fields of a contract, and its value from the capture."""

from __future__ import annotations

import json
from binascii import b2a_base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from actum.capture.collection import ARTIFACT
from actum.contract.model import SCRATCH, Json
from actum.errors import ContractInvalid, Problem
from actum.execution.interpret import SMALL_BYTES
from actum.execution.result import Result
from actum.store.blobs import BlobStore
from actum.value import replace

if TYPE_CHECKING:
    from actum.capture.model import Capture
    from actum.registry.registry import Registry

TOOL = "snippet"
_VALUE = "value.json"
_ENCODER = json.JSONEncoder(allow_nan=False)
_quoted = json.encoder.encode_basestring_ascii


def order(code: str, params: Mapping[str, Json], files: Mapping[str, bytes | str]) -> bytes:
    """The document that the snippet program reads from stdin."""
    if type(code) is str and not params and not files:
        return b'{"code": %b, "params": {}, "files": {}}' % _quoted(code).encode()
    encoded = {
        name: b2a_base64(
            content.encode() if isinstance(content, str) else content, newline=False
        ).decode()
        for name, content in files.items()
    }
    document = {"code": code, "params": dict(params), "files": encoded}
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


def words(
    preload: Sequence[str], venv: Path | None, registry: Registry
) -> tuple[tuple[str, ...], dict[str, Any]]:
    """(arguments, contract fields): no directory of the host but the packages of a venv."""
    fields: dict[str, Any] = {"inputs.working_directory": SCRATCH}
    if venv is None:
        return tuple(preload), fields
    from actum.execution.snippet_venv import site_packages  # few calls need it

    packages = site_packages(venv.resolve(), registry, TOOL)
    fields["sandbox.filesystem.level"] = "extended"
    fields["sandbox.filesystem.read"] = [str(packages)]
    return (f"@{packages}", *preload), fields


def value_in(capture: Capture) -> Json:
    """The value of a snippet that has just ended, if it is small. A large one is read after its
    record is closed: the snippet wrote it, and parsed JSON can take much memory."""
    for found in capture.collected:
        if found.path == _VALUE and found.kind == ARTIFACT and found.size <= SMALL_BYTES:
            return _value(found.content)
    return None


def with_value(result: Result, blobs: BlobStore) -> Result:
    """The result with the snippet's value as `output`, if it has none yet: the value is large, or
    the result is a recorded one. An exception is in its stderr as well."""
    if result.output is not None or result.result is None or not result.result.artifacts:
        return result
    found = next((item for item in result.result.artifacts if item.path == _VALUE), None)
    if found is None:
        return result
    content = (result.small_files or {}).get(found.blake3)
    return replace(result, output=_value(blobs.read(found.blake3) if content is None else content))


def _value(content: bytes) -> Json:
    try:
        answer = json.loads(content)
    except (ValueError, RecursionError):
        return None  # the snippet wrote the file itself, and not as JSON
    return answer.get("value") if isinstance(answer, dict) else None
