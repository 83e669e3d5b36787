"""Evidence by its reference: the records, the collected files, and raw output while it is stored.

Nothing here writes. A file is compared with its digest whenever it is read.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial

from actum.contract.canonical import sha256_bytes
from actum.contract.model import Json
from actum.errors import Refused, VerificationFailed
from actum.evidence.records.evidence_record import EvidenceRecords
from actum.store.blobs import BlobStore
from actum.store.database import Database
from actum.store.removed import OUTPUTS, Removal, removal_of
from actum.store.session_streams import SessionStore
from actum.value import value

STREAMS = ("stdout", "stderr")

_DIGEST = re.compile(r"[0-9a-f]{64}")
_MOST_NAMED = 10


@value
class Stored:
    """One output of a recorded execution: a collected file, or a stream."""

    name: str
    path: str  #: of a file, as the record has it; the name of a stream
    kind: str  #: ``artifact``, ``output_file`` or ``stream``
    sha256: str  #: of a stream: of all of it, also if only its beginning is stored
    blake3: str  #: of a file; empty for a stream
    execution_id: str
    session: str

    def is_called(self, wanted: str) -> bool:
        return wanted in (self.name, self.path)

    def has_digest(self, wanted: str) -> bool:
        return wanted == self.sha256 or (bool(self.blake3) and wanted == self.blake3)


class Evidence:
    """The evidence under one reference; several executions may share one."""

    def __init__(
        self,
        ref: str,
        records: tuple[dict[str, Json], ...],
        blobs: BlobStore,
        sessions: SessionStore,
        removed: Callable[[str], Removal | None] = lambda _execution_id: None,
    ) -> None:
        """`removed` says whether the raw output of an execution was removed by its age."""
        self.ref = ref
        self.records = records  #: oldest first; at least one
        self._blobs = blobs
        self._sessions = sessions
        self._removed = removed

    @property
    def record(self) -> dict[str, Json]:
        """The newest record."""
        return self.records[-1]

    @property
    def files(self) -> tuple[Stored, ...]:
        """The collected files of all its executions."""
        return tuple(each for each in self._stored() if each.kind != "stream")

    def read(self, wanted: str | None = None) -> bytes:
        """The bytes of one output, by name, path or digest; ``stdout`` and ``stderr`` too.

        Without a name: of the only file. Raises `Refused` if there is no such output, or if its
        session has ended.
        """
        return self.content_of(self.find(wanted))

    def find(self, wanted: str | None = None) -> Stored:
        """The output of that name, path or digest; without one, the only file."""
        fitting = self.files if wanted is None else self._called(wanted)
        contents = {(each.sha256, each.blake3) for each in fitting}
        if len(contents) == 1:
            return fitting[-1]
        there = ", ".join(dict.fromkeys(each.path for each in self.files[:_MOST_NAMED]))
        if contents:
            raise Refused(
                "EVIDENCE_AMBIGUOUS",
                f"{self.ref[:80]!r} has {len(contents)} different files"
                f"{'' if wanted is None else f' called {wanted[:80]!r}'}: {there}.",
                remedy="Name one by its path or its SHA-256; `actum evidence show` lists them.",
            )
        names = [each.name for each in self.files[:_MOST_NAMED]]
        raise Refused(
            "OUTPUT_UNKNOWN",
            f"{self.ref[:80]!r} has no "
            f"{'collected file' if wanted is None else f'output {wanted[:80]!r}'}.",
            remedy=f"It has: {', '.join(dict.fromkeys((*names, *STREAMS)))}.",
        )

    def content_of(self, found: Stored) -> bytes:
        if found.kind != "stream":
            content = self._blobs.read(found.blake3)
            if sha256_bytes(content) != found.sha256:
                raise VerificationFailed(
                    f"The evidence {found.blake3} does not have the SHA-256 of its record.",
                    remedy="`actum verify --all` compares everything.",
                )
            return content
        streams = self._sessions.get(found.session, found.execution_id)
        if streams is None:
            gone = self._removed(found.execution_id)
            how = f"by `actum gc --keep` on {gone.at}" if gone else "when it ended"
            raise Refused(
                "OUTPUT_REMOVED",
                f"The {found.name} of {found.execution_id} was removed from its session"
                f" {found.session} {how}.",
                remedy="The record has its beginning, its length and its digest. To have raw output"
                " for longer, execute with `--session ID`.",
            )
        return streams[STREAMS.index(found.name)]

    def _called(self, wanted: str) -> tuple[Stored, ...]:
        # A digest before a name: a tool may have named a file after the digest of another one.
        stored = tuple(self._stored())
        fitting = [each for each in stored if each.has_digest(wanted)]
        fitting = fitting or [each for each in stored if each.is_called(wanted)]
        # A file before a stream: a tool may have written one that is called stdout.
        files = [each for each in fitting if each.kind != "stream"]
        return tuple(files or fitting[-1:])

    def _stored(self) -> Iterator[Stored]:
        for record in self.records:
            execution_id = record["execution_id"]
            streams: dict[str, str] = record.get("full_output") or {}
            session = streams.get("session", "")
            for file in record["files"]:
                yield Stored(
                    name=file["name"],
                    path=file["path"],
                    kind=file["kind"],
                    sha256=file["sha256"],
                    blake3=file["blake3"],
                    execution_id=execution_id,
                    session=session,
                )
            for name in STREAMS if streams else ():
                yield Stored(
                    name=name,
                    path=name,
                    kind="stream",
                    sha256=streams[f"{name}_sha256"],
                    blake3="",
                    execution_id=execution_id,
                    session=session,
                )


class EvidenceStore:
    """Finds evidence."""

    def __init__(self, database: Database, blobs: BlobStore, sessions: SessionStore) -> None:
        self._records = EvidenceRecords(database)
        self._removed = partial(removal_of, database, OUTPUTS)
        self._blobs = blobs
        self._sessions = sessions

    def find(self, ref: str) -> Evidence:
        """By `evidence_ref`, or by the id of the evidence, of its execution or of its receipt."""
        records = self._records.resolve(ref)
        if not records:
            raise _unknown(ref)
        return Evidence(ref, records, self._blobs, self._sessions, self._removed)

    def having(self, digest: str) -> Evidence:
        """The evidence with an output of this SHA-256 or BLAKE3."""
        records = self._records.naming(digest) if _DIGEST.fullmatch(digest) else ()
        found = Evidence(digest, records, self._blobs, self._sessions, self._removed)
        if not records or not any(each.has_digest(digest) for each in found._stored()):
            raise _unknown(digest)
        return found

    def locate(self, wanted: str, name: str | None = None) -> tuple[Evidence, Stored]:
        """One output: by its digest alone, or by a reference and its name."""
        if name is None and _DIGEST.fullmatch(wanted):
            evidence = self.having(wanted)
            return evidence, evidence.find(wanted)
        evidence = self.find(wanted)
        return evidence, evidence.find(name)


def _unknown(ref: str) -> Refused:
    return Refused(
        "EVIDENCE_UNKNOWN",
        f"There is no evidence {ref[:80]!r} in this home.",
        remedy="Give an evidence_ref, or the id of an execution or a receipt; `actum receipts list`"
        " shows those there are. A collected file can be given by its SHA-256 or BLAKE3.",
    )
