"""Signed checkpoints: C2SP's signed note around C2SP's tree head, with Ed25519.

    <origin>
    <number of records>
    <root, base64>

    — <origin> <base64 of the 4-byte key id and the signature>

The key is named like the log, as logs do. During a rotation two keys sign one note. As in
`store.dsse`, only the canonical form is read: every changed byte is noticed.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache

from actum.errors import VerificationFailed
from actum.store.keys import PublicKey, Signer
from actum.store.merkle import HASH_BYTES
from actum.value import value

_ED25519 = b"\x01"
_KEY_ID_BYTES = 4
_MAX_BYTES = 65_536
_ORIGIN = re.compile(r"[!-*,-~]{1,200}")  # no space, no plus: C2SP's rule for key names
_SIZE = re.compile(r"0|[1-9][0-9]{0,17}")


@value
class Checkpoint:
    """The name of a log, its number of records, and the root over them."""

    origin: str
    size: int
    root: bytes

    @property
    def text(self) -> str:
        """The signed part, its last newline included."""
        return f"{self.origin}\n{self.size}\n{base64.b64encode(self.root).decode()}\n"


@value
class Note:
    """A checkpoint and who claims to have signed it: ``(key id, signature)``, unproven."""

    checkpoint: Checkpoint
    signatures: tuple[tuple[bytes, bytes], ...]


def key_id(origin: str, public: PublicKey) -> bytes:
    return _key_id(origin, public.raw)


@lru_cache(maxsize=64)
def _key_id(origin: str, raw: bytes) -> bytes:
    named = origin.encode() + b"\n" + _ED25519 + raw
    return hashlib.sha256(named).digest()[:_KEY_ID_BYTES]


def verifier_key(origin: str, public: PublicKey) -> str:
    """The one-line form of a log's key that other tools read."""
    key = base64.b64encode(_ED25519 + public.raw).decode()
    return f"{origin}+{key_id(origin, public).hex()}+{key}"


def sign(checkpoint: Checkpoint, signers: Sequence[Signer]) -> str:
    text = checkpoint.text
    lines = []
    for signer in signers:
        signature = key_id(checkpoint.origin, signer.public) + signer.sign(text.encode())
        lines.append(f"— {checkpoint.origin} {base64.b64encode(signature).decode()}\n")
    return f"{text}\n{''.join(lines)}"


def parse(note: str) -> Note:
    """Parse a note without verifying it; raises `VerificationFailed` naming the defect."""
    if len(note) > _MAX_BYTES:
        raise VerificationFailed(f"The checkpoint has more than {_MAX_BYTES} characters.")
    text, blank, rest = note.partition("\n\n")
    lines = text.split("\n")
    if not blank or len(lines) != 3 or not rest.endswith("\n"):
        raise VerificationFailed("It is no checkpoint: origin, size, root and a signature.")
    origin, size, root = lines
    if not _ORIGIN.fullmatch(origin):
        raise VerificationFailed("The checkpoint's origin is not the name of a log.")
    if not _SIZE.fullmatch(size):
        raise VerificationFailed("The checkpoint's size is not a number of records.")
    checkpoint = Checkpoint(origin=origin, size=int(size), root=_decode(root, "root", HASH_BYTES))
    signatures = tuple(_signature(line, origin) for line in rest[:-1].split("\n"))
    return Note(checkpoint=checkpoint, signatures=signatures)


def verify(note: Note, trusted: Iterable[PublicKey]) -> tuple[str, ...]:
    """Ids of the trusted keys that signed, in order; raises if there is none, or a forged one."""
    known = {key_id(note.checkpoint.origin, key): key for key in trusted}
    message = note.checkpoint.text.encode()
    signed_by = []
    for claimed, signature in note.signatures:
        key = known.get(claimed)
        if key is None:
            continue  # a witness, or an unknown key: ignored
        if not key.verifies(message, signature):
            raise VerificationFailed(f"The checkpoint is not what the key {key.keyid} signed.")
        signed_by.append(key.keyid)
    if not signed_by:
        raise VerificationFailed("The checkpoint is not signed by a key that is trusted here.")
    return tuple(signed_by)


def _signature(line: str, origin: str) -> tuple[bytes, bytes]:
    dash, _, rest = line.partition(" ")
    name, _, encoded = rest.partition(" ")
    if dash != "—" or not name:
        raise VerificationFailed("A line of the checkpoint is no signature.")
    blob = _decode(encoded, "signature", None)
    if name != origin:
        return b"", blob  # a witness signs under its own name
    return blob[:_KEY_ID_BYTES], blob[_KEY_ID_BYTES:]


def _decode(text: str, what: str, length: int | None) -> bytes:
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise VerificationFailed(f"The checkpoint's {what} is not base64.") from error
    if base64.b64encode(data).decode() != text or length not in (None, len(data)):
        raise VerificationFailed(f"The checkpoint's {what} is not in its canonical form.")
    return data
