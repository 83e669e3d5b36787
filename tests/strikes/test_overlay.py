"""Commands that change the project are struck at any moment, on the overlay engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from .cells import ONLY, RUNS, plan
from .lab import Lab
from .sweep import sweep

pytestmark = [pytest.mark.sandbox, pytest.mark.soak]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    lab = Lab(tmp_path_factory.mktemp("strikes"), "overlay")
    yield lab
    lab.close()


@pytest.mark.req("002-35", "002-47")
def test_struck_at_any_moment_the_project_is_wholly_before_or_wholly_after(
    lab: Lab, record_property: Callable[[str, object], None]
) -> None:
    trials = plan(lab)
    if not trials:
        pytest.skip("the trial to repeat is of another engine")
    tally = sweep(lab, trials)
    record_property("figure", tally.figure())
    assert not tally.failures, f"{tally.figure()}\n" + "\n".join(tally.failures)
    assert ONLY is not None or tally.struck == RUNS
