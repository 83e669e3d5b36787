"""Ed25519 key files: the signing key of this home, and the trusted keys.

`<home>/keys/` holds one pair of files per key, named by its keyid, so that several keys can
coexist:

    <keyid>.key   private, PKCS8 PEM, mode 0600
    <keyid>.pub   public, SubjectPublicKeyInfo PEM, to be handed out
    current       the keyid that signs now
    next.key      a key that a rotation has made and not yet switched to

The keyid is the one that securesystemslib computes: the SHA-256, in hex, of the key's description
in canonical JSON. Earlier versions used the SHA-256 of the raw 32-byte public key. Records, locks,
settings and key files that name a key so are read as before; nothing is written so any more.

Every `.pub` file in the directory is trusted for what it signed in its time, and so are those keys
named in `actum.toml [trust]` that are in the home's anchor (`store.anchor`). A key of this home
whose private half is gone is retired: it approves nothing any more. A private key that other users
may read is refused: its signatures would prove nothing. Nothing here ever returns private bytes.
`evidence.rotation` decides when to switch keys.
"""

from __future__ import annotations

import binascii
import fcntl
import hashlib
import hmac
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from actum.errors import Refused
from actum.store.anchor import read_anchor
from actum.value import field, value

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )

_KEY_FILE_BYTES = 16_384  # a PEM of an Ed25519 key has about 120

#: DER prefix of the 32 bytes of an Ed25519 key (RFC 8410), public and private.
_PUBLIC = bytes.fromhex("302a300506032b6570032100")
_PRIVATE = bytes.fromhex("302e020100300506032b657004220420")

#: A key as securesystemslib describes it, in canonical JSON; its SHA-256 is the keyid.
_DESCRIPTION = b'{"keytype":"ed25519","keyval":{"public":"%s"},"scheme":"ed25519"}'


@value
class PublicKey:
    """A public key: verifies signatures."""

    keyid: str
    raw: bytes

    @classmethod
    def from_raw(cls, raw: bytes) -> PublicKey:
        return cls(keyid=hashlib.sha256(_DESCRIPTION % raw.hex().encode()).hexdigest(), raw=raw)

    @property
    def former_keyid(self) -> str:
        """The id that older versions wrote."""
        return hashlib.sha256(self.raw).hexdigest()

    @property
    def ids(self) -> tuple[str, str]:
        return self.keyid, self.former_keyid

    @classmethod
    def from_pem(cls, pem: str, *, where: str) -> PublicKey:
        """Read a PEM public key; `where` names its file or setting in the refusal."""
        plain = _plain_key(pem.encode(), "PUBLIC", _PUBLIC)
        if plain is not None:
            return cls.from_raw(plain)
        from cryptography.exceptions import InternalError, UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
        from cryptography.hazmat.primitives.serialization import load_pem_public_key

        try:
            key = load_pem_public_key(pem.encode())
        except (ValueError, UnsupportedAlgorithm, InternalError) as error:
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

        try:
            _loaded(self.raw).verify(signature, message)
        except InvalidSignature:
            return False
        return True


def _plain_key(pem: bytes, kind: str, prefix: bytes) -> bytes | None:
    """The key in a file of exactly the form that we write; `serialization` reads other forms.

    Importing that module costs more than signing.
    """
    begin, end = f"-----BEGIN {kind} KEY-----\n".encode(), f"\n-----END {kind} KEY-----\n".encode()
    if not pem.startswith(begin) or not pem.endswith(end):
        return None
    try:
        der = binascii.a2b_base64(pem[len(begin) : -len(end)], strict_mode=True)
    except binascii.Error:
        return None
    # The last base64 character has unused bits: two files could differ and hold the same key.
    if binascii.b2a_base64(der, newline=False) != pem[len(begin) : -len(end)]:
        return None
    key = der.removeprefix(prefix)
    return key if len(key) == 32 and len(der) == len(prefix) + 32 else None


@lru_cache(maxsize=64)
def _loaded(raw: bytes) -> Ed25519PublicKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    return Ed25519PublicKey.from_public_bytes(raw)


@value(kw_only=False)
class Signer:
    """The operations of a private key: signatures, and MACs under a derived key."""

    keyid: str
    sign: Callable[[bytes], bytes] = field(repr=False)
    public: PublicKey = field(repr=False)
    #: For a salt, a function that makes the HMAC-SHA-256 of a message in two parts, under a key
    #: derived from this one.
    macs: Callable[[bytes], Callable[[bytes, bytes], bytes]] = field(repr=False, compare=False)


def key_named(keys: Mapping[str, PublicKey], keyid: str) -> PublicKey | None:
    """The key of `keys` that a record names, by its id of now or its former one."""
    found = keys.get(keyid)
    if found is not None:
        return found
    return next((key for key in keys.values() if key.former_keyid == keyid), None)


class _Trusted(Mapping[str, PublicKey]):
    """Trusted keys by id. A lookup finds keys that a rotation has added since."""

    def __init__(self, directory: Path, given: Iterable[PublicKey]) -> None:
        self._directory = directory
        self._keys = {key.keyid: key for key in given}
        self._read: frozenset[str] = frozenset()  #: names of the files that were read
        self._read_all()

    def _read_all(self) -> None:
        for path in sorted(self._directory.glob("*.pub")):
            if path.name not in self._read:
                key = _read_public(path)
                self._keys = {**self._keys, key.keyid: key}
                self._read |= {path.name}

    def __getitem__(self, keyid: str) -> PublicKey:
        if keyid not in self._keys:
            self._read_all()
        return self._keys[keyid]

    def __iter__(self) -> Iterator[str]:
        self._read_all()
        return iter(self._keys)

    def __len__(self) -> int:
        self._read_all()
        return len(self._keys)


class _Approving(Mapping[str, PublicKey]):
    """Trusted keys without the retired ones. Reads the files each time: another process may
    rotate."""

    def __init__(self, directory: Path, trusted: Mapping[str, PublicKey], named: set[str]) -> None:
        self._directory = directory
        self._trusted = trusted
        self._named = named  #: keys of the settings

    def __getitem__(self, keyid: str) -> PublicKey:
        key = self._trusted[keyid]
        if keyid not in self._named and not _key_file(self._directory, key, "key").exists():
            raise KeyError(keyid)
        return key

    def __iter__(self) -> Iterator[str]:
        return (keyid for keyid in self._trusted if keyid in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


@value
class Keyring:
    """The key that signs now, and every trusted public key."""

    signer: Signer
    trusted: Mapping[str, PublicKey]
    #: Whose signature on `tools.lock` counts. A retired key stays trusted for the receipts of its
    #: time, but a copy of it in the wrong hands must approve nothing.
    approving: Mapping[str, PublicKey]
    directory: Path  #: of the key files; no tool can see it

    @classmethod
    def open(cls, home: Path, *, create: bool = False, trust: Iterable[str] = ()) -> Keyring:
        """Open `<home>/keys`; `trust` are the PEM public keys of `actum.toml [trust]`, of which
        those in the anchor are trusted."""
        directory = home / "keys"
        if create and not (directory / "current").exists():
            _create(directory)
        signer = _signer(directory)
        named = named_keys(trust)
        anchor = read_anchor(home) if named else None
        anchored = anchor.keys if anchor else frozenset()
        counted = [key for key in named if not anchored.isdisjoint(key.ids)]
        trusted = _Trusted(directory, counted)
        if signer.keyid not in trusted:
            raise _unusable(
                str(directory / f"{signer.keyid}.pub"),
                "the public half of the signing key is missing",
            )
        return cls(
            signer=signer,
            trusted=trusted,
            approving=_Approving(directory, trusted, {key.keyid for key in counted}),
            directory=directory,
        )

    def public(self, keyid: str) -> PublicKey:
        key = key_named(self.trusted, keyid)
        if key is None:
            raise Refused(
                "KEY_UNKNOWN",
                f"No key with the id {keyid} is trusted here.",
                remedy="If you trust its owner, add its public key to actum.toml [trust] and run"
                " `actum config approve --by WHO`.",
            )
        return key

    def public_file(self, keyid: str) -> Path:
        """The file of a public key of this home."""
        return _key_file(self.directory, self.public(keyid), "pub")


def prepare() -> None:
    """Let the library set up its algorithms ahead of the first key. This key is no secret."""
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.from_private_bytes(bytes(32))
    key.public_key().verify(key.sign(b""), b"")


def named_keys(trust: Iterable[str]) -> tuple[PublicKey, ...]:
    """The keys of `actum.toml [trust]`, trusted or not."""
    return tuple(PublicKey.from_pem(pem, where="actum.toml [trust]") for pem in trust)


def current_signer(directory: Path) -> Signer:
    """The key that signs now, which a rotation may have changed since a keyring was opened."""
    return _signer(directory)


def _signer(directory: Path) -> Signer:
    current = directory / "current"
    if not current.exists():
        raise Refused(
            "KEY_MISSING",
            f"There is no signing key in {directory}.",
            remedy="Run `actum init` to create one.",
        )
    keyid = _current(directory)
    path = directory / f"{keyid}.key"
    if not path.exists() and _current(directory) != keyid:
        return _signer(directory)  # a rotation ended between the two reads
    return _signer_of(path, keyid)


def _current(directory: Path) -> str:
    current = directory / "current"
    keyid = _read(current).decode("ascii", "replace").strip()
    if not _is_keyid(keyid):
        raise _unusable(str(current), "it does not hold a keyid")
    return keyid


def _is_keyid(text: str) -> bool:
    return len(text) == 64 and set(text) <= set("0123456789abcdef")


def _key_file(directory: Path, key: PublicKey, half: str) -> Path:
    """The file of one half of a key: under its former id if an older version made it."""
    former = directory / f"{key.former_keyid}.{half}"
    return former if former.exists() else directory / f"{key.keyid}.{half}"


def _signer_of(path: Path, keyid: str | None = None) -> Signer:
    private = _parse_private(_read(path, private=True), path)
    public = PublicKey.from_raw(private.public_key().public_bytes_raw())
    if keyid not in (None, *public.ids):
        raise _unusable(str(path), "it holds another key than its name says")
    return Signer(public.keyid, private.sign, public, _macs(private.private_bytes_raw()))


def _macs(secret: bytes) -> Callable[[bytes], Callable[[bytes, bytes], bytes]]:
    # Derived: one key must not serve two algorithms.
    own = hmac.digest(secret, b"actum journal v1", "sha256")
    return lambda salt: _mac(hmac.digest(own, salt, "sha256"))


def _mac(key: bytes) -> Callable[[bytes, bytes], bytes]:
    """HMAC-SHA-256 (RFC 2104) with both pads hashed once: `hmac.digest` looks up its algorithm
    each time, and a copy of `hmac.new` costs as much as the hashing of a frame. The key is a
    digest, so it is never longer than a block."""
    begun, ended = (hashlib.sha256(key.ljust(64, b"\0").translate(pad)) for pad in _PADS)

    def mac(first: bytes, second: bytes) -> bytes:
        inner, outer = begun.copy(), ended.copy()
        inner.update(first)
        inner.update(second)
        outer.update(inner.digest())
        return outer.digest()

    return mac


#: Every byte, XORed with each of the two pad bytes of RFC 2104.
_PADS = [bytes(byte ^ pad for byte in range(256)) for pad in (0x36, 0x5C)]


def _parse_private(pem: bytes, path: Path) -> Ed25519PrivateKey:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    plain = _plain_key(pem, "PRIVATE", _PRIVATE)
    if plain is not None:
        return Ed25519PrivateKey.from_private_bytes(plain)
    from cryptography.exceptions import InternalError, UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    try:
        key = load_pem_private_key(pem, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm, InternalError) as error:
        raise _unusable(str(path), "it is not an unencrypted PEM private key") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise _unusable(str(path), "it is not an Ed25519 key")
    return key


def _read_public(path: Path) -> PublicKey:
    key = PublicKey.from_pem(_read(path).decode("utf-8", "replace"), where=str(path))
    if path.stem not in key.ids:
        raise _unusable(str(path), f"its key has the id {key.keyid}, not the one in its name")
    return key


def _read(path: Path, *, private: bool = False) -> bytes:
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise _unusable(str(path), error.strerror or str(error)) from error
    # Checked on the open descriptor: a check by name could see another file. And before fdopen,
    # which raises for a directory.
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        os.close(descriptor)
        raise _unusable(str(path), "it is not a regular file")
    with os.fdopen(descriptor, "rb") as file:
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


def private_keys(home: Path) -> Iterator[Signer]:
    """Every private key of this home, current or not."""
    return map(_signer_of, sorted((home / "keys").glob("*.key")))


def public_keys(home: Path) -> Iterator[PublicKey]:
    """Every public key of this home, retired ones included."""
    return map(_read_public, sorted((home / "keys").glob("*.pub")))


def prepare_next(home: Path) -> Signer:
    """The key that a rotation may switch to: new, or left by a rotation that was stopped."""
    directory = home / "keys"
    with _alone(directory):
        path = directory / "next.key"
        if not path.exists():
            _replace(path, _generated(), 0o600)
        return _signer_of(path)


def switch_to_next(home: Path, successor: PublicKey) -> Signer:
    """Make the prepared key the current one. May be repeated after a crash at any point."""
    directory = home / "keys"
    with _alone(directory) as synced:
        path = _key_file(directory, successor, "key")
        if not path.exists():
            prepared = directory / "next.key"
            _signer_of(prepared, successor.keyid)
            prepared.rename(path)
            synced()
        signer = _signer_of(path, successor.keyid)
        _replace(path.with_suffix(".pub"), signer.public.pem.encode(), 0o644)
        synced()
        # `current` last: once it is there, both halves are complete.
        _replace(directory / "current", f"{path.stem}\n".encode(), 0o644)
        synced()
    return signer


def forget_retired(home: Path) -> None:
    """Remove the private halves of retired keys. Their public halves stay."""
    directory = home / "keys"
    with _alone(directory) as synced:
        kept = {f"{_current(directory)}.key", "next.key"}
        for path in directory.glob("*.key"):
            if path.name not in kept:
                path.unlink()
        synced()


def _create(directory: Path) -> None:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _alone(directory) as synced:  # of two simultaneous creators, the second finds it
        if (directory / "current").exists():
            return
        pem = _generated()
        public = PublicKey.from_raw(_parse_private(pem, directory).public_key().public_bytes_raw())
        _replace(directory / f"{public.keyid}.key", pem, 0o600)
        _replace(directory / f"{public.keyid}.pub", public.pem.encode(), 0o644)
        synced()
        _replace(directory / "current", f"{public.keyid}\n".encode(), 0o644)
        synced()


@contextmanager
def _alone(directory: Path) -> Iterator[Callable[[], None]]:
    """Lock the directory against other processes; the value makes its names durable."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield lambda: os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _generated() -> bytes:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        NoEncryption,
        PrivateFormat,
    )

    private = Ed25519PrivateKey.generate()
    return private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def _replace(path: Path, content: bytes, mode: int) -> None:
    # Under another name first: after a crash a file is complete or missing. The mode is given to
    # open, not set afterwards: the file never has wider permissions.
    pending = path.with_name(f"{path.name}.new")  # which no `*.pub` or `*.key` matches
    pending.unlink(missing_ok=True)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with os.fdopen(os.open(pending, flags, mode), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    pending.rename(path)


def _unusable(where: str, why: str) -> Refused:
    return Refused(
        "KEY_UNUSABLE",
        f"The key {where} cannot be used: {why}.",
        remedy="Restore it from a copy, or create a new home with `actum init`.",
    )
