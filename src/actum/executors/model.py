"""Requests, results and declarations of pure executors (the "pure plane").

The pure plane runs functions that compute a value and have no effects, as opposed to tools, which
run in the sandbox. `ActionRequest` and `ActionResult` are locked: `shapes.lock` holds their
fingerprint, and a change fails the build until it is approved there with a new protocol number.
Results hold digests, never a value. Nothing here decides anything.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import total_ordering
from typing import Any, Self

from actum.contract.ids import new_id
from actum.contract.model import Json
from actum.contract.outcome import ActionStatus
from actum.errors import ContractInvalid, Problem
from actum.value import field, fields, value

EXECUTOR_ID = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")
CAPABILITY = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)*")
ACTION = re.compile(r"[a-z][a-z0-9]*([_.][a-z0-9]+)*")
_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_VERSION = re.compile(r"(0|[1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,8})\.(0|[1-9][0-9]{0,8})")


@total_ordering
@value(kw_only=False)
class Version:
    """MAJOR.MINOR.PATCH and nothing else, ordered by number: 1.10.0 is newer than 1.9.0."""

    major: int
    minor: int
    patch: int

    @classmethod
    def parse(cls, text: object) -> Self | None:
        match = _VERSION.fullmatch(text) if isinstance(text, str) else None
        return cls(*(int(part) for part in match.groups())) if match else None

    def __lt__(self, other: Version) -> bool:
        return (self.major, self.minor, self.patch) < (other.major, other.minor, other.patch)

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}.{self.patch}"


@value
class Limits:
    """Limits of one call. The pipeline enforces them on input and output."""

    timeout_ms: int
    max_payload_bytes: int
    max_depth: int
    max_list_items: int

    def values(self) -> list[int]:
        """In the order in which an executor declares them."""
        return [self.timeout_ms, self.max_payload_bytes, self.max_depth, self.max_list_items]


#: Lowest and highest value that may be declared.
LIMIT_RANGES: Mapping[str, tuple[int, int]] = {
    "timeout_ms": (1, 600_000),
    "max_payload_bytes": (2, 16 << 20),
    "max_depth": (1, 100),
    "max_list_items": (0, 1_000_000),
}


@value
class Declaration:
    """An executor's four attributes, as reviewed. The host trusts only this copy."""

    executor_id: str
    version: str
    capabilities: tuple[str, ...]
    limits: Limits

    def document(self) -> dict[str, Json]:
        return {
            "executor_id": self.executor_id,
            "version": self.version,
            "capabilities": list(self.capabilities),
            "limits": dict(zip(LIMIT_RANGES, self.limits.values(), strict=True)),
        }

    @classmethod
    def read(cls, document: Mapping[str, Json]) -> Self:
        """Read from a signed verdict; nothing is checked again."""
        return cls(
            executor_id=document["executor_id"],
            version=document["version"],
            capabilities=tuple(document["capabilities"]),
            limits=Limits(**document["limits"]),
        )


def _now() -> datetime:
    return datetime.now(UTC)


@value
class ActionRequest:
    """A request. `trace_id` and `ts_utc` identify it; they do not influence the result."""

    action: str
    payload: Mapping[str, Json] = field(default_factory=dict)
    trace_id: str = field(default_factory=new_id)
    ts_utc: datetime = field(default_factory=_now)

    def __post_init__(self) -> None:
        if not _is_sound(self):
            raise ContractInvalid(tuple(_problems(self)))

    @classmethod
    def parse(cls, document: object) -> Self:
        """From a mapping, such as decoded JSON. Unknown fields are refused."""
        if not isinstance(document, Mapping):
            raise ContractInvalid((Problem(field="", message="is not a mapping"),))
        known = [each.name for each in fields(cls)]
        problems = tuple(
            Problem(
                field=str(name)[:80], message="is unknown; remove it", permitted=", ".join(known)
            )
            for name in document
            if name not in known
        )
        if "action" not in document:
            problems += (Problem(field="action", message="is missing"),)
        if problems:
            raise ContractInvalid(problems)
        values: dict[str, Any] = dict(document)
        if isinstance(values.get("ts_utc"), str):
            values["ts_utc"] = _timestamp(values["ts_utc"])
        return cls(**values)


def _is_name(action: object) -> bool:
    return isinstance(action, str) and 0 < len(action) <= 128


def _is_uuid(trace_id: object) -> bool:
    return isinstance(trace_id, str) and _UUID.fullmatch(trace_id) is not None


def _is_utc(when: object) -> bool:
    return isinstance(when, datetime) and when.utcoffset() == timedelta(0)


def _is_sound(request: ActionRequest) -> bool:
    return (
        _is_name(request.action)
        and isinstance(request.payload, (dict, Mapping))
        and _is_uuid(request.trace_id)
        and _is_utc(request.ts_utc)
    )


def _problems(request: ActionRequest) -> Iterator[Problem]:
    if not _is_name(request.action):
        yield _problem("action", "is not a name", "text of 1 to 128 characters")
    if not isinstance(request.payload, Mapping):
        kind = type(request.payload).__name__
        yield _problem("payload", f"is {kind}, not a mapping", "a mapping")
    if not _is_uuid(request.trace_id):
        yield _problem("trace_id", "is not a UUID", "36 characters, e.g. from uuid4()")
    if not _is_utc(request.ts_utc):
        yield _problem("ts_utc", "is not a time in UTC", "a time with the offset +00:00")


def _problem(field: str, message: str, permitted: str) -> Problem:
    return Problem(field=field, message=message, permitted=permitted)


def _timestamp(text: str) -> object:
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        return text


@value
class ActionResult:
    """The result of an action: status, reasons and digests. Never an input or an output."""

    action: str
    executor_id: str
    executor_version: str
    status: ActionStatus
    reason_codes: tuple[str, ...]
    input_digest: str  #: "" when the payload has no canonical form
    output_digest: str | None
    trace_id: str
    ts_utc: datetime

    def __post_init__(self) -> None:
        silent = (ActionStatus.SUCCESS, ActionStatus.PENDING)
        if not self.reason_codes and self.status not in silent:
            raise ValueError(f"reason_codes must not be empty when status is {self.status}")

    def document(self) -> dict[str, Json]:
        return {
            "action": self.action,
            "executor_id": self.executor_id,
            "executor_version": self.executor_version,
            "status": self.status.value,
            "reason_codes": list(self.reason_codes),
            "input_digest": self.input_digest,
            "output_digest": self.output_digest,
            "trace_id": self.trace_id,
            "ts_utc": self.ts_utc.isoformat(),
        }
