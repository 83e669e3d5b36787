"""Engines for tests; imported by the conftest files of folders whose tests use them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from engines import Engine, kinds, registry


def running(kind: str) -> Engine:
    """The engine of this test run. Where it cannot be started, the test is skipped aloud."""
    if why := registry.missing_programs(kind):
        pytest.skip(why)
    return registry.shared(kind)


@pytest.fixture(scope="session", params=kinds.KINDS)
def engine(request: pytest.FixtureRequest) -> Engine:
    """Docker, then Podman; shared by all tests of the run, so a test harms neither."""
    return running(request.param)


@pytest.fixture(scope="session")
def docker() -> Engine:
    return running("docker")


@pytest.fixture(scope="session")
def podman() -> Engine:
    return running("podman")


@pytest.fixture
def own_engine() -> Iterator[Callable[[str], Engine]]:
    """Starts an engine that the test may harm."""
    started: list[Engine] = []

    def start(kind: str) -> Engine:
        if why := registry.missing_programs(kind):
            pytest.skip(why)
        started.append(registry.start(kind))
        return started[-1]

    yield start
    for engine in started:
        registry.stop(engine)
