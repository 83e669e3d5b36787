"""The engine is killed while a tool runs: the tool ends as it would, and nothing is left."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from actum import Outcome
from engines import Engine

from .lab import RAN, Lab, lab

pytestmark = pytest.mark.sandbox


@pytest.mark.parametrize("kind", ["docker", "podman"])
def test_an_engine_that_is_killed_changes_no_ending(
    tmp_path: Path, own_engine: Callable[[str], Engine], kind: str
) -> None:
    engine = own_engine(kind)
    with lab(tmp_path, engine) as found:
        assert Lab.said(found.ask("true")) == f"{RAN}\n"
        killed = threading.Event()

        def hear(_name: str, _chunk: bytes) -> None:
            if not killed.is_set():
                killed.set()
                engine.kill()

        answer = found.ask("sleep 2; echo after; exit 4", on_output=hear)
        assert killed.is_set()
        assert Lab.said(answer) == f"{RAN}\nafter\n"
        assert answer.outcome is Outcome.TOOL_ERROR  # type: ignore[union-attr]
        engine.restart()
        assert Lab.said(found.ask("true")) == f"{RAN}\n"
        found.jail.close()
        found.until_nothing_is_left()
