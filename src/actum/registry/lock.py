"""`tools.lock`: the signed list of pinned tools and approved settings, with its history.

JSON, pretty-printed with sorted keys, so that a review sees each change as a few lines. The
signatures are those of a DSSE envelope over the canonical JSON of everything else in the file. A
lock that is unsigned, altered or signed by an untrusted key grants nothing.

Version 1 holds no settings. The first approval of settings writes version 2.

A user who can write the repository can put back an older signed lock together with the older
folders and settings. The lock does not prevent that; the repository's own history shows it.
"""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from actum import __version__
from actum.contract.canonical import NotCanonical, canonical
from actum.errors import Refused, VerificationFailed
from actum.registry.model import (
    Change,
    Pin,
    ScopeChange,
    SettingsChange,
    SettingsPin,
    ToolStatus,
)
from actum.store import dsse
from actum.store.keys import PublicKey, Signer
from actum.value import fields, replace, value

FILE_NAME = "tools.lock"
PAYLOAD_TYPE = "application/vnd.actum.tools-lock+json"
WITHOUT_SETTINGS = 1
WITH_SETTINGS = 2
_MAX_BYTES = 16 * 1_048_576
_Record = TypeVar("_Record", Pin, Change)


@value
class Lock:
    """The current pins, by tool id, and every change that led to them, oldest first."""

    pins: tuple[Pin, ...] = ()
    history: tuple[Change, ...] = ()
    settings: SettingsPin | None = None  #: ``None``: no settings have been approved
    settings_history: tuple[SettingsChange, ...] = ()

    def pin(self, id_or_name: str) -> Pin | None:
        """The pin of a tool; an id wins over a name."""
        named = None
        for pin in self.pins:
            if pin.tool_id == id_or_name:
                return pin
            if pin.name == id_or_name:
                named = pin
        return named

    def record(self, pin: Pin, change: Change) -> Lock:
        """A copy of this lock with `pin` replacing the tool's former one, and one more change."""
        others = [kept for kept in self.pins if kept.tool_id != pin.tool_id]
        pins = sorted([*others, pin], key=lambda each: each.tool_id)
        return replace(self, pins=tuple(pins), history=(*self.history, change))

    def writable(self, root: Path) -> tuple[str, ...]:
        """Every path that a pinned tool may write, approvals included: no policy exceeds a pin.
        Withdrawn tools count, because they may have written before."""
        return tuple(
            sorted(
                {
                    str(root / path)
                    for pin in self.pins
                    for path in pin.grants.get("write", ())
                    if "write" in pin.grants.get("data_access", ())
                }
            )
        )

    def without(self, tool_id: str) -> Lock:
        return replace(self, pins=tuple(pin for pin in self.pins if pin.tool_id != tool_id))


def read_lock(root: Path, trusted: Mapping[str, PublicKey]) -> Lock:
    """The lock of the repository at `root`; a missing one pins nothing."""
    return parse_lock(lock_bytes(root), trusted)


def lock_bytes(root: Path) -> bytes | None:
    try:
        with open(f"{root}/{FILE_NAME}", "rb", buffering=0) as file:
            content = file.read(_MAX_BYTES + 1) or b""
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _untrusted(error.strerror or str(error)) from error
    if len(content) > _MAX_BYTES:
        raise _untrusted(f"it has more than {_MAX_BYTES} bytes")
    return content


def lock_stamp(file: str) -> tuple[int, ...] | None:
    """A stamp that changes whenever the lock `file` does, its ctime last; ``None`` if missing."""
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def parse_lock(content: bytes | None, trusted: Mapping[str, PublicKey]) -> Lock:
    if content is None:
        return Lock()
    document = _parse_json(content)
    signatures = document.pop("signatures", None)
    try:
        envelope = {
            "payload": base64.b64encode(canonical(document)).decode(),
            "payloadType": PAYLOAD_TYPE,
            "signatures": signatures,
        }
        dsse.verify(envelope, trusted)
    except dsse.NotTrusted as error:
        raise _foreign(error.keyids) from error
    except (VerificationFailed, NotCanonical) as error:
        raise _untrusted(error.message.rstrip(".")) from error
    return _from_document(document)


def write_lock(root: Path, lock: Lock, signer: Signer) -> None:
    """Sign and replace `tools.lock` atomically: a reader sees the old one or the new one."""
    document = _to_document(lock)
    envelope = dsse.sign(canonical(document), PAYLOAD_TYPE, signer)
    signed = {**document, "signatures": envelope["signatures"]}
    text = json.dumps(signed, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    path = root / FILE_NAME
    # A new file with a random name: a tool may write in this folder, and a file of its own at a
    # known name (a pipe, a file with a second link) would become the lock.
    pending = root / f".{FILE_NAME}.{os.urandom(8).hex()}.new"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(pending, flags, 0o644), "wb") as file:
        file.write(text.encode())
        file.flush()
        os.fsync(file.fileno())
    pending.rename(path)
    # The rename is durable only once its directory is synced.
    descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _to_document(lock: Lock) -> dict[str, Any]:
    document: dict[str, Any] = {
        "version": WITHOUT_SETTINGS,
        "pins": [_plain(pin) for pin in lock.pins],
        "history": [_plain(change) for change in lock.history],
    }
    if lock.settings is None:
        return document
    return {
        **document,
        "version": WITH_SETTINGS,
        "settings": _plain(lock.settings),
        "settings_history": [_plain(change) for change in lock.settings_history],
    }


def _plain(record: Pin | Change | SettingsPin | SettingsChange) -> dict[str, Any]:
    values = {each.name: getattr(record, each.name) for each in fields(record)}
    return {
        name: dict(value) if isinstance(value, Mapping) else value for name, value in values.items()
    }


def _from_document(document: dict[str, Any]) -> Lock:
    """Parse the payload. A trusted key signed it, so an unknown shape is another version's."""
    version = document.get("version")
    if isinstance(version, int) and version > WITH_SETTINGS:
        raise Refused(
            "LOCK_NEWER",
            f"{FILE_NAME} has version {version}, which a newer Actum wrote; this one"
            f" ({__version__}) reads versions up to {WITH_SETTINGS}.",
            remedy="Upgrade Actum. Or restore the file of the older version from the repository's"
            " history; decisions since then are lost.",
        )
    if version not in (WITHOUT_SETTINGS, WITH_SETTINGS):
        raise _untrusted(f"version {version!r} is not supported; supported are 1 and 2")
    try:
        lock = Lock(
            pins=tuple(_record(Pin, entry) for entry in document["pins"]),
            history=tuple(_record(Change, entry) for entry in document["history"]),
        )
        if version == WITH_SETTINGS:
            lock = replace(
                lock,
                settings=SettingsPin(**document["settings"]),
                settings_history=tuple(map(_settings_change, document["settings_history"])),
            )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _untrusted(f"an entry has an unknown shape ({error})") from error
    for what in ("tool_id", "name"):
        values = [getattr(pin, what) for pin in lock.pins]
        if len(values) != len(set(values)):
            raise _untrusted(f"two pins share one {what}")
    return lock


def _record(kind: type[_Record], entry: dict[str, Any]) -> _Record:
    values = {**entry, "status": ToolStatus(entry["status"])}
    if kind is Change:
        values["scope_change"] = ScopeChange(entry["scope_change"])
    return kind(**values)


def _settings_change(entry: dict[str, Any]) -> SettingsChange:
    return SettingsChange(**{**entry, "changed": tuple(entry["changed"])})


def _parse_json(content: bytes) -> dict[str, Any]:
    try:
        document = json.loads(content, object_pairs_hook=_unique)
    except (ValueError, RecursionError) as error:
        raise _untrusted(f"it is not JSON ({error})") from error
    if not isinstance(document, dict):
        raise _untrusted("it is not a JSON object")
    return document


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    # Readers may differ in which of two equal keys they use; only one was reviewed.
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("a key occurs twice in one object")
    return result


def _foreign(keyids: tuple[str, ...]) -> Refused:
    """A lock that nobody whom this home trusts has signed: a clone, or a forgery."""
    return Refused(
        "LOCK_UNTRUSTED",
        f"{FILE_NAME} is signed by {', '.join(keyids)}, which this home does not trust.",
        remedy=(
            "If you trust the owner of that key: ask for the output of `actum keys show`, compare"
            " the key id, put the PEM text into `keys` under [trust] in actum.toml, then run"
            f" `actum config approve --by WHO`. If not: restore {FILE_NAME} from the repository's"
            " history."
        ),
    )


def _untrusted(why: str) -> Refused:
    return Refused(
        "LOCK_UNTRUSTED",
        f"{FILE_NAME} is not trusted: {why}.",
        remedy=("Restore it from the repository's history."),
    )
