"""Docker and Podman, and the projects of hostile tools on them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from engines import Engine
from engines.fixtures import docker, engine, own_engine, podman
from hostile.fixtures import jail, probe
from hostile.jail import Jail

__all__ = ["docker", "engine", "jail", "own_engine", "own_jail", "podman", "probe", "shared_jail"]


@pytest.fixture(scope="module")
def shared_jail(
    tmp_path_factory: pytest.TempPathFactory, probe: Path, engine: Engine
) -> Iterator[Jail]:
    jail = Jail(tmp_path_factory.mktemp("jail"), probe, containers=engine.socket)
    yield jail
    jail.close()


@pytest.fixture
def own_jail(tmp_path: Path, probe: Path, engine: Engine) -> Iterator[Jail]:
    """A project of this test's own."""
    jail = Jail(tmp_path, probe, containers=engine.socket)
    yield jail
    jail.close()
