"""What children are rehearsed with must run: one that fails would rehearse nothing."""

from __future__ import annotations

import json
from typing import Any

import pytest

from actum.executors import rehearsed


@pytest.mark.parametrize("source", [rehearsed.LONG, rehearsed.SHORT])
def test_what_is_rehearsed_answers(source: str) -> None:
    namespace: dict[str, Any] = {}
    exec(compile(source, "<executor>", "exec"), namespace)
    executor = namespace["Rehearsed"]()
    asked: Any = rehearsed.ASKED
    request = type("Request", (), {"payload": asked["request"]["payload"]})
    assert json.loads(json.dumps(executor.execute(request)))
    assert asked["declared"] == [
        executor.executor_id,
        executor.version,
        executor.capabilities,
        list(executor.limits.values()),
    ]
