"""Records and packs: read strictly, and the same contents make the same packs."""

from __future__ import annotations

import hashlib
import os
from datetime import UTC, datetime

import pytest

from actum.errors import Refused
from actum.runs.transport import content_pack, snapshot_manifest, snapshot_record
from actum.runs.transport.content_pack import PACK_BYTES, SMALL_BYTES, Pack, PackedContent
from actum.runs.transport.object_store import Found
from actum.runs.transport.snapshot_manifest import Listed, SnapshotBounds
from actum.runs.transport.snapshot_record import PackRef, Stored
from actum.workspace.tree import Kind

BOUNDS = SnapshotBounds()
TOP = Listed(Kind.FOLDER, 0o755)


def content(number: int, size: int = 2_000) -> PackedContent:
    return PackedContent(hashlib.sha256(b"%d" % number).digest(), size)


def stored(entries: dict[bytes, Listed]) -> Stored:
    manifest = snapshot_manifest.of(entries, BOUNDS)
    found = Found(key="k", size=1, modified=datetime.now(UTC))
    return Stored(
        name=manifest.name, manifest=manifest, packs=(), bases=(), found=found, content=b""
    )


def test_packs_are_full_and_in_order() -> None:
    contents = [content(number) for number in range(5_000)]
    packs = [*content_pack.packs_of(contents)]
    assert [each for pack in packs for each in pack.contents] == contents
    assert len(packs) == 3
    assert all(pack.size - pack.header_bytes <= PACK_BYTES for pack in packs)
    assert packs == [*content_pack.packs_of(iter(contents))]


def test_a_header_is_read_as_it_was_written() -> None:
    pack = Pack((content(1), content(2, SMALL_BYTES - 1)))
    assert content_pack.read_header(pack.header) == pack
    assert len(pack.header) == pack.header_bytes
    assert pack.name == hashlib.sha256(pack.header).hexdigest()


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"actum-pack 2\n" + bytes(36),
        Pack((content(1),)).header[:-1],
        Pack((content(1, 0),)).header,
        Pack((content(1, SMALL_BYTES),)).header,
        b"actum-pack 1\n" + Pack((content(1),)).header[13:] * 20_000,
    ],
)
def test_a_header_that_no_pack_has_is_refused(header: bytes) -> None:
    with pytest.raises(Refused):
        content_pack.read_header(header)


def test_a_pack_with_other_bytes_does_not_hold() -> None:
    texts = [b"first", b"second"]
    pack = Pack(tuple(PackedContent(hashlib.sha256(text).digest(), len(text)) for text in texts))
    whole = pack.header + b"".join(texts)
    assert content_pack.holds(pack, whole)
    assert [text for _, text in content_pack.contents_in(pack, whole)] == texts
    for at in range(len(whole)):
        changed = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
        assert not content_pack.holds(pack, changed)
    assert not content_pack.holds(pack, whole[:-1])
    assert not content_pack.holds(pack, whole + b"x")


def test_a_record_is_read_as_it_was_written() -> None:
    manifest = stored({b"": TOP, b"a": TOP}).manifest
    refs = (PackRef("ab" * 32, 49, 100), PackRef("cd" * 32, 85, 5_000_000))
    text = snapshot_record.whole_record(manifest, refs)
    assert snapshot_record.is_whole(text)
    record = snapshot_record.read(text)
    assert (record.base, record.packs, record.payload) == ("", refs, manifest.content)


def test_a_record_of_changes_names_only_what_differs() -> None:
    names = {b"d%d" % number: TOP for number in range(1_000)}
    base = stored({b"": TOP, **names})
    now = stored({b"": Listed(Kind.FOLDER, 0o700), **names, b"d5": Listed(Kind.FOLDER), b"e": TOP})
    gone = stored({path: e for path, e in base.manifest.entries.items() if path != b"d7"})
    changes = snapshot_record.read(snapshot_record.changed_record(base, now.manifest, ()))
    assert changes.base == base.name
    assert changes.payload == b"+ d 700 .\n+ d 0 d5\n+ d 755 e\n"
    changes = snapshot_record.read(snapshot_record.changed_record(base, gone.manifest, ()))
    assert changes.payload == b"- d7\n"


def test_every_damage_of_a_record_shows() -> None:
    text = snapshot_record.whole_record(stored({b"": TOP}).manifest, ())
    for at in range(len(text)):
        assert not snapshot_record.is_whole(text[:at] + bytes([text[at] ^ 1]) + text[at + 1 :])
        assert not snapshot_record.is_whole(text[:at])


def record(*lines: bytes) -> bytes:
    body = b"\n".join((b"actum-record 1", *lines, b""))
    return body + b"sum " + hashlib.sha256(body).hexdigest().encode() + b"\n"


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ((b"changes", b"- a"), "without a base"),
        ((b"base " + b"a" * 64, b"manifest"), "without a base, or a base without changes"),
        ((b"base ../../x", b"changes"), "no snapshot"),
        ((b"base " + b"a" * 64, b"base " + b"b" * 64, b"changes"), "belongs to none"),
        ((b"pack ../x 49 100", b"manifest"), "belongs to none"),
        ((b"pack " + b"a" * 64 + b" 100 49", b"manifest"), "a size that no pack has"),
        ((b"pack " + b"a" * 64 + b" 9999999 99999999", b"manifest"), "a size that no pack has"),
        ((b"pack " + b"a" * 64 + b" 49 1e9", b"manifest"), "belongs to none"),
        ((b"what", b"manifest"), "belongs to none"),
        ((), "has no manifest|belongs to none"),
        (((b"pack " + b"a" * 64 + b" 49 100"),) * 8_193 + (b"manifest",), "belongs to none"),
    ],
)
def test_a_hostile_record_is_refused(lines: tuple[bytes, ...], why: str) -> None:
    with pytest.raises(Refused, match=why) as refused:
        snapshot_record.read(record(*lines))
    assert refused.value.code == "SNAPSHOT_INVALID"


def test_keys_hold_no_more_than_digests() -> None:
    digest = os.urandom(32)
    assert snapshot_record.content_key(digest) == f"contents/{digest.hex()[:2]}/{digest.hex()}"
    with pytest.raises(Refused) as refused:
        snapshot_manifest.require_name("../" * 20 + "abcd")
    assert refused.value.code == "SNAPSHOT_UNKNOWN"
