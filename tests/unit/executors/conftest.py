"""The pure plane in a project of its own, with the same helper that the hostile tests use."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# One helper for both folders; they are not packages, so it is found by its place.
sys.path.insert(0, str(Path(__file__).parents[2] / "security" / "executors"))

from pure_house import PureHouse


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PureHouse]:
    with PureHouse(tmp_path_factory.mktemp("pure")) as opened:
        yield opened


@pytest.fixture
def own_house(tmp_path: Path) -> Iterator[PureHouse]:
    """For tests that break something."""
    with PureHouse(tmp_path / "own") as opened:
        yield opened
