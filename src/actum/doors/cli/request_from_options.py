"""From the options of `exec` and `check` to an `ExecRequest`.

A value gets the type that the tool's args_schema names; one that does not match stays text, so that
the pipeline refuses and records it. Does not import the command-line library.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from actum.contract.request import OPTIONS, ExecRequest
from actum.documents.json_value import Json
from actum.documents.source_position import DOCUMENT_BYTES
from actum.doors.cli import own_stdin
from actum.execution.shell_script import script_of

if TYPE_CHECKING:
    from actum.runtime import Runtime

#: One byte more than a tool may receive: enough to refuse larger input.
_STDIN_BYTES = 1_048_576 + 1
#: Fields of the contract that `--set` may give in place of words and stdin.
_SET_INSTEAD = ("inputs.arguments", "inputs.stdin")


class Usage(Exception):
    """Invalid command line; reported before anything is recorded."""


def require_sense(*, words: tuple[str, ...], contract: Path | None, **given: Any) -> None:
    """Report problems of the options before searching for a project."""
    if given.get("script") and given.get("stdin") is not None:
        raise Usage("The script is given twice: as words and with --stdin. Leave out one of them.")
    if contract is not None:
        extra = sorted(OPTIONS[name].flag for name, value in given.items() if value)
        if words or extra:
            said = ", ".join([*words[:1], *extra])
            raise Usage(f"-f takes the whole contract from a file; leave out {said}.")
    elif not words:
        raise Usage("Name a TOOL, or a contract with -f. `actum tools list` shows the tools.")


def asked(
    runtime: Runtime, *, words: tuple[str, ...], contract: Path | None, **given: Any
) -> Mapping[str, Any] | bytes | Path:
    """The contract of the options, or the file that they name; not yet checked."""
    if contract is None:
        return runtime.draft(_request(runtime, words, **given))
    return own_stdin.read(DOCUMENT_BYTES + 1) if str(contract) == "-" else contract


def _request(
    runtime: Runtime,
    words: tuple[str, ...],
    *,
    parameters: Sequence[str],
    stdin: str | None,
    env: Sequence[str],
    secrets: Sequence[str],
    set: Sequence[str],  # noqa: A002 -- the name of the field
    script: Sequence[str] = (),
    **same: Any,
) -> ExecRequest:
    tool, *arguments = words
    content: bytes | str | None = None if stdin is None else _content(stdin)
    if script:
        content = script_of(script)
    elif content is None and not any(given.startswith(_SET_INSTEAD) for given in set):
        content, arguments = _own_program(runtime, tool, arguments, same["adapter_id"])
    return ExecRequest(
        tool=tool,
        arguments=arguments,
        parameters=_parameters(runtime, tool.partition(":")[0], _pairs("-p", parameters)),
        stdin=content,
        env=_once("--env", _pairs("--env", env)),
        secrets=_once(
            "--secret",
            _pairs("--secret", [text if "=" in text else f"{text}=env" for text in secrets]),
        ),
        set={
            path: _json(path, text) for path, text in _once("--set", _pairs("--set", set)).items()
        },
        **same,
    )


def _parameters(runtime: Runtime, tool: str, pairs: Sequence[tuple[str, str]]) -> dict[str, Json]:
    return _typed(pairs, _schema(runtime, tool)) if pairs else {}


def _pairs(option: str, given: Sequence[str]) -> list[tuple[str, str]]:
    pairs = []
    for text in given:
        name, equals, value = text.partition("=")
        if not name or not equals:
            raise Usage(f"{option} {text!r}: write it as NAME=VALUE.")
        pairs.append((name, value))
    return pairs


def _once(option: str, pairs: Sequence[tuple[str, str]]) -> dict[str, str]:
    values = dict(pairs)
    if len(values) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise Usage(f"{option} {twice} is given twice.")
    return values


def _json(path: str, text: str) -> Json:
    try:
        return json.loads(text)
    except ValueError as error:
        raise Usage(
            f"--set {path}: {text!r} is not JSON ({error}); text needs quotes: '\"{text}\"'."
        ) from error


def _own_program(
    runtime: Runtime, tool: str, arguments: list[str], adapter_id: str | None
) -> tuple[bytes | None, list[str]]:
    """Our own stdin, for a tool that runs a program: if there are no arguments and stdin is a pipe
    or a file, or if the first argument is `-`. Otherwise stdin is left to its other readers."""
    dash = arguments[:1] == ["-"]
    if (arguments and not dash) or not (dash or own_stdin.is_piped()):
        return None, arguments
    if not runtime.takes_program(tool, adapter_id=adapter_id):
        return None, arguments
    return own_stdin.read(_STDIN_BYTES), arguments[1:]


def _content(source: str) -> bytes:
    if source == "-":
        return own_stdin.read(_STDIN_BYTES)
    try:
        with open(source, "rb") as file:
            return file.read(_STDIN_BYTES)
    except OSError as error:
        raise Usage(f"--stdin {source}: {error.strerror}.") from error


def _schema(runtime: Runtime, tool: str) -> Mapping[str, Json]:
    from actum.errors import ContractInvalid, Refused

    registry = runtime.services.registry
    try:
        schema = registry.recall_schema(tool) or registry.find_tool(tool).args_schema
        properties = schema.get("properties", {})
    except (Refused, ContractInvalid):
        return {}  # the pipeline reports and records problems of the tool
    return properties if isinstance(properties, dict) else {}


def _typed(pairs: Sequence[tuple[str, str]], properties: Mapping[str, Json]) -> dict[str, Json]:
    lists: dict[str, Json] = {}
    single = []
    for name, text in pairs:
        schema = properties.get(name)
        schema = schema if isinstance(schema, dict) else {}
        if schema.get("type") == "array":
            items = schema.get("items")
            lists.setdefault(name, []).extend(
                _items(text, items if isinstance(items, dict) else {})
            )
        else:
            single.append((name, text, schema))
    _once("-p", [(name, text) for name, text, _ in single])
    return lists | {name: _value(text, schema.get("type")) for name, text, schema in single}


def _items(text: str, schema: Mapping[str, Json]) -> list[Json]:
    """`-p x=1 -p x=2` and `-p x=[1,2]` mean the same."""
    if text.startswith("["):
        try:
            values = json.loads(text)
        except ValueError:
            return [text]
        return values if isinstance(values, list) else [text]
    return [_value(text, schema.get("type"))]


_KINDS: Mapping[str, tuple[type, ...]] = {
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "object": (dict,),
    "null": (type(None),),
}


def _value(text: str, kind: Json) -> Json:
    if not isinstance(kind, str) or kind not in _KINDS:
        return text
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if type(value) in _KINDS[kind] else text
