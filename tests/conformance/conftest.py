"""The engines, and the cells of the table of runners (scripts/conformance.py)."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from actum.testing import CHECKS, RunnerConformance
from engines.fixtures import docker, engine, own_engine, podman
from postgres.fixtures import postgres

__all__ = ["docker", "engine", "fill_cells", "own_engine", "podman", "postgres"]

_CHECKS = frozenset(CHECKS)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Also a check whose runner cannot be made has a cell: failed."""
    for item in items:
        # A module without a name tests no runner, or one that is none of Actum's.
        if not hasattr(getattr(item, "module", None), "NAME") or not hasattr(item, "callspec"):
            continue
        check = item.callspec.params.get("check")
        if check in _CHECKS:
            cell = [_label(item), check, "passed"]
            item.user_properties.append(("runner", json.dumps(cell)))


@pytest.fixture
def fill_cells(
    request: pytest.FixtureRequest, record_property: Callable[[str, Any], None]
) -> Callable[..., set[str]]:
    """Fills a cell for each limit, from a run or its refusal; returns the different texts."""

    def fill(suite: RunnerConformance, label: str = "") -> set[str]:
        texts = set()
        result = suite.run("true")
        rows = {row.limit: "enforced" for row in result.enforcement if row.enforced}
        for row in suite.runner.capabilities():
            text = rows.get(row.limit) or f"refused: {', '.join(result.reason_codes)}"
            cell = [label or _label(request.node), row.limit, text]
            record_property("runner", json.dumps(cell))
            texts.add(text)
        return texts

    return fill


def _label(item: pytest.Item) -> str:
    """The runner of a test, from the ids of its parameters."""
    check = item.callspec.params.get("check")  # type: ignore[attr-defined]
    ids = [part for part in item.callspec.id.split("-") if part != check]  # type: ignore[attr-defined]
    return ", ".join([*item.module.NAME, *ids])  # type: ignore[attr-defined]
