from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from common.certificates import authority

from .service import NAMES, TOKEN, Project, Service, resources, serving


@pytest.fixture(scope="session")
def trust(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return authority(tmp_path_factory.mktemp("authority"), NAMES)


@pytest.fixture(scope="module")
def shared_service(trust: Any) -> Iterator[Service]:
    with serving(trust[1]) as service:
        yield service


@pytest.fixture
def service(shared_service: Service, monkeypatch: pytest.MonkeyPatch) -> Service:
    monkeypatch.setenv("TEST_REST_TOKEN", TOKEN)
    shared_service.seen.clear()
    shared_service.answer = resources
    return shared_service


@pytest.fixture(scope="module")
def shared_project(
    tmp_path_factory: pytest.TempPathFactory, shared_service: Service, trust: Any
) -> Iterator[Project]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TEST_REST_TOKEN", TOKEN)
        project = Project(tmp_path_factory.mktemp("rest"), shared_service, trust[0])
        yield project
        project.close()


@pytest.fixture
def project(shared_project: Project, service: Service) -> Project:
    """The example as it is shipped, shared by one file of tests."""
    assert service.seen == []
    shared_project.waits.waited.clear()
    shared_project.waits.cancelled = False
    return shared_project


@pytest.fixture
def changed(tmp_path: Path, service: Service, trust: Any) -> Iterator[Callable[..., Project]]:
    """A project of this test's own, with the example changed."""
    made: list[Project] = []

    def make(change: Any = None, **words: Any) -> Project:
        made.append(Project(tmp_path / str(len(made)), service, trust[0], change=change, **words))
        return made[-1]

    yield make
    for project in made:
        project.close()
