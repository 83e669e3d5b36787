"""Verifies an evidence archive with nothing but the keys that the reader trusts.

The manifest lists every entry and is signed, so nothing can be changed, added or left out. But it
is no proof of what happened: each receipt is also compared with the record that closed it, the
record with the signed head of the log, and the signer with the key that was current for that
record. Retired keys come from the archive itself. They count only as far as the log under that
head says: each is named, with its signature, in the record that replaced it.
"""

from __future__ import annotations

import base64
import bisect
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from actum.contract.canonical import sha256_bytes
from actum.contract.model import Json
from actum.errors import VerificationFailed
from actum.evidence.archive_format import (
    CHECKPOINT,
    FORMAT,
    LARGEST_DOCUMENT,
    MANIFEST,
    PAYLOAD_TYPE,
    Member,
    looks_like_archive,
    members,
)
from actum.evidence.proof import check_proof
from actum.evidence.rotation import rotation_problem
from actum.evidence.verify.decision_findings import decision_findings
from actum.evidence.verify.findings import DATA_ERRORS, Finding, judged, said
from actum.evidence.verify.predicates import expected_closing
from actum.evidence.verify.statements import signed_statement
from actum.evidence.verify.work_findings import content_findings, is_work_receipt, read_work_receipt
from actum.store import dsse, note
from actum.store.keys import PublicKey, key_named
from actum.value import field, value

Trusted = Mapping[str, PublicKey]

_ARCHIVE = "archive"
_ENVELOPE = re.compile(
    rb'\{"payload":"(?P<payload>[A-Za-z0-9+/=]*)","payloadType":"(?P<kind>[a-z./+-]*)",'
    rb'"signatures":\[\{"keyid":"(?P<keyid>[0-9a-f]{64})","sig":"(?P<sig>[A-Za-z0-9+/=]*)"\}\]\}'
)


def is_archive(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return looks_like_archive(file.read(512))
    except OSError:
        return False


def archive_findings(file: BinaryIO, trusted: Trusted) -> Iterator[Finding]:
    """Every check of the archive in `file`; malformed data is a finding, not an error."""
    reading = _Reading(trusted=trusted)
    try:
        for member in members(file):
            yield from reading.entry(member)
        yield from reading.end()
    except DATA_ERRORS as error:
        yield Finding(_ARCHIVE, "entries", False, said(error))


@value(frozen=False, kw_only=False)
class _Group:
    """The entries of one receipt."""

    receipt_id: str
    documents: dict[str, bytes] = field(default_factory=dict)


@value(frozen=False)
class _Reading:
    trusted: Trusted
    listed: list[list[Json]] | None = None  #: name, size and SHA-256 of the entries to come
    at: int = 0
    checkpoint: str = ""
    signer: PublicKey | None = None  #: of the checkpoint
    offered: dict[str, PublicKey] = field(default_factory=dict)
    rotations: list[tuple[int, dict[str, Json]]] = field(default_factory=list)
    #: From which record on which key signs, ascending; set when the first receipt is read.
    turns: list[tuple[int, PublicKey]] | None = None
    group: _Group | None = None
    receipts: int = 0
    named: set[str] = field(default_factory=set)  #: files that an evidence record names
    files: set[str] = field(default_factory=set)
    parts: set[str] = field(default_factory=set)

    def entry(self, member: Member) -> Iterator[Finding]:
        if self.listed is None:
            self.listed = self._manifest(member)
            yield Finding(f"{_ARCHIVE} manifest", "signature", True, f"{len(self.listed)} entries")
            return
        if self.at == len(self.listed):
            raise VerificationFailed(f"{member.name}: the manifest does not list it.")
        name, size, digest = self.listed[self.at]
        self.at += 1
        if (member.name, member.size) != (name, size):
            raise VerificationFailed(
                f"{member.name} with {member.size} bytes is where the manifest has {name} with"
                f" {size} bytes."
            )
        yield from self._content(member, digest)

    def _manifest(self, member: Member) -> list[list[Json]]:
        if member.name != MANIFEST:
            raise VerificationFailed(f"The first entry is {member.name}, not {MANIFEST}.")
        # By a pattern: JSON of an unknown signer could become many times its size in memory.
        found = _ENVELOPE.fullmatch(_whole(member))
        if found is None:
            raise VerificationFailed(f"{MANIFEST} is not in the form in which Actum writes it.")
        text = {name: part.decode() for name, part in found.groupdict().items()}
        envelope = {
            "payload": text["payload"],
            "payloadType": text["kind"],
            "signatures": [{"keyid": text["keyid"], "sig": text["sig"]}],
        }
        payload = dsse.verify(envelope, self.trusted, payload_type=PAYLOAD_TYPE)
        document = json.loads(payload)
        if set(document) != {"format", "entries"} or document["format"] != FORMAT:
            raise VerificationFailed(f"{MANIFEST} is not one of {FORMAT}.")
        listed: list[list[Json]] = document["entries"]
        if len({name for name, _, _ in listed}) != len(listed):
            raise VerificationFailed(f"{MANIFEST} lists a name twice.")
        return listed

    def _content(self, member: Member, digest: Json) -> Iterator[Finding]:
        folder, _, rest = member.name.partition("/")
        if folder == "files":
            yield from self._file(member, rest, digest)
            return
        content = _whole(member)
        if sha256_bytes(content) != digest:
            changed = "its SHA-256 is not the one in the signed manifest"
            yield Finding(f"entry {member.name}", "content", False, changed)
            return
        if folder == "receipts":
            receipt_id, _, part = rest.partition("/")
            if self.group is None or self.group.receipt_id != receipt_id:
                yield from self._close_group()
                self.group = _Group(receipt_id)
            self.group.documents[part] = content
            return
        try:
            yield from self._of_log(member.name, folder, rest, content)
        except DATA_ERRORS as error:
            yield Finding(f"entry {member.name}", "content", False, said(error))

    def _file(self, member: Member, name: str, digest: Json) -> Iterator[Finding]:
        yield from self._close_group()
        hashed = hashlib.sha256()
        for part in member.parts:
            hashed.update(part)
        subject = f"entry {member.name}"
        self.files.add(name)
        if hashed.hexdigest() != name or name != digest:
            yield Finding(subject, "content", False, "its SHA-256 is not the one in its name")
        elif name not in self.named:
            yield Finding(subject, "named", False, "no evidence record of the archive names it")

    def _of_log(self, name: str, folder: str, rest: str, content: bytes) -> Iterator[Finding]:
        if name == CHECKPOINT:
            self.checkpoint = content.decode()
            found = note.parse(self.checkpoint)
            # The last signature names the key that is current after this checkpoint.
            self.signer = self.trusted[note.verify(found, self.trusted.values())[-1]]
            size = f"{found.checkpoint.size} records of {found.checkpoint.origin}"
            yield Finding("checkpoint", "signature", True, size)
        elif folder == "keys":
            key = PublicKey.from_pem(content.decode(), where=name)
            yield judged(f"entry {name}", "name", rest == f"{key.keyid}.pub", "of another key")
            self.offered[key.keyid] = key
        else:
            bundle = json.loads(content)
            broken = [each for each in self._proof(bundle) if not each.passed]
            yield from broken
            if not broken:
                self.rotations.append((bundle["seq"], json.loads(bundle["record"])))

    def _proof(self, bundle: Mapping[str, Json]) -> Iterator[Finding]:
        yield from check_proof(bundle, self.trusted)
        same = bundle.get("checkpoint") == self.checkpoint
        yield judged(
            f"audit record {bundle.get('seq')}",
            "checkpoint of the archive",
            same,
            "its proof is under another one",
        )

    def _succession(self) -> Iterator[Finding]:
        """Who signed when, from the signer of the checkpoint backwards."""
        self.turns = []
        current = self.signer
        if current is None:
            yield Finding("checkpoint", "present", False, "no entry holds the head of the log")
            return
        for seq, document in reversed(self.rotations):
            subject = f"audit record {seq}"
            retired = key_named(self.offered, str(document.get("retired_keyid")))
            if retired is None:
                yield Finding(subject, "key rotation", False, "the key it retires is not there")
                return
            problem = rotation_problem(document, retired.keyid, {retired.keyid: retired})
            if not problem and base64.b64decode(document["public_key"]) != current.raw:
                problem = f"its successor is not {current.keyid}, the key in turn afterwards"
            yield judged(subject, "key rotation", not problem, problem)
            if problem:
                return
            self.turns.insert(0, (seq + 1, current))
            current = retired
        self.turns.insert(0, (1, current))

    def _signer_at(self, seq: int) -> dict[str, PublicKey]:
        turns = self.turns or []
        at = bisect.bisect_right([first for first, _ in turns], seq) - 1
        return {turns[at][1].keyid: turns[at][1]} if at >= 0 else {}

    def _close_group(self) -> Iterator[Finding]:
        group, self.group = self.group, None
        if group is None:
            return
        if self.turns is None:
            yield from self._succession()
        self.receipts += 1
        subject = f"receipt {group.receipt_id}"
        try:
            findings = list(self._receipt(group, subject))
        except DATA_ERRORS as error:
            yield Finding(subject, "content", False, f"it cannot be read: {said(error)}")
            return
        broken = [each for each in findings if not each.passed]
        said_more = [each for each in findings if each.passed and each.check == "approval"]
        if broken:
            yield from broken
            return
        checked = f"signature, audit record and place in the log{_more(group)}"
        yield Finding(subject, "verified", True, checked)
        yield from said_more

    def _receipt(self, group: _Group, subject: str) -> Iterator[Finding]:
        content, proof = group.documents.get("receipt.json"), group.documents.get("proof.json")
        if content is None or proof is None:
            yield Finding(subject, "present", False, "the receipt or its proof is not there")
            return
        bundle = json.loads(proof)
        yield from self._proof(bundle)
        record = json.loads(bundle["record"])
        envelope, signer = json.loads(content), self._signer_at(bundle["seq"])
        digest = sha256_bytes(content)
        if is_work_receipt(envelope):
            predicate = read_work_receipt(envelope, signer)
            names = ("receipt_id", "status", "before_hash", "after_hash")
            expected = {name: predicate[name] for name in names if name in record}
            expected |= {"receipt_sha256": digest}
            yield from content_findings(subject, predicate, accepted=True)
        else:
            statement, findings = signed_statement(envelope, signer, subject)
            yield from findings
            if statement is None:
                return
            predicate = statement["predicate"]
            expected = expected_closing(predicate, digest)
            yield from self._records(group, predicate, statement["subject"])
            yield from decision_findings(subject, predicate, None)
        own = predicate["receipt_id"] == group.receipt_id
        yield judged(subject, "name", own, f"it is {predicate['receipt_id']}")
        differing = sorted(name for name, value in expected.items() if record.get(name) != value)
        yield judged(subject, "audit record", not differing, f"other {', '.join(differing)}")

    def _records(
        self, group: _Group, predicate: Mapping[str, Json], subjects: list[Mapping[str, Json]]
    ) -> Iterator[Finding]:
        for part, signed in (
            ("evidence.json", predicate["evidence"]["sha256"]),
            ("trace.json", predicate["trace"]["sha256"]),
        ):
            content = group.documents.get(part)
            if content is None:
                continue
            self.parts.add(part)
            same = sha256_bytes(content) == signed
            where = f"entry receipts/{group.receipt_id}/{part}"
            yield judged(where, "digest", same, "it is not what the receipt signs")
        if "evidence.json" in group.documents:
            listed = {
                f"{file['kind']}/{file['path']}": file["sha256"]
                for file in json.loads(group.documents["evidence.json"])["files"]
            }
            self.named |= set(listed.values())
            wrong = [
                each["name"]
                for each in subjects[1:]
                if listed.get(each["name"]) != each["digest"]["sha256"]
            ]
            where = f"receipt {group.receipt_id}"
            yield judged(where, "lists its files", not wrong, ", ".join(map(str, wrong)))

    def end(self) -> Iterator[Finding]:
        yield from self._close_group()
        if self.listed is None:
            yield Finding(_ARCHIVE, "manifest", False, "it is empty")
            return
        missing = [str(name) for name, _, _ in self.listed[self.at :]]
        if missing:
            short = f"{len(missing)} entries that the manifest lists are missing: {missing[0]}"
            yield Finding(_ARCHIVE, "complete", False, short)
        if not self.receipts:
            yield Finding(_ARCHIVE, "receipts", False, "there is none in it")
        lost = self.named - self.files if self.files else set()
        if lost:
            detail = f"{len(lost)} files that its evidence records name: {min(lost)}"
            yield Finding(_ARCHIVE, "files", False, f"not in it: {detail}")
        yield Finding(_ARCHIVE, "holds", True, self._held())

    def _held(self) -> str:
        absent = [
            what
            for what, there in (
                ("evidence records", "evidence.json" in self.parts),
                ("traces", "trace.json" in self.parts),
                ("collected files", bool(self.files)),
            )
            if not there
        ]
        held = f"{self.receipts} receipts, {len(self.files)} files"
        return f"{held}; not in it: {', '.join(absent)}" if absent else held


def _more(group: _Group) -> str:
    parts = [part.removesuffix(".json") for part in ("evidence.json", "trace.json")]
    there = [part for part in parts if f"{part}.json" in group.documents]
    return f", {' and '.join(there)}" if there else ""


def _whole(member: Member) -> bytes:
    if member.size > LARGEST_DOCUMENT:
        raise VerificationFailed(
            f"{member.name} has {member.size} bytes; at most {LARGEST_DOCUMENT} are read."
        )
    return b"".join(member.parts)
