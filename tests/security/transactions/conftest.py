"""Every project here keeps what tools change apart until they have ended."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hostile.jail import Jail


@pytest.fixture
def own_jail(tmp_path: Path, probe: Path) -> Iterator[Jail]:
    jail = Jail(tmp_path, probe, transactions=True)
    yield jail
    jail.close()
