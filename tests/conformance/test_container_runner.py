"""The container runner keeps every promise that `actum.testing` checks, on each engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from actum.evidence.owner import current_owner
from actum.runners.container.container_config import OWNER_LABEL
from actum.runners.container.container_runner import ContainerRunner
from actum.testing import CHECKS, RunnerConformance
from engines import Engine

pytestmark = pytest.mark.sandbox
#: In the table of runners, before the ids of a test.
NAME = ()


@pytest.fixture(scope="module", params=[False, True], ids=["made when asked", "waiting"])
def suite(
    engine: Engine, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunnerConformance]:
    folder: Path = tmp_path_factory.mktemp("conformance")
    suite = RunnerConformance(
        lambda: ContainerRunner(host=str(engine.socket), pool=request.param), folder
    )
    yield suite
    suite.close()
    engine.require_none(f"{OWNER_LABEL}={current_owner()}")  # other workers use the engine too


@pytest.mark.req("004-19")
@pytest.mark.parametrize("check", CHECKS)
def test_the_container_runner(suite: RunnerConformance, check: str) -> None:
    suite.check(check)


def test_every_limit_has_a_cell(
    suite: RunnerConformance, fill_cells: Callable[..., set[str]]
) -> None:
    assert fill_cells(suite) == {"enforced"}


def test_gvisor_is_refused_by_name(
    docker: Engine, tmp_path: Path, fill_cells: Callable[..., set[str]]
) -> None:
    """It passes no descriptors, so it is refused where it is installed and where it is not."""
    runner = ContainerRunner(host=str(docker.socket), runtime="runsc")
    suite = RunnerConformance(lambda: runner, tmp_path)
    try:
        suite.check("limits are enforced or refused")
        refused = suite.run("echo x > started")
        assert "runsc" in str(refused.violations), refused.violations
        assert not (suite.work / "started").exists()
        assert fill_cells(suite, "docker with runsc") == {"refused: LIMIT_NOT_ENFORCEABLE"}
    finally:
        suite.close()
