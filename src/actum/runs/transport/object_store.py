"""Objects in a folder or an S3-compatible bucket: the only module that uses obstore.

Every key is derived from the digest of what it holds, so every request can be repeated: a second
put writes the same bytes. obstore repeats requests that fail with a 5xx answer or a lost
connection, within `StoreLimits`. Reads whose bytes are not those of the digest are repeated here.
No request takes longer than `retry_s` and one more `request_s`.

The store needs no trust for integrity, and all of it for confidentiality. Redirections by the
environment (AWS_ENDPOINT_URL and others) have no effect: every value is given.
Proved by tests/integration/transport/test_object_store.py.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import unquote, urlsplit

from actum import kernel
from actum.errors import Fault, Refused
from actum.value import field, value

if TYPE_CHECKING:
    from obstore.store import LocalStore, S3Store

T = TypeVar("T")
R = TypeVar("R")

_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_PREFIX = re.compile(r"[A-Za-z0-9._=-]+(/[A-Za-z0-9._=-]+)*")
_READS = 3  #: of an object whose bytes are not those of its digest
_AT_ONCE = 8  #: requests; each holds at most one part of a file in memory
_SHOWN = 300  #: characters of a store's own message


class ObjectStoreFailed(Fault):
    """The store did not answer in time, refused, or could not write."""

    code = "OBJECT_STORE_FAILED"


class ObjectMissing(Fault):
    """A snapshot names an object that is not in the store."""

    code = "OBJECT_MISSING"


class ObjectDamaged(Fault):
    """An object does not have the bytes of its digest."""

    code = "OBJECT_DAMAGED"


@value
class StoreLimits:
    """How long a request takes at most. For tests of what happens at these limits, too."""

    connect_s: float = 5.0
    request_s: float = 120.0
    retries: int = 4
    retry_s: float = 120.0


@value
class StoreAddress:
    """Where the objects are. Credentials are values of secrets and are never printed."""

    url: str  #: `file:///folder` or `s3://bucket/prefix`
    endpoint: str = ""  #: of a store that is not Amazon's
    region: str = "us-east-1"
    key_id: str = field(default="", repr=False)
    key: str = field(default="", repr=False)
    token: str = field(default="", repr=False)


@value
class Found:
    """An object in the store."""

    key: str
    size: int
    modified: datetime  #: by the clock of the store


class ObjectStore:
    """One folder or one prefix of a bucket. Safe to share by threads."""

    def __init__(
        self, address: StoreAddress, limits: StoreLimits | None = None, *, make: bool = False
    ) -> None:
        """With `make`, the folder of a folder store is made, closed to other users."""
        self.url = address.url
        self.folder = folder_of(address)
        try:
            if make and self.folder is not None:
                self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self.folder is not None:
                os.stat(self.folder)  # its error is the plainer one
            self._store = _opened(address, self.folder, limits or StoreLimits())
        except _failures() as error:
            raise self._failed("", error) from error

    def put(self, key: str, content: bytes, *, again: bool = False) -> bool:
        """Store an object unless it is there. Returns whether it was written. With `again`, write
        it even then, which makes it young for the collection of garbage."""
        import obstore
        from obstore.exceptions import AlreadyExistsError

        try:
            mode: Any = "overwrite" if again else "create"
            obstore.put(self._store, key, content, mode=mode, use_multipart=False)
        except (AlreadyExistsError, FileExistsError):
            return False
        except FileNotFoundError as error:
            raise self._failed(key, error) from error
        except _failures() as error:
            raise self._failed(key, error) from error
        return True

    def get(self, key: str, most: int, is_right: Callable[[bytes], bool]) -> bytes:
        """The bytes of an object. `is_right` compares them with what the caller knows of them."""
        import obstore

        size = 0
        for _ in range(_READS):
            try:
                self._require_plain(key)
                answer = obstore.get(self._store, key)
                size = answer.meta["size"]
                if size > most:
                    break
                content = bytes(answer.bytes())
            except FileNotFoundError as error:
                raise self._missing(key) from error
            except _failures() as error:
                raise self._failed(key, error) from error
            size = len(content)
            if size <= most and is_right(content):
                return content
        raise ObjectDamaged(
            f"{self.url}: the object {key} ({size} bytes) does not have the content that its name"
            " stands for.",
            remedy="Remove that object and save the snapshot again from a folder that has its"
            " files. If this occurs again, look for what changes bytes on the way or in the store.",
        )

    def get_range(self, key: str, size: int, is_right: Callable[[bytes], bool]) -> bytes:
        """The first bytes of an object."""
        import obstore

        for _ in range(_READS):
            try:
                self._require_plain(key)
                content = bytes(obstore.get_range(self._store, key, start=0, end=size))
            except FileNotFoundError as error:
                raise self._missing(key) from error
            except _failures() as error:
                raise self._failed(key, error) from error
            if is_right(content):
                return content
        raise ObjectDamaged(
            f"{self.url}: the object {key} does not begin with the {size} bytes that its name"
            " stands for.",
            remedy="Remove that object and save the snapshot again from a folder with its files.",
        )

    def find(self, key: str) -> Found | None:
        import obstore

        try:
            self._require_plain(key)  # obstore opens the file
            meta = obstore.head(self._store, key)
        except FileNotFoundError:
            return None
        except _failures() as error:
            raise self._failed(key, error) from error
        return Found(key=key, size=meta["size"], modified=meta["last_modified"])

    def list(self, prefix: str) -> Iterator[Found]:
        import obstore

        try:
            for page in obstore.list(self._store, prefix):
                for meta in page:
                    yield Found(key=meta["path"], size=meta["size"], modified=meta["last_modified"])
        except FileNotFoundError:
            return
        except _failures() as error:
            raise self._failed(prefix, error) from error

    def delete(self, key: str) -> None:
        import obstore

        try:
            obstore.delete(self._store, key)
        except FileNotFoundError:
            return
        except _failures() as error:
            raise self._failed(key, error) from error

    def sync(self) -> None:
        """Let what was put survive a power cut. A bucket promises that with its answer."""
        if self.folder is None:
            return
        try:
            folder = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                kernel.syncfs(folder)
            finally:
                os.close(folder)
        except OSError as error:
            raise self._failed("", error) from error

    def unfinished(self, older_than_s: float) -> Iterator[Path]:
        """Files of a folder store that a killed process left before they had their names. obstore
        calls them NAME#NUMBER and does not list them."""
        if self.folder is None:
            return
        before = time.time() - older_than_s
        for path in self.folder.glob("*/**/*#*"):
            if path.is_file() and not path.is_symlink() and path.stat().st_mtime < before:
                yield path

    def _require_plain(self, key: str) -> None:
        """In a folder store: the object is a file, reached through no link. A pipe in its place
        would keep its reader waiting."""
        if self.folder is None:
            return
        try:
            folder = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                file = kernel.open_beneath(folder, key, os.O_PATH)
            finally:
                os.close(folder)
            try:
                mode = os.fstat(file).st_mode
            finally:
                os.close(file)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise self._failed(key, error) from error
        if not stat.S_ISREG(mode):
            raise self._failed(key, ValueError("it is not a file"))

    def _missing(self, key: str) -> ObjectMissing:
        return ObjectMissing(
            f"{self.url}: the object {key} is missing.",
            remedy="Save the snapshot again from a folder that has its files.",
        )

    def _failed(self, key: str, error: Exception) -> ObjectStoreFailed:
        # obstore adds the structure of its error behind these words.
        text = " ".join(str(error).partition("Debug source:")[0].split())[:_SHOWN].rstrip(".")
        what = f" (object {key})" if key else ""
        remedy = (
            "Check that the folder exists, has room, and can be written by this user."
            if self.url.startswith("file:")
            else "Check the endpoint, the bucket, its region, the network and the credentials."
        )
        return ObjectStoreFailed(
            f"{self.url} failed{what}: {text}.",
            remedy=f"{remedy} Then run the command again: what was stored is not sent twice.",
        )


def each(work: Callable[[T], R], jobs: Iterable[T]) -> Iterator[R]:
    """`work` for every job, several at once, results in order. Takes few jobs ahead of the reader:
    each may hold one part of a file."""
    running: deque[Future[R]] = deque()
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="actum-objects") as pool:
        try:
            for job in jobs:
                running.append(pool.submit(work, job))
                if len(running) >= _AT_ONCE:
                    yield running.popleft().result()
            while running:
                yield running.popleft().result()
        finally:
            for waiting in running:
                waiting.cancel()


def _failures() -> tuple[type[Exception], ...]:
    try:
        from obstore.exceptions import BaseError
    except ModuleNotFoundError as error:
        raise Refused(
            "FLEET_NOT_INSTALLED",
            "Snapshots need the package obstore.",
            remedy='Install the extra `fleet`: pip install "actum[fleet]".',
        ) from error
    return BaseError, OSError, ValueError


def folder_of(address: StoreAddress) -> Path | None:
    """The folder of a folder store; ``None`` for a bucket. Refuses an address that is neither."""
    try:
        parts = urlsplit(address.url)
    except ValueError as error:
        raise _unusable(address.url, str(error)) from error
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise _unusable(address.url, "an address has no user, no query and no fragment")
    if parts.scheme == "file":
        path = unquote(parts.path)
        if parts.netloc or not path.startswith("/") or os.path.normpath(path) != path:
            raise _unusable(address.url, "the folder is not an absolute path in its shortest form")
        return Path(path)
    if parts.scheme != "s3":
        raise _unusable(address.url, "it begins with neither file:/// nor s3://")
    prefix = parts.path.strip("/")
    if not _BUCKET.fullmatch(parts.netloc):
        raise _unusable(address.url, "the bucket has no valid name (3 to 63 of a-z, 0-9, . and -)")
    if prefix and (not _PREFIX.fullmatch(prefix) or {".", ".."} & set(prefix.split("/"))):
        raise _unusable(address.url, "the prefix has characters other than letters, digits, ._=-/")
    if not (address.key_id and address.key):
        raise _unusable(address.url, "a bucket needs the id of an access key, and the key")
    return None


def _opened(
    address: StoreAddress, folder: Path | None, limits: StoreLimits
) -> LocalStore | S3Store:
    if folder is not None:
        from obstore.store import LocalStore

        return LocalStore(folder)
    parts = urlsplit(address.url)
    return _bucket(address, parts.netloc, parts.path.strip("/"), limits)


def _bucket(address: StoreAddress, bucket: str, prefix: str, limits: StoreLimits) -> S3Store:
    from obstore.store import S3Store

    config: dict[str, Any] = {
        "region": address.region,
        "endpoint": address.endpoint or f"https://s3.{address.region}.amazonaws.com",
        "access_key_id": address.key_id,
        "secret_access_key": address.key,
    }
    if address.token:
        config["session_token"] = address.token
    return S3Store(
        bucket,
        prefix=prefix or None,
        **config,
        client_options={
            # Plain HTTP only where the operator has written it. Content is hashed either way.
            "allow_http": address.endpoint.startswith("http://"),
            "connect_timeout": timedelta(seconds=limits.connect_s),
            "timeout": timedelta(seconds=limits.request_s),
        },
        retry_config={
            "max_retries": limits.retries,
            "retry_timeout": timedelta(seconds=limits.retry_s),
            "backoff": {
                "init_backoff": timedelta(milliseconds=100),
                "max_backoff": timedelta(seconds=5),
                "base": 2,
            },
        },
    )


def _unusable(url: str, why: str) -> Refused:
    return Refused(
        "OBJECT_STORE_INVALID",
        f"{url!r} is not a store for snapshots: {why}.",
        remedy="Give file:///FOLDER, or s3://BUCKET/PREFIX with --access-key and --secret-key.",
    )
