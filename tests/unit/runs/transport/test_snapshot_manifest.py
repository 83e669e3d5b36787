"""The manifest: the same tree, the same bytes; and nothing else is accepted."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from actum.errors import Refused
from actum.runs.transport import snapshot_manifest
from actum.runs.transport.snapshot_manifest import (
    PART_BYTES,
    Listed,
    Manifest,
    SnapshotBounds,
    line_of,
    of,
    parse,
)
from actum.workspace.tree import Kind

BOUNDS = SnapshotBounds()
TOP = Listed(Kind.FOLDER, 0o755)


def file(content: bytes, mode: int = 0o644) -> Listed:
    return Listed(Kind.FILE, mode, len(content), hashlib.sha256(content).digest())


def test_the_format_is_these_bytes() -> None:
    entries = {
        b"src/notes": Listed(Kind.LINK, target=b"../READ ME"),
        b"READ ME": file(b"hello", 0o600),
        b"src": Listed(Kind.FOLDER, 0o700),
        b"caf\xe9": file(b""),
        b"": TOP,
        b"src-2": Listed(Kind.FOLDER, 0o755),
    }
    manifest = of(entries, BOUNDS)
    assert manifest.content == (
        b"actum-snapshot 1\n"
        b"d 755 .\n"
        b"f 600 5 2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824 READ%20ME\n"
        b"f 644 0 e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855 caf%E9\n"
        b"d 700 src\n"
        b"d 755 src-2\n"
        b"l ../READ%20ME src/notes\n"
    )
    assert manifest.name == "39eef8340ba12c4f825ba636553642499319bcffc697b65a312858d17757525e"
    assert parse(manifest.content, BOUNDS).entries == entries


_names = st.binary(min_size=1, max_size=12).filter(
    lambda name: b"/" not in name and b"\0" not in name and name not in (b".", b"..")
)
_leaves = st.one_of(
    st.builds(file, st.binary(max_size=20), st.integers(0, 0o777)),
    st.builds(
        lambda target: Listed(Kind.LINK, target=target),
        st.binary(min_size=1, max_size=30).filter(lambda target: b"\0" not in target),
    ),
)
_trees = st.recursive(
    _leaves,
    lambda inner: st.tuples(st.integers(0, 0o777), st.dictionaries(_names, inner, max_size=4)),
    max_leaves=20,
)


def flat(tree: object, path: bytes = b"") -> dict[bytes, Listed]:
    if isinstance(tree, Listed):
        return {path: tree}
    assert isinstance(tree, tuple)
    mode, names = tree
    found = {path: Listed(Kind.FOLDER, mode)}
    for name, inner in names.items():
        found |= flat(inner, path + b"/" + name if path else name)
    return found


@settings(max_examples=40)
@given(st.tuples(st.integers(0, 0o777), st.dictionaries(_names, _trees, max_size=6)))
def test_what_is_written_is_read(tree: object) -> None:
    entries = flat(tree)
    for reserved in (b".git", b".actum", b".actum-removable"):
        if reserved in entries:
            return
    manifest = of(dict(reversed(entries.items())), BOUNDS)
    again = parse(manifest.content, BOUNDS)
    assert dict(again.entries) == entries
    assert again.name == manifest.name == hashlib.sha256(manifest.content).hexdigest()
    assert [*manifest.lines] == sorted(entries)


@settings(max_examples=40)
@given(st.data())
def test_no_other_bytes_are_accepted(data: st.DataObject) -> None:
    """A changed manifest is refused, or is the canonical one of another tree."""
    content = bytearray(of({b"": TOP, b"a": TOP, b"a/b": file(b"x")}, BOUNDS).content)
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] = data.draw(st.integers(0, 255))
    try:
        manifest = parse(bytes(content), BOUNDS)
    except Refused:
        return
    assert of(manifest.entries, BOUNDS).content == content


_HEX = hashlib.sha256(b"x").hexdigest().encode()
_GOOD = b"f 644 1 %b b" % _HEX

#: Lines behind the top's, and what the refusal says.
HOSTILE = {
    "parent": ([b"f 644 1 %b .." % _HEX], "not a path below the top"),
    "through the parent": ([b"d 755 a", b"f 644 1 %b a/../../b" % _HEX], "not in a folder"),
    "absolute": ([b"f 644 1 %b /etc/passwd" % _HEX], "not a path below the top"),
    "absolute, encoded": ([b"f 644 1 %b %%2Fetc%%2Fpasswd" % _HEX], "canonical"),
    "an empty name": ([b"d 755 a", b"f 644 1 %b a//b" % _HEX], "not in a folder"),
    "a slash at the end": ([b"d 755 a", b"d 755 a/"], "not a path below the top"),
    "a dot": ([b"d 755 a", b"d 755 a/."], "not a path below the top"),
    "a zero byte": ([b"f 644 1 %b a%%00b" % _HEX], "not a path below the top"),
    "a name twice": ([b"d 755 b", _GOOD], "names a path again"),
    "the top twice": ([b"d 755 ."], "names a path again"),
    "out of order": ([b"d 755 c", _GOOD], "not in order"),
    "below a file": ([_GOOD, b"d 755 b/c"], "not in a folder"),
    "below a link": ([b"l /etc a", b"f 644 1 %b a/passwd" % _HEX], "not in a folder"),
    "without its folder": ([b"f 644 1 %b a/b" % _HEX], "not in a folder"),
    "set-user-id": ([b"f 4755 1 %b b" % _HEX], "bits beyond"),
    "sticky": ([b"d 1777 b"], "bits beyond"),
    "a negative mode": ([b"d -1 b"], "bits beyond"),
    "another digit": ([b"d 0755 b"], "canonical"),
    "an underscore in a number": ([b"f 644 1_0 %b b" % _HEX], "canonical"),
    "a device": ([b"c 644 1 3 b"], "not one of a manifest"),
    "a pipe": ([b"p 644 b"], "not one of a manifest"),
    "the project's state": ([b"d 755 .actum"], "no snapshot holds"),
    "git's records": ([b"d 755 .git"], "no snapshot holds"),
    "the mark of removal": ([b"f 644 1 %b .actum-removable" % _HEX], "no snapshot holds"),
    "a short digest": ([b"f 644 1 00 b"], "do not fit"),
    "a capital digest": ([b"f 644 1 %b b" % _HEX.upper()], "canonical"),
    "an empty file with content": ([b"f 644 0 %b b" % _HEX], "empty file"),
    "a negative size": ([b"f 644 -1 %b b" % _HEX], "do not fit"),
    "parts of a small file": ([b"f 644 1 %b,%b b" % (_HEX, _HEX)], "do not fit"),
    "a large file without parts": ([b"f 644 %d %b b" % (PART_BYTES + 1, _HEX)], "do not fit"),
    "a link to nothing": ([b"l  b"], "no link can have"),
    "a link with a zero byte": ([b"l a%00 b"], "no link can have"),
    "a long name": ([b"d 755 " + b"a" * 256], "longer than Linux permits"),
    "a lower-case escape": ([b"d 755 %e9"], "canonical"),
    "an escape that is not needed": ([b"d 755 %61"], "canonical"),
    "an empty line": ([b""], "not one of a manifest"),
    "a carriage return": ([b"d 755 b\r"], "canonical"),
}


def document(*lines: bytes) -> bytes:
    return b"\n".join((b"actum-snapshot 1", b"d 755 .", *lines, b""))


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_manifest_is_refused(case: str) -> None:
    lines, why = HOSTILE[case]
    with pytest.raises(Refused, match=why) as refused:
        parse(document(*lines), BOUNDS)
    assert refused.value.code == "SNAPSHOT_INVALID"
    assert refused.value.remedy


def test_control_the_harness_of_hostile_lines_accepts_good_ones() -> None:
    lines = [b"d 700 a", b"l ../../etc/passwd a/out", _GOOD, b"d 755 b%20", b"d 755 c"]
    assert [*parse(document(*lines), BOUNDS).entries][1:] == [b"a", b"a/out", b"b", b"b ", b"c"]


@pytest.mark.parametrize(
    "content",
    [b"", b"\n", b"actum-snapshot 2\nd 755 .\n", document()[:-1], document(_GOOD)[:-2], b"{}\n"],
)
def test_a_document_that_is_cut_or_of_another_kind_is_refused(content: bytes) -> None:
    with pytest.raises(Refused):
        parse(content, BOUNDS)


@pytest.mark.parametrize(
    ("bounds", "why"),
    [
        (SnapshotBounds(entries=2), "more than 2 names"),
        (SnapshotBounds(content_bytes=1), "more than 1 bytes"),
        (SnapshotBounds(manifest_bytes=100), "larger than 100 bytes"),
    ],
)
def test_the_bounds_hold(bounds: SnapshotBounds, why: str) -> None:
    content = document(b"f 644 1 %b a" % _HEX, _GOOD)
    assert parse(content, BOUNDS).file_bytes == 2
    with pytest.raises(Refused, match=why) as refused:
        parse(content, bounds)
    assert refused.value.code == "SNAPSHOT_TOO_LARGE"


def test_a_size_in_exabytes_is_no_more_than_a_number() -> None:
    size = 1 << 60
    with pytest.raises(Refused):
        parse(document(b"f 644 %d %b b" % (size, _HEX)), BOUNDS)


def test_a_large_file_lists_its_parts() -> None:
    size = 2 * PART_BYTES + 1
    listed = Listed(Kind.FILE, 0o644, size, b"\1" * 32, (b"\2" * 32, b"\3" * 32, b"\4" * 32))
    manifest = of({b"": TOP, b"large": listed}, BOUNDS)
    assert parse(manifest.content, BOUNDS).entries[b"large"] == listed
    assert [(offset, size) for _, offset, size in listed.contents()] == [
        (0, PART_BYTES),
        (PART_BYTES, PART_BYTES),
        (2 * PART_BYTES, 1),
    ]
    assert line_of(b"large", listed).count(b",") == 3


def test_differences_are_named() -> None:
    one = of({b"": TOP, b"a": file(b"1"), b"b": file(b"2")}, BOUNDS)
    other = of({b"": TOP, b"b": file(b"2", 0o600), b"c": file(b"3")}, BOUNDS)
    assert [*snapshot_manifest.differing(one, other)] == [b"a", b"b", b"c"]
    assert isinstance(one, Manifest)
    assert not [*snapshot_manifest.differing(one, one)]
