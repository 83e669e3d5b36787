"""The lock on the public interface: the shipped executor ids and the shapes of request and result.

`shapes.lock` lists every protocol so far, each with the fingerprint of its shapes and ids and with
its approver. The last one must match the code. So a change fails the build until a person adds a
protocol with a higher number and an approver; editing an old entry breaks the chain of digests.
"""

from __future__ import annotations

import json
import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields
from importlib import resources
from typing import Any

from actum.contract.canonical import sha256_json
from actum.contract.model import Json
from actum.contract.outcome import ActionStatus
from actum.executors import child
from actum.executors.model import ActionRequest, ActionResult

FILE_NAME = "shapes.lock"
_KEYS = {"protocol", "request", "result", "executor_ids", "approved_by", "date", "why", "previous"}


def current(executor_ids: Sequence[str]) -> dict[str, Json]:
    """The fingerprints of the code as it is."""
    return {
        "request": sha256_json(_request_shape()),
        "result": sha256_json([shape(ActionResult), [status.value for status in ActionStatus]]),
        "executor_ids": sha256_json(sorted(executor_ids)),
    }


def _request_shape() -> list[Json]:
    """Of the request, which the host and the child each define: an executor gets the child's."""
    host = shape(ActionRequest)
    inside: list[Json] = list(child.ActionRequest.__slots__)
    return host if inside == [field.name for field in fields(ActionRequest)] else [host, inside]


def shape(kind: type) -> list[Json]:
    """Names, types and optionality, in order."""
    hints = typing.get_type_hints(kind)
    return [
        [
            field.name,
            _spelt(hints[field.name]),
            field.default is MISSING and field.default_factory is MISSING,
        ]
        for field in fields(kind)
    ]


def _spelt(hint: Any) -> str:
    if isinstance(hint, types.UnionType):
        return " | ".join(sorted(_spelt(part) for part in typing.get_args(hint)))
    arguments = typing.get_args(hint)
    name = getattr(typing.get_origin(hint) or hint, "__name__", str(hint))
    return f"{name}[{', '.join(_spelt(part) for part in arguments)}]" if arguments else name


def problems(lock: Sequence[Mapping[str, Json]], code: Mapping[str, Json]) -> list[str]:
    """Differences between the code and its lock; empty when they match."""
    found = []
    previous, protocol = "", 0
    for index, entry in enumerate(lock):
        if set(entry) != _KEYS:
            found.append(f"entry {index} must have exactly {', '.join(sorted(_KEYS))}")
            continue
        if entry["protocol"] <= protocol:
            found.append(f"entry {index}: protocol {entry['protocol']} is not higher than before")
        if entry["previous"] != previous:
            found.append(f"entry {index}: an earlier entry was changed")
        if not str(entry["approved_by"]).strip() or not str(entry["why"]).strip():
            found.append(f"entry {index}: approved_by or why is empty")
        protocol, previous = entry["protocol"], sha256_json(entry)
    if not lock:
        return ["there is no protocol"]
    found += [
        f"{name} changed: add an entry with protocol {protocol + 1}, {name} {code[name]},"
        f" previous {previous}, and an approval"
        for name in code
        if lock[-1].get(name) != code[name]
    ]
    return found


def read() -> list[dict[str, Json]]:
    text = resources.files("actum.executors").joinpath(FILE_NAME).read_text("utf-8")
    entries: list[dict[str, Json]] = json.loads(text)
    return entries


def protocol() -> int:
    """The protocol number of this code."""
    return int(read()[-1]["protocol"])
