"""A project of the tests' own, opened. What differs overrides `project`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from actum import Runtime

from .project import Project


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


@pytest.fixture
def runtime(project: Project) -> Iterator[Runtime]:
    with project.open() as opened:
        yield opened
