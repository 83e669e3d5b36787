"""Evidence archives: they verify elsewhere, hostile ones are harmless, and every byte counts."""

from __future__ import annotations

import base64
import io
import json
import os
import random
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "unit"))
from evidence.factories import House, make_capture, make_file

from actum.contract.canonical import sha256_bytes
from actum.errors import Refused
from actum.evidence.archive import Exporter, Selection
from actum.evidence.archive_format import PAYLOAD_TYPE, TOP, header, padding
from actum.evidence.records.encoding import encoded
from actum.evidence.verify.archive_findings import archive_findings
from actum.evidence.verify.findings import Finding
from actum.store import dsse
from actum.store.keys import Keyring, PublicKey, public_keys

CLI = (sys.executable, "-m", "actum.doors.cli.main")


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """Executions under three keys."""
    made = House.open(tmp_path_factory.mktemp("archives") / ".actum")
    report, large = make_file("report", b"done\n"), make_file("large", bytes(300_000))
    for files in ((report,), ()):
        made.execute(capture=make_capture(collected=files))
        made.rotate()
    made.execute(capture=make_capture(collected=(report, large)))
    yield made
    made.database.close()


def export(house: House, **selection: Any) -> bytes:
    exporter = Exporter(
        house.database,
        house.blobs,
        signer=Keyring.open(house.home).signer,
        keys=tuple(public_keys(house.home)),
    )
    file = io.BytesIO()
    exporter.export(Selection(**selection), file)
    return file.getvalue()


def trusted(house: House) -> dict[str, PublicKey]:
    """As a stranger has them: the current key alone."""
    public = Keyring.open(house.home).signer.public
    return {public.keyid: public}


def check(archive: bytes, keys: dict[str, PublicKey]) -> list[Finding]:
    return list(archive_findings(io.BytesIO(archive), keys))


def broken(archive: bytes, keys: dict[str, PublicKey]) -> list[Finding]:
    return [each for each in check(archive, keys) if not each.passed]


@pytest.mark.parametrize("selection", [{}, {"records": True}, {"files": True}])
def test_the_current_key_verifies_receipts_of_all_keys(
    house: House, selection: dict[str, Any]
) -> None:
    findings = check(export(house, **selection), trusted(house))
    assert [each for each in findings if not each.passed] == []
    verified = [each.subject for each in findings if each.check == "verified"]
    assert verified == [f"receipt {each.receipt_id}" for each in reversed(house.receipts.latest(9))]
    assert sum(each.check == "key rotation" for each in findings) == 2


def test_what_was_not_asked_for_is_not_in_it(house: House) -> None:
    parts = {
        frozenset(options): {name.rsplit("/", 2)[-1] for name in names(export(house, **options))}
        for options in ({}, {"records": True}, {"files": True})
    }
    assert {"receipt.json", "proof.json"} <= parts[frozenset()]
    assert not {"evidence.json", "trace.json"} & parts[frozenset()]
    assert {"evidence.json", "trace.json"} <= parts[frozenset({"records"})]
    rows = house.database.rows("SELECT document FROM evidence_records")
    digests = {file["sha256"] for row in rows for file in json.loads(row[0])["files"]}
    assert len(digests) == 2
    assert digests <= parts[frozenset({"files"})]
    assert not digests & parts[frozenset({"records"})]


def names(archive: bytes) -> list[str]:
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:") as found:
        return found.getnames()


def test_the_same_evidence_gives_the_same_bytes(house: House) -> None:
    assert export(house, files=True) == export(house, files=True)


def test_a_selection_by_id_and_by_time(house: House) -> None:
    kept = house.receipts.latest(9)
    one = export(house, ids=(kept[0].execution_id,))
    assert [each for each in names(one) if each.endswith("receipt.json")] == [
        f"{TOP}receipts/{kept[0].receipt_id}/receipt.json"
    ]
    assert broken(one, trusted(house)) == []
    assert export(house, since="2000-01-01T00:00:00.000Z") == export(house)
    with pytest.raises(Refused) as refused:
        export(house, since="2999-01-01T00:00:00.000Z")
    assert refused.value.code == "NOTHING_TO_EXPORT"
    with pytest.raises(Refused) as refused:
        export(house, ids=("nothing",))
    assert refused.value.code == "RECEIPT_UNKNOWN"


def test_without_the_current_key_nothing_counts(house: House, tmp_path: Path) -> None:
    archive, stranger = export(house), Keyring.open(tmp_path, create=True).signer.public
    assert [each.check for each in broken(archive, {stranger.keyid: stranger})] == ["entries"]
    retired = [key for key in public_keys(house.home) if key.keyid not in trusted(house)]
    assert len(retired) == 2
    for key in retired:
        assert broken(archive, {key.keyid: key})


def test_a_changed_byte_anywhere_is_a_finding(house: House) -> None:
    """Every byte of the headers and of the end, every 37th of the contents."""
    (kept,) = house.receipts.latest(1)[:1]
    archive, keys = export(house, ids=(kept.receipt_id,), files=True), trusted(house)
    positions = set(range(0, len(archive), 37)) | set(range(len(archive) - 1100, len(archive)))
    at = 0
    while at < len(archive) - 1024:
        positions |= set(range(at, at + 512))
        size = int(archive[at + 124 : at + 135], 8)
        end = at + 512 + size
        positions |= set(range(end, end + len(padding(size))))
        at = end + len(padding(size))
    chosen = sorted(positions)
    random.Random(24).shuffle(chosen)
    unnoticed = []
    for position in chosen[:4000]:
        changed = bytearray(archive)
        changed[position] ^= 1 << (position % 8)
        found = broken(bytes(changed), keys)
        if not found or not all(each.subject for each in found):
            unnoticed.append(position)
    assert unnoticed == []


@pytest.mark.parametrize("cut", [0, 1, 511, 512, 600, 2048, -1, -1024, -1500])
def test_a_shortened_archive_is_a_finding(house: House, cut: int) -> None:
    archive = export(house)
    assert broken(archive[:cut], trusted(house))


def test_a_longer_archive_is_a_finding(house: House) -> None:
    archive = export(house)
    for more in (b"\0", bytes(512), b"x" * 10_000, archive):
        assert broken(archive + more, trusted(house))


def entries_of(archive: bytes) -> list[tuple[str, bytes]]:
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:") as found:
        read = [(member, found.extractfile(member)) for member in found.getmembers()]
        return [(member.name.removeprefix(TOP), file.read()) for member, file in read if file]


def packed(entries: list[tuple[str, bytes]]) -> bytes:
    parts = [
        header(name, len(content)) + content + padding(len(content)) for name, content in entries
    ]
    return b"".join(parts) + bytes(1024)


def test_the_control_packs_the_same_bytes(house: House) -> None:
    archive = export(house, files=True)
    assert packed(entries_of(archive)) == archive


def test_an_entry_removed_swapped_or_repeated_is_a_finding(house: House) -> None:
    entries, keys = entries_of(export(house, files=True)), trusted(house)
    for index in range(len(entries)):
        assert broken(packed(entries[:index] + entries[index + 1 :]), keys), entries[index][0]
        assert broken(packed([*entries, entries[index]]), keys), entries[index][0]
    swapped = [*entries[:-2], entries[-1], entries[-2]]
    assert broken(packed(swapped), keys)


def signed_again(house: House, entries: list[tuple[str, bytes]]) -> bytes:
    """What the holder of the current key can make of an archive: a manifest that fits."""
    listed = [[name, len(content), sha256_bytes(content)] for name, content in entries[1:]]
    document = {"format": "urn:actum:evidence-archive:v1", "entries": listed}
    signer = Keyring.open(house.home).signer
    manifest = dsse.sign_encoded(encoded(document), PAYLOAD_TYPE, signer)
    return packed([("manifest.json", manifest), *entries[1:]])


def test_a_manifest_that_fits_makes_no_forged_receipt_true(house: House) -> None:
    """A receipt that a retired key signs later, or that another closed, is not in the log."""
    entries, keys = entries_of(export(house, records=True)), trusted(house)
    assert broken(signed_again(house, entries), keys) == []  # control
    signer = Keyring.open(house.home).signer
    places = [index for index, (name, _) in enumerate(entries) if name.endswith("/receipt.json")]
    for index in places:
        name, content = entries[index]
        statement = json.loads(base64.b64decode(json.loads(content)["payload"]))
        statement["predicate"]["outcome"] = "TOOL_ERROR"
        kind = "application/vnd.in-toto+json"
        forged = dsse.sign_encoded(json.dumps(statement).encode(), kind, signer)
        changed = [*entries[:index], (name, forged), *entries[index + 1 :]]
        found = broken(signed_again(house, changed), keys)
        assert {each.subject for each in found} == {f"receipt {name.split('/')[1]}"}, name
    # The proof of one beside the receipt of another.
    (first, second, *_) = places
    swapped = list(entries)
    swapped[first] = (entries[first][0], entries[second][1])
    assert broken(signed_again(house, swapped), keys)


def test_a_rotation_left_out_or_of_another_key_ends_the_succession(house: House) -> None:
    entries, keys = entries_of(export(house)), trusted(house)
    turns = [index for index, (name, _) in enumerate(entries) if name.startswith("rotations/")]
    for index in turns:
        assert broken(signed_again(house, entries[:index] + entries[index + 1 :]), keys)
    offered = [index for index, (name, _) in enumerate(entries) if name.startswith("keys/")]
    for index in offered:
        found = broken(signed_again(house, entries[:index] + entries[index + 1 :]), keys)
        retired = not any(keyid in entries[index][0] for keyid in keys)
        assert bool(found) == retired


def _tar(*members: tuple[tarfile.TarInfo, bytes], format_: int = tarfile.USTAR_FORMAT) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w", format=format_) as made:
        for member, content in members:
            member.size = len(content)
            made.addfile(member, io.BytesIO(content))
    return file.getvalue()


def _named(name: str, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname = kind, link
    return made


HOSTILE = {
    "absolute": [_named("/etc/passwd")],
    "parent": [_named(f"{TOP}../../escaped")],
    "symbolic link": [_named(f"{TOP}files/{'0' * 64}", tarfile.SYMTYPE, "/etc/shadow")],
    "hard link": [_named(f"{TOP}checkpoint", tarfile.LNKTYPE, "/etc/shadow")],
    "device": [_named(f"{TOP}checkpoint", tarfile.CHRTYPE)],
    "pipe": [_named(f"{TOP}checkpoint", tarfile.FIFOTYPE)],
    "directory": [_named(f"{TOP}receipts", tarfile.DIRTYPE)],
    "twice": [_named(f"{TOP}manifest.json"), _named(f"{TOP}manifest.json")],
    "unknown name": [_named(f"{TOP}setup.sh")],
    "mode": [_named(f"{TOP}manifest.json")],
}


@pytest.mark.parametrize("kind", HOSTILE)
@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_what_actum_does_not_write_is_refused_and_touches_nothing(
    house: House, tmp_path: Path, kind: str, form: int
) -> None:
    hostile = _tar(*((member, b"") for member in HOSTILE[kind]), format_=form)
    before = sorted(tmp_path.rglob("*"))
    found = broken(hostile, trusted(house))
    assert [each.subject for each in found] == ["archive"]
    own = entries_of(export(house))
    after_ours = packed(own)[:-1024] + hostile
    assert broken(after_ours, trusted(house))
    assert sorted(tmp_path.rglob("*")) == before


def test_long_names_and_extensions_are_refused(house: House) -> None:
    for form in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        assert broken(_tar((_named(TOP + "x" * 300), b""), format_=form), trusted(house))
    extended = _named(f"{TOP}manifest.json")
    extended.pax_headers = {"path": "/etc/passwd", "size": "99999999999"}
    assert broken(_tar((extended, b"{}"), format_=tarfile.PAX_FORMAT), trusted(house))


def test_sizes_that_lie_cost_nothing(house: House) -> None:
    for size in (2**33 - 1, 65 * 1024 * 1024):
        claimed = header("manifest.json", size) + b"{}"
        (found,) = broken(claimed, trusted(house))
        assert found.subject == "archive"
    wide = b'{"payload":[' + b"[]," * 1_000_000 + b"[]]}"
    for content in (b"[" * 200_000, wide):
        assert broken(packed([("manifest.json", content)]), trusted(house))


def test_a_hundred_thousand_entries_end_at_the_first_unlisted_one(house: House) -> None:
    own = entries_of(export(house))
    one = header("checkpoint", 0)
    archive = packed(own)[:-1024] + one * 100_000 + bytes(1024)
    found = broken(archive, trusted(house))
    assert [each.detail for each in found] == ["checkpoint: the manifest does not list it."]


def test_compressed_archives_are_no_archives(house: House, tmp_path: Path) -> None:
    import gzip

    file = tmp_path / "evidence.tar.gz"
    file.write_bytes(gzip.compress(export(house)))
    answer = cli("verify", str(file), "--key", str(key_file(house, tmp_path)), cwd=tmp_path)
    assert answer.returncode == 1, answer
    assert b"evidence.tar.gz" in answer.stderr


def key_file(house: House, folder: Path) -> Path:
    file = folder / "project.pub"
    file.write_text(Keyring.open(house.home).signer.public.pem)
    return file


def cli(*words: str, cwd: Path) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*CLI, *words], capture_output=True, cwd=cwd, timeout=120)


def test_the_command_exports_and_another_machine_verifies(house: House, tmp_path: Path) -> None:
    root = house.home.parent
    if not (root / "actum.toml").exists():
        (root / "actum.toml").write_text("[runners]\nlocal = true\n")
    archive = tmp_path / "evidence.tar"
    done = cli("--json", "evidence", "export", "--all", "--files", "-o", str(archive), cwd=root)
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert (said["receipts"], said["files"]) == (3, 2)
    assert said["bytes"] == archive.stat().st_size
    assert archive.stat().st_mode & 0o777 == 0o600
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "evidence.tar").write_bytes(archive.read_bytes())
    key = key_file(house, elsewhere)
    answer = cli("verify", "evidence.tar", "--key", str(key), cwd=elsewhere)
    assert answer.returncode == 0, answer
    assert b"3 receipts" in answer.stdout
    changed = bytearray(archive.read_bytes())
    for position in (0, 5, 130, 260, 700, len(changed) // 2, len(changed) - 1):
        copy = bytearray(changed)
        copy[position] ^= 4
        (elsewhere / "changed.tar").write_bytes(copy)
        answer = cli("--json", "verify", "changed.tar", "--key", str(key), cwd=elsewhere)
        assert answer.returncode == 1, (position, answer)
        findings = json.loads(answer.stdout)["findings"]
        assert [each["subject"] for each in findings if not each["passed"]], position
    assert sorted(os.listdir(elsewhere)) == ["changed.tar", "evidence.tar", "project.pub"]


def test_the_command_never_replaces_a_file_and_leaves_no_half(house: House, tmp_path: Path) -> None:
    root = house.home.parent
    (root / "actum.toml").write_text("[runners]\nlocal = true\n")
    there, link = tmp_path / "there", tmp_path / "link"
    there.write_text("mine")
    link.symlink_to(tmp_path / "target")
    for target in (there, link):
        answer = cli("evidence", "export", "--all", "-o", str(target), cwd=root)
        assert answer.returncode == 2, answer
        assert b"--output" in answer.stderr
    assert there.read_text() == "mine"
    assert not (tmp_path / "target").exists()
    missing = tmp_path / "missing.tar"
    answer = cli("evidence", "export", "nothing-of-this-id", "-o", str(missing), cwd=root)
    assert answer.returncode == 3
    assert b"nothing-of-this-id" in answer.stderr
    assert not missing.exists()


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ((), b"--all"),
        (("--all", "--since", "1d"), b"--since"),
        (("some-id", "--all"), b"--all"),
        (("--since", "yesterday"), b"yesterday"),
    ],
)
def test_a_selection_is_one_of_three(
    house: House, tmp_path: Path, words: tuple[str, ...], named: bytes
) -> None:
    (house.home.parent / "actum.toml").write_text("[runners]\nlocal = true\n")
    target = tmp_path / "e.tar"
    answer = cli("evidence", "export", *words, "-o", str(target), cwd=house.home.parent)
    assert answer.returncode == 2, answer
    assert named in answer.stderr
    assert not target.exists()
