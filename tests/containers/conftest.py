"""Docker and Podman, and the projects of hostile tools on them."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from engines import Engine, kinds
from engines.fixtures import docker, engine, own_engine, podman
from hostile.fixtures import jail, probe
from hostile.jail import Jail

__all__ = ["docker", "engine", "jail", "own_engine", "own_jail", "podman", "probe", "shared_jail"]


SOAK = os.environ.get("ACTUM_SOAK") == "1"
_BY_TURNS = Path(__file__).with_name("test_hostile_tools.py")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Each hostile tool attacks one engine, Docker and Podman by turns; in a soak it attacks both.

    The engines keep the same promises (tests/conformance), and the runner asks both for the same.
    """
    if SOAK:
        return
    turns = dict[str, str]()
    chosen, others = list[pytest.Item](), list[pytest.Item]()
    for item in items:
        if item.path == _BY_TURNS:
            kind = item.callspec.params["engine"]  # type: ignore[attr-defined]
            attack = item.name.replace(kind, "", 1)
            turn = turns.setdefault(attack, kinds.KINDS[len(turns) % len(kinds.KINDS)])
            if kind != turn:
                others.append(item)
                continue
        chosen.append(item)
    if others:
        config.hook.pytest_deselected(items=others)
        items[:] = chosen


@pytest.fixture(scope="module")
def shared_jail(
    tmp_path_factory: pytest.TempPathFactory, probe: Path, engine: Engine
) -> Iterator[Jail]:
    jail = Jail(tmp_path_factory.mktemp("jail"), probe, containers=engine.socket)
    yield jail
    jail.close()


@pytest.fixture
def own_jail(tmp_path: Path, probe: Path, engine: Engine) -> Iterator[Jail]:
    """A project of this test's own."""
    jail = Jail(tmp_path, probe, containers=engine.socket)
    yield jail
    jail.close()
