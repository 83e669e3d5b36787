"""Collected files: stored whole or not at all, and never handed out changed."""

from __future__ import annotations

import os
import stat
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from actum.contract.canonical import blake3_bytes
from actum.errors import EvidenceUnavailable, VerificationFailed
from actum.store.blobs import BlobStore


@pytest.fixture
def blobs(tmp_path: Path) -> BlobStore:
    return BlobStore(tmp_path / ".actum")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(content=st.binary(max_size=4096))
def test_what_is_put_is_read_back(blobs: BlobStore, content: bytes) -> None:
    address = blobs.put(content)
    assert address == blake3_bytes(content)
    assert blobs.read(address) == content


def test_files_are_private_and_addressed_by_content(blobs: BlobStore) -> None:
    address = blobs.put(b"evidence")
    path = blobs.root / address[:2] / address
    assert path.read_bytes() == b"evidence"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(blobs.root.stat().st_mode) == 0o700


def test_the_same_content_is_written_and_synced_once(
    blobs: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    real = os.fsync
    monkeypatch.setattr(os, "fsync", lambda fd: (synced.append(fd), real(fd))[1])
    address = blobs.put(b"evidence")
    assert synced
    before = blobs.path(address).stat()
    synced.clear()
    assert blobs.put(b"evidence") == address
    assert synced == []
    after = blobs.path(address).stat()
    assert after.st_ino == before.st_ino
    assert after.st_mtime_ns >= before.st_mtime_ns  # marked as used, for `remove_large`


def test_a_file_that_was_stored_again_is_not_removed_by_its_age(blobs: BlobStore) -> None:
    address = blobs.put(b"evidence")
    os.utime(blobs.path(address), (0, 0))
    blobs.put(b"evidence")
    blobs.remove_large(address, time.time() - 60)
    assert blobs.read(address) == b"evidence"
    os.utime(blobs.path(address), (0, 0))
    blobs.remove_large(address, time.time() - 60)
    assert not blobs.path(address).exists()


def test_many_writers_of_one_content_leave_one_file(blobs: BlobStore) -> None:
    with ThreadPoolExecutor(8) as pool:
        addresses = set(pool.map(blobs.put, [b"same" * 1000] * 32))
    (address,) = addresses
    assert os.listdir(blobs.path(address).parent) == [address]


@pytest.mark.parametrize("position", [0, 3, -1])
def test_any_changed_byte_is_found_on_reading_and_the_file_named(
    blobs: BlobStore, position: int
) -> None:
    address = blobs.put(b"evidence")
    path = blobs.path(address)
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)
    with pytest.raises(VerificationFailed, match=address):
        blobs.read(address)


def test_a_missing_file_is_named(blobs: BlobStore) -> None:
    address = blobs.put(b"evidence")
    blobs.path(address).unlink()
    with pytest.raises(VerificationFailed, match=f"{address} is missing"):
        blobs.read(address)


def test_putting_again_replaces_a_damaged_copy(blobs: BlobStore) -> None:
    address = blobs.put(b"evidence")
    blobs.path(address).write_bytes(b"evidencf")
    assert blobs.put(b"evidence") == address
    assert blobs.read(address) == b"evidence"


@pytest.mark.parametrize("address", ["../../keys/current", "", "A" * 64, "a" * 63, "a" * 64 + "\n"])
def test_an_address_cannot_lead_out_of_the_store(blobs: BlobStore, address: str) -> None:
    with pytest.raises(VerificationFailed, match="not a BLAKE3"):
        blobs.read(address)


def test_a_write_that_fails_leaves_no_file_and_says_what_to_do(
    blobs: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(EvidenceUnavailable, match=r"No space left.*Free space"):
        blobs.put(b"evidence")
    assert [name for _, _, names in os.walk(blobs.root) for name in names] == []
