"""The evidence rooms as the unit tests furnish them, for those who attack them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "unit"))
from evidence.factories import House


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    opened = House.open(tmp_path / ".actum")
    yield opened
    opened.database.close()
