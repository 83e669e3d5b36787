"""Checkpoints, read by a second implementation that knows only C2SP's text."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from actum.errors import VerificationFailed
from actum.store import note
from actum.store.keys import Keyring

ROOT = bytes(range(32))
CHECKPOINT = note.Checkpoint(origin="actum/0123", size=42, root=ROOT)


@pytest.fixture
def ring(tmp_path: Path) -> Keyring:
    return Keyring.open(tmp_path / ".actum", create=True)


def independent(signed: bytes, verifier_key: str) -> tuple[str, int, bytes]:
    """signed-note and tlog-checkpoint, from their text alone: no line of it is ours."""
    # vkey = <name>+<hex of the key id>+base64(type || key)
    name, hint, material = verifier_key.split("+", 2)
    kind, key = base64.b64decode(material)[:1], base64.b64decode(material)[1:]
    assert kind == b"\x01"
    assert len(key) == 32
    # key id = SHA-256(name || 0x0A || type || key)[:4]
    expected = hashlib.sha256(name.encode() + b"\x0a" + kind + key).digest()[:4]
    assert hint == expected.hex()
    # The text ends at the last empty line; its own final newline is signed, the empty line is not.
    cut = signed.rindex(b"\n\n")
    text, signatures = signed[: cut + 1], signed[cut + 2 :]
    assert signatures.endswith(b"\n")
    for line in signatures[:-1].split(b"\n"):
        assert line.startswith(b"\xe2\x80\x94 ")
        signer, blob = line[4:].split(b" ")
        raw = base64.b64decode(blob, validate=True)
        assert base64.b64encode(raw) == blob
        if signer == name.encode() and raw[:4] == expected:
            Ed25519PublicKey.from_public_bytes(key).verify(raw[4:], text)
            break
    else:
        raise InvalidSignature
    origin, size, root, *more = text.decode().split("\n")
    assert more == [""]
    assert str(int(size)) == size
    decoded = base64.b64decode(root, validate=True)
    assert base64.b64encode(decoded).decode() == root
    return origin, int(size), decoded


def test_a_reader_that_knows_only_the_specification_accepts_our_checkpoint(ring: Keyring) -> None:
    signed = note.sign(CHECKPOINT, [ring.signer]).encode()
    key = note.verifier_key(CHECKPOINT.origin, ring.signer.public)
    assert independent(signed, key) == ("actum/0123", 42, ROOT)
    for position in range(len(signed)):
        changed = bytearray(signed)
        changed[position] ^= 1
        with pytest.raises((InvalidSignature, ValueError, AssertionError)):
            independent(bytes(changed), key)


def test_the_same_bytes_are_read_by_us_and_no_byte_can_be_changed(ring: Keyring) -> None:
    signed = note.sign(CHECKPOINT, [ring.signer])
    found = note.parse(signed)
    assert found.checkpoint == CHECKPOINT
    assert note.verify(found, [ring.signer.public]) == (ring.signer.keyid,)
    raw = signed.encode()
    for position in range(len(raw)):
        changed = bytearray(raw)
        changed[position] ^= 1
        with pytest.raises((VerificationFailed, UnicodeDecodeError)):
            note.verify(note.parse(bytes(changed).decode()), [ring.signer.public])


def test_two_keys_may_sign_and_strangers_are_passed_over(ring: Keyring, tmp_path: Path) -> None:
    other = Keyring.open(tmp_path / "other", create=True).signer
    signed = note.sign(CHECKPOINT, [ring.signer, other])
    both = [ring.signer.public, other.public]
    assert note.verify(note.parse(signed), both) == (ring.signer.keyid, other.keyid)
    assert note.verify(note.parse(signed), both[1:]) == (other.keyid,)
    witnessed = signed + f"— witness.example {base64.b64encode(b'1234' + b's' * 64).decode()}\n"
    assert note.verify(note.parse(witnessed), both[:1]) == (ring.signer.keyid,)
    with pytest.raises(VerificationFailed, match="trusted"):
        note.verify(note.parse(signed), [])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n\n",
        "origin\n1\n",
        "a\n1\nAAAA\n\n— a AAAA\n",
        "a\n01\n" + base64.b64encode(ROOT).decode() + "\n\n— a AAAA\n",
        "a\n-1\n" + base64.b64encode(ROOT).decode() + "\n\n— a AAAA\n",
        "a b\n1\n" + base64.b64encode(ROOT).decode() + "\n\n— a AAAA\n",
        "a\n1\n" + base64.b64encode(ROOT).decode() + "\nmore\n\n— a AAAA\n",
        "a\n1\n" + base64.b64encode(ROOT).decode() + "\n\n- a AAAA\n",
        "a\n1\n" + base64.b64encode(ROOT).decode() + "\n\n— a AAAA",
        "x" * 100_000,
    ],
)
def test_what_is_no_checkpoint_is_refused(text: str) -> None:
    with pytest.raises(VerificationFailed):
        note.parse(text)
