"""Fixtures for tests that start real sandboxes; imported by the conftest files that need them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hostile.jail import Jail, compile_probe


@pytest.fixture(scope="session")
def probe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return compile_probe(tmp_path_factory.mktemp("probe"))


@pytest.fixture(scope="module")
def shared_jail(tmp_path_factory: pytest.TempPathFactory, probe: Path) -> Iterator[Jail]:
    jail = Jail(tmp_path_factory.mktemp("jail"), probe)
    yield jail
    jail.close()


@pytest.fixture
def jail(shared_jail: Jail) -> Jail:
    """A project shared by one file of tests, with a working directory of this test's own."""
    shared_jail.fresh_work()
    return shared_jail


@pytest.fixture
def own_jail(tmp_path: Path, probe: Path) -> Iterator[Jail]:
    """A project of this test's own."""
    jail = Jail(tmp_path, probe)
    yield jail
    jail.close()


@pytest.fixture
def direct_jail(tmp_path: Path, probe: Path) -> Iterator[Jail]:
    """A project of this test's own whose tools write to it directly."""
    jail = Jail(tmp_path, probe, transactions=False)
    yield jail
    jail.close()
