"""Stored receipts: read from the database, exported as files.

The file `.actum/receipts/<receipt_id>.json` is a copy, made on request. The row in the database is
the original, so the file is written without a sync and may be deleted at will.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

from actum.contract.model import Json
from actum.errors import EvidenceUnavailable, Refused
from actum.evidence.records.receipt import Receipt
from actum.store.database import Database
from actum.store.whole_file import write_whole
from actum.value import value


@value
class KeptReceipt:
    receipt_id: str
    execution_id: str
    evidence_id: str
    final_seq: int  #: number of the audit record that names this receipt
    encoded: bytes
    sha256: str

    @property
    def envelope(self) -> dict[str, Json]:
        decoded: dict[str, Json] = json.loads(self.encoded)
        return decoded


class Receipts:
    def __init__(self, database: Database, home: str | os.PathLike[str]) -> None:
        self._database = database
        self.directory = Path(home) / "receipts"
        self.folder = str(self.directory)

    def get(self, receipt_id: str) -> KeptReceipt | None:
        row = self._database.row(f"{_SELECT} WHERE receipt_id = ?", (receipt_id,))
        return _kept(row) if row else None

    def find(self, receipt_id: str) -> KeptReceipt:
        kept = self.get(receipt_id)
        if kept is None:
            raise Refused(
                "RECEIPT_UNKNOWN",
                f"receipt_id: there is no receipt {receipt_id[:80]!r} in this home.",
                remedy="`actum receipts list` shows those there are.",
            )
        return kept

    def of_execution(self, execution_id: str) -> tuple[KeptReceipt, ...]:
        """All receipts of one id, oldest first: refusals may precede the one that ran."""
        rows = self._database.rows(
            f"{_SELECT} WHERE execution_id = ? ORDER BY rowid", (execution_id,)
        )
        return tuple(_kept(row) for row in rows)

    def latest(self, limit: int) -> tuple[KeptReceipt, ...]:
        """The newest receipts, newest first."""
        rows = self._database.rows(f"{_SELECT} ORDER BY rowid DESC LIMIT ?", (limit,))
        return tuple(_kept(row) for row in rows)

    def path(self, receipt_id: str) -> Path:
        """The path of a receipt's exported file."""
        return self.directory / f"{receipt_id}.json"

    def export(self, receipt_id: str) -> Path:
        """Write the file of a receipt that is in the store; return its path."""
        kept = self.find(receipt_id)
        self.write(kept)
        return self.path(kept.receipt_id)

    def write(self, receipt: Receipt | KeptReceipt) -> None:
        """Write or replace a receipt's file; does not need the database."""
        path = self.path(receipt.receipt_id)
        try:
            if not os.path.isdir(self.directory):
                if not os.path.isdir(self.directory.parent):
                    return  # a closed throwaway project; its receipts are gone
                self.directory.mkdir(mode=0o700, exist_ok=True)
            write_whole(path, receipt.encoded, synced=False)  # a reader never sees half of it
        except OSError as error:
            raise _unwritten(path, error) from error


_SELECT = "SELECT receipt_id, execution_id, evidence_id, final_seq, envelope, sha256 FROM receipts"


def _unwritten(path: str | Path, error: OSError) -> EvidenceUnavailable:
    return EvidenceUnavailable(
        f"The receipt cannot be written to {path}: {error.strerror}.",
        remedy="It is safe in the database; `actum receipts show` prints it.",
    )


def _kept(row: tuple[str, str, str, int, str, str]) -> KeptReceipt:
    return KeptReceipt(
        receipt_id=row[0],
        execution_id=row[1],
        evidence_id=row[2],
        final_seq=row[3],
        encoded=row[4].encode(),
        sha256=row[5],
    )
