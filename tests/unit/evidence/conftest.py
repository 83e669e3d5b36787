from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from .factories import House


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    opened = House.open(tmp_path / ".actum")
    yield opened
    opened.database.close()
