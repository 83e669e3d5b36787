"""Exports evidence as one archive that others verify without this home (`archive_format`).

Reads only: neither the log nor a file of the home changes, and the same evidence gives the same
bytes. Receipts name paths and people; evidence records and collected files hold content. So
records and files are in an archive only if they were asked for, and the file is the caller's own.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterator
from typing import BinaryIO

from actum.contract.model import Json
from actum.errors import Refused
from actum.evidence.archive_format import (
    CHECKPOINT,
    FORMAT,
    LARGEST_DOCUMENT,
    MANIFEST,
    PAYLOAD_TYPE,
    end,
    header,
    padding,
)
from actum.evidence.proof import prove_under
from actum.evidence.records.audit import Kind
from actum.evidence.records.encoding import encoded
from actum.evidence.traces import Traces
from actum.store import dsse, note
from actum.store.blobs import BlobStore
from actum.store.database import Database
from actum.store.keys import PublicKey, Signer
from actum.value import value


@value
class Selection:
    """What goes into an archive. No ids: every receipt that ended at `since` or later."""

    ids: tuple[str, ...] = ()
    since: str = ""  #: as receipts write times; "" for the beginning
    records: bool = False  #: evidence records and trace events too
    files: bool = False  #: and the collected files that they name


@value
class Exported:
    receipts: int
    files: int
    size: int  #: of the archive, in bytes


@value
class _Entry:
    name: str
    read: Callable[[], bytes]


@value(kw_only=False)
class _Found:
    """A receipt of a table; of an execution or of a work item."""

    receipt_id: str
    execution_id: str  #: "" for a work item
    final_seq: int


class Exporter:
    def __init__(
        self, database: Database, blobs: BlobStore, *, signer: Signer, keys: tuple[PublicKey, ...]
    ) -> None:
        self._database = database
        self._blobs = blobs
        self._signer = signer
        #: Whose files are in the archive; a key may have two files in the home.
        self._keys = tuple({key.keyid: key for key in keys}.values())

    def export(self, selection: Selection, file: BinaryIO) -> Exported:
        """Write the archive to `file`."""
        row = self._database.row("SELECT note FROM checkpoints ORDER BY size DESC LIMIT 1")
        size = note.parse(row[0]).checkpoint.size if row else 0
        # Newer receipts are under no checkpoint of this archive.
        chosen = [each for each in self._chosen(selection) if each.final_seq <= size]
        if row is None or not chosen:
            raise Refused(
                "NOTHING_TO_EXPORT",
                "No receipt of this home is in the selection.",
                remedy="`actum receipts list` shows those there are.",
            )
        entries = [
            _Entry(name=CHECKPOINT, read=row[0].encode),
            *(_Entry(name=f"keys/{key.keyid}.pub", read=key.pem.encode) for key in self._keys),
            *self._rotations(size, row[0]),
        ]
        files: dict[str, str] = {}
        for each in chosen:
            entries += self._receipt(each, row[0], selection, files)
        entries += [
            _Entry(name=f"files/{sha256}", read=_reader(self._blobs, blake3))
            for sha256, blake3 in sorted(files.items())
        ]
        total = self._write(file, entries)
        return Exported(receipts=len(chosen), files=len(files), size=total)

    def _write(self, file: BinaryIO, entries: list[_Entry]) -> int:
        # Twice through the contents: the manifest is the first entry, and has their digests.
        listed: list[Json] = []
        for entry in entries:
            content = entry.read()
            listed.append([entry.name, len(content), hashlib.sha256(content).hexdigest()])
        payload = encoded({"format": FORMAT, "entries": listed})
        manifest = dsse.sign_encoded(payload, PAYLOAD_TYPE, self._signer)
        if len(manifest) > LARGEST_DOCUMENT:
            raise Refused(
                "ARCHIVE_TOO_LARGE",
                f"The list of {len(entries)} entries has more than {LARGEST_DOCUMENT} bytes.",
                remedy="Export in several archives, by --since or by ids.",
            )
        total = 0
        for entry in (_Entry(name=MANIFEST, read=lambda: manifest), *entries):
            content = entry.read()
            for part in (header(entry.name, len(content)), content, padding(len(content))):
                total += file.write(part)
        return total + file.write(end())

    def _chosen(self, selection: Selection) -> list[_Found]:
        rows = [*self._database.rows(_RECEIPTS), *self._database.rows(_WORK_RECEIPTS)]
        every = [_Found(*row) for row in rows]
        if not selection.ids:
            if selection.since:
                every = [each for each in every if self._finished(each) >= selection.since]
            return sorted(every, key=_place)
        chosen: dict[str, _Found] = {}
        by_id = {each.receipt_id: each for each in every}
        for wanted in selection.ids:
            found = [each for each in every if wanted in (each.receipt_id, each.execution_id)]
            if not found:
                raise Refused(
                    "RECEIPT_UNKNOWN",
                    f"Nothing in this home has the id {wanted[:80]!r}.",
                    remedy="Give the id of a receipt or an execution; `actum receipts list` shows"
                    " those there are.",
                )
            for each in found:
                chosen[each.receipt_id] = each
                if not each.execution_id:  # the calls of a work item have receipts of their own
                    calls = self._predicate(each)["capsule"]["tool_trace"]
                    named = (by_id.get(str(call["receipt_id"])) for call in calls)
                    chosen |= {call.receipt_id: call for call in named if call is not None}
        return sorted(chosen.values(), key=_place)

    def _rotations(self, size: int, checkpoint: str) -> Iterator[_Entry]:
        for seq, record in self._database.rows(
            "SELECT seq, record FROM audit WHERE seq <= ? AND instr(record, ?) ORDER BY seq",
            (size, Kind.KEY_ROTATE.encode()),
        ):
            if json.loads(record).get("kind") == Kind.KEY_ROTATE:
                yield self._proof(f"rotations/{seq}.json", seq, checkpoint)

    def _receipt(
        self, found: _Found, checkpoint: str, selection: Selection, files: dict[str, str]
    ) -> Iterator[_Entry]:
        folder = f"receipts/{found.receipt_id}"
        yield _Entry(name=f"{folder}/receipt.json", read=lambda: self._envelope(found))
        yield self._proof(f"{folder}/proof.json", found.final_seq, checkpoint)
        if not (selection.records or selection.files) or not found.execution_id:
            return
        yield _Entry(name=f"{folder}/evidence.json", read=lambda: self._record(found))
        yield _Entry(name=f"{folder}/trace.json", read=lambda: self._trace(found))
        if selection.files:
            listed = json.loads(self._record(found))["files"]
            files |= {file["sha256"]: file["blake3"] for file in listed}

    def _envelope(self, found: _Found) -> bytes:
        table = "receipts" if found.execution_id else "work_receipts"
        ((envelope,),) = self._database.rows(
            f"SELECT envelope FROM {table} WHERE receipt_id = ?",  # noqa: S608 -- of two constants
            (found.receipt_id,),
        )
        return str(envelope).encode()

    def _predicate(self, found: _Found) -> dict[str, Json]:
        payload = base64.b64decode(json.loads(self._envelope(found))["payload"])
        predicate: dict[str, Json] = json.loads(payload)["predicate"]
        return predicate

    def _finished(self, found: _Found) -> str:
        return str(self._predicate(found)["time"]["finished"])

    def _record(self, found: _Found) -> bytes:
        evidence = self._predicate(found)["evidence"]
        row = self._database.row(
            "SELECT document FROM evidence_records WHERE evidence_id = ?",
            (evidence["evidence_id"],),
        )
        if row is None:
            raise Refused(
                "EVIDENCE_UNKNOWN",
                f"The evidence record of the receipt {found.receipt_id} is gone.",
                remedy="`actum verify --all` names everything that is missing; without --records"
                " and --files the receipts alone can be exported.",
            )
        return str(row[0]).encode()

    def _trace(self, found: _Found) -> bytes:
        events = Traces(self._database).of_receipt(found.execution_id, found.receipt_id)
        return encoded(events)

    def _proof(self, name: str, seq: int, checkpoint: str) -> _Entry:
        return _Entry(name=name, read=lambda: encoded(prove_under(self._database, seq, checkpoint)))


_RECEIPTS = "SELECT receipt_id, execution_id, final_seq FROM receipts"
_WORK_RECEIPTS = "SELECT receipt_id, '', final_seq FROM work_receipts"


def _place(found: _Found) -> tuple[int, str]:
    return found.final_seq, found.receipt_id


def _reader(blobs: BlobStore, blake3: str) -> Callable[[], bytes]:
    return lambda: blobs.read(blake3)
