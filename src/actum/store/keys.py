"""Ed25519 key files: who signs here, and whose signatures are believed.

`<home>/keys/` holds one pair of files per key, named by its keyid, so that several keys can live
beside each other:

    <keyid>.key   private, PKCS8 PEM, mode 0600
    <keyid>.pub   public, SubjectPublicKeyInfo PEM, to be handed out
    current       the keyid that signs now

The keyid is the SHA-256, in hex, of the raw 32-byte public key. Every `.pub` file in the directory
is trusted, and so are the keys named in `actum.toml [trust]`. A private key that someone else may
read is refused: what it signed would prove nothing. Nothing here ever returns private bytes.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from actum.errors import Refused

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

_KEY_FILE_BYTES = 16_384  # a PEM of an Ed25519 key has about 120


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicKey:
    """A key that can only say whether a signature is its own."""

    keyid: str
    raw: bytes

    @classmethod
    def from_raw(cls, raw: bytes) -> PublicKey:
        return cls(keyid=hashlib.sha256(raw).hexdigest(), raw=raw)

    @classmethod
    def from_pem(cls, pem: str, *, where: str) -> PublicKey:
        """Read a PEM public key; `where` names its file or setting in the refusal."""
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
        from cryptography.hazmat.primitives.serialization import load_pem_public_key

        try:
            key = load_pem_public_key(pem.encode())
        except (ValueError, UnsupportedAlgorithm) as error:
            raise _unusable(where, "it is not a PEM public key") from error
        if not isinstance(key, Ed25519PublicKey):
            raise _unusable(where, "it is not an Ed25519 key")
        return cls.from_raw(key.public_bytes_raw())

    @property
    def pem(self) -> str:
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
        from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

        key = Ed25519PublicKey.from_public_bytes(self.raw)
        return key.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo).decode()

    def verifies(self, message: bytes, signature: bytes) -> bool:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

        try:
            Ed25519PublicKey.from_public_bytes(self.raw).verify(signature, message)
        except InvalidSignature:
            return False
        return True


@dataclass(frozen=True, slots=True)
class Signer:
    """The one thing a private key is for."""

    keyid: str
    sign: Callable[[bytes], bytes] = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Keyring:
    """The key that signs now, and every public key that is believed."""

    signer: Signer
    trusted: Mapping[str, PublicKey]

    @classmethod
    def open(cls, home: Path, *, create: bool = False, trust: Iterable[str] = ()) -> Keyring:
        """Open `<home>/keys`; `trust` adds the PEM public keys of `actum.toml [trust]`."""
        directory = home / "keys"
        if create and not (directory / "current").exists():
            _create(directory)
        signer = _signer(directory)
        own = [_read_public(path) for path in sorted(directory.glob("*.pub"))]
        given = [PublicKey.from_pem(pem, where="actum.toml [trust]") for pem in trust]
        trusted = {key.keyid: key for key in (*own, *given)}
        if signer.keyid not in trusted:
            raise _unusable(
                str(directory / f"{signer.keyid}.pub"),
                "the public half of the signing key is missing",
            )
        return cls(signer=signer, trusted=MappingProxyType(trusted))

    def public(self, keyid: str) -> PublicKey:
        key = self.trusted.get(keyid)
        if key is None:
            raise Refused(
                "KEY_UNKNOWN",
                f"No key with the id {keyid} is trusted here.",
                remedy="Add its public key to actum.toml [trust], if you trust its owner.",
            )
        return key


def _signer(directory: Path) -> Signer:
    current = directory / "current"
    if not current.exists():
        raise Refused(
            "KEY_MISSING",
            f"There is no signing key in {directory}.",
            remedy="Run `actum init` to create one.",
        )
    keyid = _read(current).decode("ascii", "replace").strip()
    if len(keyid) != 64 or not set(keyid) <= set("0123456789abcdef"):
        raise _unusable(str(current), "it does not hold a keyid")
    path = directory / f"{keyid}.key"
    private = _parse_private(_read(path, private=True), path)
    if PublicKey.from_raw(private.public_key().public_bytes_raw()).keyid != keyid:
        raise _unusable(str(path), "it holds another key than its name says")
    return Signer(keyid, private.sign)


def _parse_private(pem: bytes, path: Path) -> Ed25519PrivateKey:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise _unusable(str(path), "it is not an unencrypted PEM private key") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise _unusable(str(path), "it is not an Ed25519 key")
    return key


def _read_public(path: Path) -> PublicKey:
    key = PublicKey.from_pem(_read(path).decode("utf-8", "replace"), where=str(path))
    if path.name != f"{key.keyid}.pub":
        raise _unusable(str(path), f"its key has the id {key.keyid}, not the one in its name")
    return key


def _read(path: Path, *, private: bool = False) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise _unusable(str(path), error.strerror or str(error)) from error
    with os.fdopen(descriptor, "rb") as file:
        # Judged on the open file: a check by name could be answered by another file.
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise _unusable(str(path), "it is not a regular file")
        if private and status.st_mode & 0o077:
            raise Refused(
                "KEY_UNSAFE",
                f"The private key {path} may be read by others"
                f" (mode {stat.S_IMODE(status.st_mode):04o}).",
                remedy=f"Run `chmod 600 {path}`; if others had access: `actum keys rotate`.",
            )
        if private and status.st_uid != os.geteuid():
            raise Refused(
                "KEY_UNSAFE",
                f"The private key {path} belongs to uid {status.st_uid}, not to you.",
                remedy="Use your own `.actum` directory: `actum --home DIR`.",
            )
        return file.read(_KEY_FILE_BYTES)


def _create(directory: Path) -> None:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)  # of two that create at once, the second finds it
        if not (directory / "current").exists():
            _write_pair(directory)
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _write_pair(directory: Path) -> None:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
    )

    private = Ed25519PrivateKey.generate()
    public = PublicKey.from_raw(private.public_key().public_bytes_raw())
    pem = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    _write_new(directory / f"{public.keyid}.key", pem, 0o600)
    _write_new(directory / f"{public.keyid}.pub", public.pem.encode(), 0o644)
    # `current` last: whoever finds it finds both halves complete.
    pending = directory / f"current.{public.keyid}"
    _write_new(pending, f"{public.keyid}\n".encode(), 0o644)
    pending.rename(directory / "current")


def _write_new(path: Path, content: bytes, mode: int) -> None:
    # The mode is given to open, not set afterwards: there is no moment with wider permission.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(descriptor)


def _unusable(where: str, why: str) -> Refused:
    return Refused(
        "KEY_UNUSABLE",
        f"The key {where} cannot be used: {why}.",
        remedy="Restore it from a copy, or create a new home with `actum init`.",
    )
