"""Key files: created tight, refused when loose, several beside each other."""

from __future__ import annotations

import hashlib
import hmac
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)
from securesystemslib.signer import SSlibKey

from actum.errors import Refused
from actum.store.anchor import write_anchor
from actum.store.keys import Keyring, PublicKey, key_named


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / ".actum"


def private_file(home: Path) -> Path:
    (found,) = (home / "keys").glob("*.key")
    return found


def test_a_home_without_a_key_is_refused_with_the_command_that_makes_one(home: Path) -> None:
    with pytest.raises(Refused, match="actum init") as refused:
        Keyring.open(home)
    assert refused.value.code == "KEY_MISSING"


def test_a_created_key_is_found_again_and_verifies_what_it_signed(home: Path) -> None:
    first = Keyring.open(home, create=True)
    again = Keyring.open(home, create=True)
    assert again.signer.keyid == first.signer.keyid
    signature = first.signer.sign(b"what was done")
    public = again.public(first.signer.keyid)
    assert public.verifies(b"what was done", signature)
    assert not public.verifies(b"what was not done", signature)


def test_the_keyid_is_the_one_that_securesystemslib_computes(home: Path) -> None:
    ring = Keyring.open(home, create=True)
    public = ring.public(ring.signer.keyid)
    assert len(public.raw) == 32
    theirs = SSlibKey.from_crypto(Ed25519PublicKey.from_public_bytes(public.raw))
    assert ring.signer.keyid == theirs.keyid
    written = (home / "keys" / f"{public.keyid}.pub").read_text()
    assert PublicKey.from_pem(written, where="test") == public


def test_a_key_is_found_by_the_id_that_earlier_versions_gave_it(home: Path) -> None:
    ring = Keyring.open(home, create=True)
    public = ring.signer.public
    former = hashlib.sha256(public.raw).hexdigest()
    assert public.ids == (ring.signer.keyid, former)
    assert ring.public(former) == ring.public(public.keyid) == public
    assert key_named({public.keyid: public}, former) == public
    assert key_named({public.keyid: public}, hashlib.sha256(b"other").hexdigest()) is None


def test_key_files_with_the_name_of_earlier_versions_are_read(home: Path) -> None:
    public = Keyring.open(home, create=True).signer.public
    rename_as_earlier_versions_did(home, public)
    ring = Keyring.open(home)
    assert ring.signer.keyid == public.keyid
    assert list(ring.trusted) == list(ring.approving) == [public.keyid]
    assert ring.public_file(public.keyid) == home / "keys" / f"{public.former_keyid}.pub"
    # A retired one approves nothing, under either name.
    (home / "keys" / f"{public.former_keyid}.key").unlink()
    assert list(ring.approving) == []
    assert list(ring.trusted) == [public.keyid]


def rename_as_earlier_versions_did(home: Path, public: PublicKey) -> None:
    for half in ("key", "pub"):
        (home / "keys" / f"{public.keyid}.{half}").rename(
            home / "keys" / f"{public.former_keyid}.{half}"
        )
    (home / "keys" / "current").write_text(f"{public.former_keyid}\n")


def test_an_anchor_that_an_earlier_version_wrote_still_counts(home: Path, tmp_path: Path) -> None:
    other = Keyring.open(tmp_path / "other", create=True).signer.public
    Keyring.open(home, create=True)
    assert other.keyid not in Keyring.open(home, trust=[other.pem]).trusted
    write_anchor(home, [other.former_keyid])
    assert other.keyid in Keyring.open(home, trust=[other.pem]).approving


def test_a_private_key_is_created_readable_by_its_owner_alone_whatever_the_umask(
    home: Path,
) -> None:
    former = os.umask(0)
    try:
        Keyring.open(home, create=True)
    finally:
        os.umask(former)
    assert stat.S_IMODE(private_file(home).stat().st_mode) == 0o600
    assert stat.S_IMODE((home / "keys").stat().st_mode) == 0o700


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o601])
def test_a_private_key_with_any_bit_for_others_is_refused_with_the_remedy(
    home: Path, mode: int
) -> None:
    Keyring.open(home, create=True)
    private_file(home).chmod(mode)
    with pytest.raises(Refused, match="chmod 600") as refused:
        Keyring.open(home)
    assert refused.value.code == "KEY_UNSAFE"


def test_a_private_key_behind_a_symlink_is_refused(home: Path, tmp_path: Path) -> None:
    Keyring.open(home, create=True)
    path = private_file(home)
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Refused) as refused:
        Keyring.open(home)
    assert refused.value.code == "KEY_UNUSABLE"


def test_a_swapped_private_key_is_refused(home: Path, tmp_path: Path) -> None:
    Keyring.open(home, create=True)
    Keyring.open(tmp_path / "other", create=True)
    private_file(home).write_bytes(private_file(tmp_path / "other").read_bytes())
    with pytest.raises(Refused, match="another key"):
        Keyring.open(home)


@pytest.mark.parametrize("content", ["", "../../etc/passwd", "a" * 63, "G" * 64])
def test_a_current_file_that_holds_no_keyid_is_refused(home: Path, content: str) -> None:
    Keyring.open(home, create=True)
    (home / "keys" / "current").write_text(content)
    with pytest.raises(Refused, match="keyid"):
        Keyring.open(home)


def test_the_current_file_chooses_among_several_keys_and_all_stay_trusted(
    home: Path, tmp_path: Path
) -> None:
    first = Keyring.open(home, create=True)
    second = Keyring.open(tmp_path / "other", create=True)
    for file in (tmp_path / "other" / "keys").iterdir():
        if file.name != "current":
            file.rename(home / "keys" / file.name)
    (home / "keys" / "current").write_text(second.signer.keyid + "\n")
    ring = Keyring.open(home)
    assert ring.signer.keyid == second.signer.keyid
    assert set(ring.trusted) == {first.signer.keyid, second.signer.keyid}


def test_a_public_key_under_another_name_is_refused(home: Path) -> None:
    Keyring.open(home, create=True)
    (public,) = (home / "keys").glob("*.pub")
    (home / "keys" / ("0" * 64 + ".pub")).write_text(public.read_text())
    with pytest.raises(Refused, match="not the one in its name"):
        Keyring.open(home)


def test_a_named_key_is_trusted_once_it_is_in_the_anchor(home: Path, tmp_path: Path) -> None:
    other = Keyring.open(tmp_path / "other", create=True)
    pem = other.public(other.signer.keyid).pem
    assert other.signer.keyid not in Keyring.open(home, create=True, trust=[pem]).trusted
    write_anchor(home, [other.signer.keyid])
    assert other.signer.keyid in Keyring.open(home, trust=[pem]).trusted
    with pytest.raises(Refused) as refused:
        Keyring.open(home).public(other.signer.keyid)
    assert refused.value.code == "KEY_UNKNOWN"


@pytest.mark.parametrize(
    "content", [b"", b"[]", b'{"version": 1}', b'{"version": 2, "trusted_keys": []}', b"{"]
)
def test_a_damaged_anchor_trusts_nothing(home: Path, tmp_path: Path, content: bytes) -> None:
    other = Keyring.open(tmp_path / "other", create=True)
    Keyring.open(home, create=True)
    (home / "anchor.json").write_bytes(content)
    with pytest.raises(Refused) as refused:
        Keyring.open(home, trust=[other.public(other.signer.keyid).pem])
    assert refused.value.code == "ANCHOR_UNUSABLE"


def test_a_trusted_key_that_is_not_ed25519_is_refused_by_name(home: Path) -> None:
    curve = ec.generate_private_key(ec.SECP256R1()).public_key()
    pem = curve.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()
    for wrong in (pem, "not a key"):
        with pytest.raises(Refused, match=r"actum\.toml \[trust\]"):
            Keyring.open(home, create=True, trust=[wrong])


def test_of_many_that_create_at_once_one_wins_and_nothing_is_left_over(home: Path) -> None:
    def attempt(_: int) -> str:
        return Keyring.open(home, create=True).signer.keyid

    with ThreadPoolExecutor(8) as pool:
        keyids = set(pool.map(attempt, range(16)))
    assert len(keyids) == 1
    (keyid,) = keyids
    left = sorted(path.name for path in (home / "keys").iterdir())
    assert left == sorted([f"{keyid}.key", f"{keyid}.pub", "current"])


def test_a_signer_never_shows_its_private_half(home: Path) -> None:
    ring = Keyring.open(home, create=True)
    assert repr(ring.signer) == f"Signer(keyid={ring.signer.keyid!r})"


@pytest.mark.parametrize("size", [0, 1, 55, 64, 65, 16_000])
def test_its_macs_are_those_of_the_standard_library(home: Path, size: int) -> None:
    signer = Keyring.open(home, create=True).signer
    raw = load_pem_private_key(private_file(home).read_bytes(), None).private_bytes(
        Encoding.Raw, PrivateFormat.Raw, NoEncryption()
    )
    salt, head, payload = b"s" * 16, b"head", b"x" * size
    own = hmac.digest(raw, b"actum journal v1", "sha256")
    expected = hmac.digest(hmac.digest(own, salt, "sha256"), head + payload, "sha256")
    mac = signer.macs(salt)
    assert [mac(head, payload), mac(head, payload)] == [expected] * 2  # one is begun for many
    assert signer.macs(b"t" * 16)(head, payload) != expected
