"""The command is struck between the mount of the view and its first word: nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from .held_open import strike_held_open
from .lab import Lab
from .strike import Signal

pytestmark = pytest.mark.sandbox


@pytest.fixture(scope="module", params=["overlay", "copy"])
def lab(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    lab = Lab(tmp_path_factory.mktemp("held-open"), request.param)
    yield lab
    lab.close()


@pytest.mark.req("002-35", "002-47")
@pytest.mark.parametrize("number", list(Signal))
def test_struck_when_the_view_is_mounted_nothing_is_lost(lab: Lab, number: Signal) -> None:
    assert strike_held_open(lab, number) == []
