"""Every project here keeps what tools change apart until they have ended, by either engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hostile.jail import Jail


@pytest.fixture(params=["overlay", "copy"])
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def own_jail(tmp_path: Path, probe: Path, engine: str) -> Iterator[Jail]:
    jail = Jail(tmp_path, probe, engine=engine)
    yield jail
    jail.close()
