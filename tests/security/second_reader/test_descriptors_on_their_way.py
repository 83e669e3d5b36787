"""The kernel counts the descriptors that the processes of one uid have sent and not received. An
ordinary user's tool has the uid of the host process, and can use this up."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.sandbox

_TESTS = Path(__file__).parents[2]
#: Far more than the executions take; without an answer the host would wait for ever.
_TIMEOUT_S = 120


@pytest.fixture
def folder() -> Iterator[Path]:
    """Not below /tmp, which a sandbox has of its own."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("ACTUM_OWN_FOLDER", "/srv")) as made:
        Path(made).chmod(0o755)
        yield Path(made)


def _found(kind: str, folder: Path) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "security.second_reader.host_with_few_descriptors", kind, folder],
        env={**os.environ, "PYTHONPATH": str(_TESTS)},
        capture_output=True,
        text=True,
        check=False,
        timeout=_TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    # The control: the kernel let it send no more (ETOOMANYREFS).
    assert found["kept"].split() == ["109", "109"]
    return found


@pytest.mark.req("000-11")
def test_a_tool_that_keeps_descriptors_on_their_way_keeps_no_other_from_being_served(
    folder: Path,
) -> None:
    found = _found("soft", folder)
    assert found["during"] == ["served"] * 4
    assert found["alive"]
    assert found["after"] == "served"


@pytest.mark.req("000-11")
def test_where_the_limit_cannot_be_raised_others_are_refused_and_told_why(folder: Path) -> None:
    """And none of the sandboxes that run is ended."""
    found = _found("hard", folder)
    if os.getuid() == 0:  # not bound by it, and the tool has another uid
        assert found["during"] == ["served"] * 4
    else:
        assert all(
            "Too many references" in said or "too many descriptors" in said
            for said in found["during"]
        ), found
    assert found["alive"]
    assert found["after"] == "served"
