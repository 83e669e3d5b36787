"""The local runner keeps every promise that `actum.testing` checks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from actum.runners.local import LocalRunner
from actum.testing import CHECKS, RunnerConformance
from common.imaged_tools import add_image, give_image
from common.images import PROGRAMS, host_rootfs

pytestmark = pytest.mark.sandbox
#: In the table of runners, before the ids of a test.
NAME = ("local",)

_PROGRAMS = (
    *PROGRAMS,
    "rg",
    "git",
    "bash",
    "touch",
    "tail",
    "mkfifo",
    "setsid",
    "nohup",
    "yes",
    "tee",
    "unshare",
    "mount",
)

_ALWAYS = ("004-12", "004-61", "004-62", "004-63", "004-64", "004-65", "004-66")
_FIELDS = ("004-35", "004-36", "004-38", "004-39", "004-42", "004-29")
_EVENTS = ("004-28", "004-67", "004-68", "004-69", "004-70", "004-26")
_ENDING = (*_ALWAYS, *_FIELDS, *_EVENTS, "004-10", "004-60", "000-88", "000-183")
ROWS: dict[str, tuple[str, ...]] = {
    "success": ("000-81", "000-75"),
    "error": ("000-82",),
    "permission denied": (),
    "command not found": (),
    "a code that looks like memory": ("000-85", "000-86"),
    "a signal of its own": ("000-85", "000-86"),
    "timeout": ("000-87", "000-179", "004-13"),
    "a tool ends at its deadline": ("000-11", "000-33", "004-2", "004-13", "004-51", "004-52"),
    "durations are measured": ("004-41", "004-71"),
    "a cancelled invocation never starts": ("004-30", "004-37"),
    "a failing listener leaves four events": ("004-30", "004-66"),
    "memory": ("000-36", "000-86", "004-3", "004-13", "004-50"),
    "memory in a child only": ("000-36", "000-86", "004-50"),
    "policy violation": ("004-59",),
    "limits are enforced or refused": ("000-176",),
    "permissions applied are those given": ("000-176",),
    "another plan than the validated one is refused": ("004-6", "004-18", "004-23"),
    "the same input gives the same result": ("004-1", "004-72"),
    "nothing is kept between runs": ("004-17", "004-24"),
    "children are limited exactly": ("000-20", "000-42"),
    "forks are refused where they are forbidden": ("000-21",),
    "nothing outside can be read or written": ("004-1", "004-4", "004-44"),
    "output is bounded and counted": ("000-73", "000-78", "000-181", "004-9"),
    "input arrives exactly": ("000-6", "000-8", "004-26"),
    "only declared environment arrives": ("000-7",),
}


def _rows(name: str) -> tuple[str, ...]:
    ending = name.removeprefix("ends as ")
    return (*(_ENDING if ending != name else ()), *ROWS.get(ending, ()))


def _in_image(project: Path) -> None:
    """Every tool of the project runs in an image of the host's own programs."""
    archive = host_rootfs(project.parent / "image.tar", _PROGRAMS, python=True)
    give_image(project, add_image(project, archive).reference)


def _on_host(_project: Path) -> None:
    pass


@pytest.fixture(
    scope="module",
    params=[(False, _on_host), (True, _on_host), (False, _in_image), (True, _in_image)],
    ids=["made when asked", "prepared", "in an image, made when asked", "in an image, prepared"],
)
def suite(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunnerConformance]:
    pool, prepare = request.param
    folder = tmp_path_factory.mktemp("conformance")
    suite = RunnerConformance(lambda: LocalRunner(pool=pool), folder, prepare=prepare)
    yield suite
    suite.close()


@pytest.mark.parametrize(
    "check", [pytest.param(name, marks=pytest.mark.req(*_rows(name))) for name in CHECKS]
)
def test_the_local_runner(suite: RunnerConformance, check: str) -> None:
    suite.check(check)


def test_every_limit_has_a_cell(
    suite: RunnerConformance, fill_cells: Callable[[RunnerConformance], set[str]]
) -> None:
    assert fill_cells(suite) == {"enforced"}
