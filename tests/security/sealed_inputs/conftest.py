"""Projects in each of the ways in which a sealed input gets to its path."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hostile.sealed_project import Sealed, opened


@pytest.fixture(params=["transaction", "read-only", "direct"])
def any_mode(tmp_path: Path, probe: Path, request: pytest.FixtureRequest) -> Iterator[Sealed]:
    jail = opened(tmp_path, probe, request.param)
    yield jail
    jail.close()


@pytest.fixture(params=["transaction", "read-only"])
def kept_mode(tmp_path: Path, probe: Path, request: pytest.FixtureRequest) -> Iterator[Sealed]:
    """Modes in which no rename on the host can detach a sealed input."""
    jail = opened(tmp_path, probe, request.param)
    yield jail
    jail.close()


@pytest.fixture
def transaction(tmp_path: Path, probe: Path) -> Iterator[Sealed]:
    jail = opened(tmp_path, probe, "transaction")
    yield jail
    jail.close()


@pytest.fixture
def direct(tmp_path: Path, probe: Path) -> Iterator[Sealed]:
    jail = opened(tmp_path, probe, "direct")
    yield jail
    jail.close()


@pytest.fixture
def read_only(tmp_path: Path, probe: Path) -> Iterator[Sealed]:
    jail = opened(tmp_path, probe, "read-only")
    yield jail
    jail.close()
