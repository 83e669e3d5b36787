"""From written text or data to a `Draft`: a contract that is valid, if not yet complete.

Raises `ContractInvalid` with every problem at once. Fills in nothing, resolves nothing, reads no
file but the given one; paths stay as written.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from datetime import datetime
from functools import cache

from actum.contract.contract_json import schema
from actum.contract.model import Json
from actum.documents import json_schema
from actum.documents.document import Document, Source, check, document_from
from actum.documents.source_position import in_reading_order, shown
from actum.errors import ContractInvalid, Problem
from actum.value import value


@value
class Draft:
    """A contract as written, known to conform to the schema."""

    document: Mapping[str, Json]
    file: str = ""


def parse_contract(source: Source, *, file: str = "") -> Draft:
    """Read a contract from text, from data in memory, or from the file at a `Path`."""
    document = document_from(source, file=file)
    problems = [*check(document, _schema()), *_beyond_the_schema(document)]
    if problems:
        raise ContractInvalid(in_reading_order(problems))
    return Draft(document=document.value, file=document.file)


def prepare() -> None:
    """Compile the schema ahead of the first contract."""
    json_schema.prepare(_schema())


@cache
def _schema() -> dict[str, Json]:
    return schema("execution-contract")


def _beyond_the_schema(document: Document) -> list[Problem]:
    """What a schema cannot check: that a timestamp and a base64 text really are that."""
    problems = []
    requested_at = _dig(document.value, "metadata", "requested_at")
    if isinstance(requested_at, str) and timestamp(requested_at) is None:
        problems.append(
            document.problem(
                ("metadata", "requested_at"),
                f"{shown(requested_at)} is not a timestamp.",
                value=shown(requested_at),
                permitted="ISO 8601 with a UTC offset, such as 2026-01-16T09:30:00Z",
            )
        )
    encoded = _dig(document.value, "inputs", "stdin", "base64")
    if isinstance(encoded, str) and from_base64(encoded) is None:
        problems.append(
            document.problem(
                ("inputs", "stdin", "base64"),
                "is not base64.",
                value=shown(encoded),
                permitted="base64 (RFC 4648, padded)",
            )
        )
    return problems


def _dig(value: Json, *keys: str) -> Json:
    for key in keys:
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value


def timestamp(text: str) -> datetime | None:
    """The time of an ISO 8601 text; ``None`` if it is invalid or has no UTC offset."""
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        return None
    return parsed if parsed.tzinfo is not None else None


def from_base64(text: str) -> bytes | None:
    """The bytes of a base64 text; ``None`` if it is invalid."""
    try:
        # White space is allowed, so that long values can be wrapped in a file.
        return base64.b64decode("".join(text.split()), validate=True)
    except (binascii.Error, ValueError):
        return None
