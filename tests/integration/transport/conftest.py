from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from actum import removal
from actum.runs.transport.object_store import ObjectStore, StoreAddress, StoreLimits
from buckets.fixtures import bucket_server, proxy
from buckets.proxy import Proxy
from buckets.server import KEY, KEY_ID, Server

__all__ = ["bucket_server", "proxy"]

#: So that what happens at these limits is seen in a test.
SHORT = StoreLimits(connect_s=1, request_s=1, retries=2, retry_s=3)


@pytest.fixture(params=["folder", "bucket"])
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    """An empty store of either kind."""
    if request.param == "folder":
        return ObjectStore(StoreAddress(url=f"file://{tmp_path}/store"), make=True)
    server: Server = request.getfixturevalue("bucket_server")
    return bucket(server.endpoint, server.bucket())


@pytest.fixture
def folder_store(tmp_path: Path) -> ObjectStore:
    return ObjectStore(StoreAddress(url=f"file://{tmp_path}/store"), make=True)


@pytest.fixture
def behind(bucket_server: Server, proxy: Proxy) -> ObjectStore:
    """An empty bucket behind the proxy, with short limits."""
    return bucket(proxy.endpoint, bucket_server.bucket(), SHORT)


def bucket(endpoint: str, name: str, limits: StoreLimits | None = None) -> ObjectStore:
    address = StoreAddress(
        url=f"s3://{name}/some/prefix", endpoint=endpoint, key_id=KEY_ID, key=KEY
    )
    return ObjectStore(address, limits)


@pytest.fixture
def new_folder(tmp_path: Path) -> Iterator[Callable[[], Path]]:
    """New folders whose content may be closed to their owner: pytest could not remove these."""
    yield from folders_in(tmp_path / "folders")


def folders_in(place: Path) -> Iterator[Callable[[], Path]]:
    removal.make(place)
    numbers = itertools.count(1)

    def make() -> Path:
        folder = place / f"folder-{next(numbers)}"
        folder.mkdir()
        return folder

    yield make
    removal.remove(place)
