"""The fixture `postgres`: one server for all tests of a process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from postgres.server import Server, program


@pytest.fixture(scope="session")
def postgres() -> Iterator[Server]:
    if program("postgres") is None:
        pytest.skip("PostgreSQL is missing: apt-get install postgresql")
    server = Server()
    yield server
    server.remove()
