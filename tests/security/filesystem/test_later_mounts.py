"""What the host mounts below a granted folder while a tool runs does not reach that tool."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.sandbox

_TESTS = Path(__file__).parents[2]


@pytest.fixture
def folder() -> Iterator[Path]:
    """Not below /tmp, which a sandbox has of its own."""
    with tempfile.TemporaryDirectory(dir=os.environ.get("ACTUM_OWN_FOLDER", "/srv")) as made:
        Path(made).chmod(0o755)
        yield Path(made)


@pytest.mark.req("004-53")
def test_a_mount_made_meanwhile_reaches_the_next_tool_and_not_this_one(folder: Path) -> None:
    """It would come without `nosuid`, `nodev` and `ro`: the kernel copies the host's own flags."""
    done = subprocess.run(
        [sys.executable, "-m", "security.filesystem.host_that_mounts", folder],
        env={**os.environ, "PYTHONPATH": str(_TESTS)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for found in json.loads(done.stdout):
        assert found["first"].split() == ["hidden", "0", "and", "hidden", "0"]
        # The control: the host's mounts do propagate, and what was there at the start is granted.
        assert found["second"].split() == ["arrived", "1"]
