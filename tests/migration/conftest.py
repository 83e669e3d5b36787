"""Homes as older versions left them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "unit"))
from evidence.factories import House


@pytest.fixture
def house(home: Path) -> Iterator[House]:
    opened = House.open(home)
    yield opened
    opened.database.close()
