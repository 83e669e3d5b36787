"""Verdicts of the review gate: signed, permanent, and the only way into the registry.

A verdict is about exact bytes. It names the digest of its contract, and counts only while the
contract is unchanged. The newest verdict about the same bytes is the one in force.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from functools import cache
from importlib import resources

from actum import __version__
from actum.contract.canonical import sha256_bytes
from actum.contract.model import Json
from actum.errors import VerificationFailed
from actum.evidence.log import Log
from actum.evidence.records.audit import VERSION, closed
from actum.evidence.records.encoding import encoded
from actum.evidence.records.reviews import PAYLOAD_TYPE
from actum.evidence.records.trace import rfc3339
from actum.executors.model import Declaration
from actum.store import dsse
from actum.store.database import Database
from actum.store.keys import PublicKey
from actum.value import value

CONTRACT = "CONTRACT.md"


@cache
def contract_sha256() -> str:
    """The digest of the contract that the gate refers to."""
    return sha256_bytes(resources.files("actum.executors").joinpath(CONTRACT).read_bytes())


@value
class Check:
    """One question of the gate, and every objection."""

    name: str
    objections: tuple[str, ...] = ()
    remark: str = ""

    @property
    def passed(self) -> bool:
        return not self.objections


@value
class Review:
    """The gate's findings about one file. Approved only if every check passed."""

    file: str
    source_sha256: str
    declared: Declaration | None
    checks: tuple[Check, ...]
    by: str
    at: datetime
    contract: str

    @property
    def approved(self) -> bool:
        return self.declared is not None and all(check.passed for check in self.checks)

    def document(self) -> dict[str, Json]:
        return {
            "v": 1,
            "contract": {"name": CONTRACT, "sha256": self.contract},
            "file": self.file,
            "source_sha256": self.source_sha256,
            "executor": self.declared.document() if self.declared else None,
            "approved": self.approved,
            "checks": [
                {
                    "check": check.name,
                    "passed": check.passed,
                    "objections": list(check.objections),
                    "remark": check.remark,
                }
                for check in self.checks
            ],
            "by": self.by,
            "at": rfc3339(self.at),
            "actum": __version__,
        }

    @classmethod
    def read(cls, document: Mapping[str, Json]) -> Review:
        executor = document["executor"]
        return cls(
            file=document["file"],
            source_sha256=document["source_sha256"],
            declared=Declaration.read(executor) if executor else None,
            checks=tuple(
                Check(
                    name=each["check"],
                    objections=tuple(each["objections"]),
                    remark=each["remark"],
                )
                for each in document["checks"]
            ),
            by=document["by"],
            at=datetime.fromisoformat(document["at"]),
            contract=document["contract"]["sha256"],
        )


class Verdicts:
    def __init__(self, database: Database, log: Log, trusted: Mapping[str, PublicKey]) -> None:
        self._database = database
        self._log = log
        self._trusted = trusted

    def record(self, *reviews: Review) -> None:
        """Sign and store verdicts, with an audit record each, in one transaction."""
        with self._log.page() as page:
            for review in reviews:
                envelope = json.dumps(
                    dsse.sign(encoded(review.document()), PAYLOAD_TYPE, page.signer)
                )
                declared = review.declared
                page.append(
                    {
                        "v": VERSION,
                        "kind": "REVIEW",
                        "event_type": "executor_review",
                        "ts": rfc3339(datetime.now(UTC)),
                        "executor_id": declared.executor_id if declared else None,
                        "executor_version": declared.version if declared else None,
                        "source_sha256": review.source_sha256,
                        "contract_sha256": review.contract,
                        "approved": review.approved,
                        "by": closed(review.by),
                        "verdict_sha256": sha256_bytes(envelope.encode()),
                    }
                )
                page.cursor.execute(
                    "INSERT INTO executor_reviews (executor_id, source_sha256, approved, envelope)"
                    " VALUES (?, ?, ?, ?)",
                    (
                        declared.executor_id if declared else None,
                        review.source_sha256,
                        review.approved,
                        envelope,
                    ),
                )

    def about(self, source_sha256: str) -> Review | None:
        """The newest verdict about these bytes that a trusted key signed."""
        return self._newest("source_sha256 = ?", source_sha256)

    def approved_version_of(self, executor_id: str) -> Review | None:
        """The newest approval of this id, whatever its bytes."""
        return self._newest("executor_id = ? AND approved = 1", executor_id)

    def approved_under(self, file: str, *, besides: Collection[str]) -> Review | None:
        """The newest approval of a file of this name, except of the bytes `besides`."""
        rows = self._database.rows(
            "SELECT envelope FROM executor_reviews WHERE approved = 1 ORDER BY seq DESC"
        )
        reviews = (self._verified(row[0]) for row in rows)
        mine = (each for each in reviews if each and each.file == file)
        return next((each for each in mine if each.source_sha256 not in besides), None)

    def _newest(self, where: str, value: str) -> Review | None:
        row = self._database.row(
            f"SELECT envelope FROM executor_reviews WHERE {where} ORDER BY seq DESC LIMIT 1",  # noqa: S608
            (value,),
        )
        return self._verified(row[0]) if row else None

    def _verified(self, envelope: str) -> Review | None:
        try:
            payload = dsse.verify(json.loads(envelope), self._trusted, payload_type=PAYLOAD_TYPE)
        except VerificationFailed:
            return None  # the row is not signed by a trusted key, so there is no verdict
        return Review.read(json.loads(payload))
