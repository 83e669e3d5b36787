"""`make demo`, the first command of the README: it checks itself, and leaves nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.sandbox
def test_the_tour_goes_as_promised(tmp_path: Path) -> None:
    actum = Path(sys.executable).parent / "actum"
    done = subprocess.run(
        [ROOT / "scripts/demo.sh"],
        env={**os.environ, "ACTUM": str(actum), "TMPDIR": str(tmp_path)},
        text=True,
        capture_output=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("The demo went as promised.\n")
    assert [*tmp_path.iterdir()] == []


def test_a_broken_promise_ends_it(tmp_path: Path) -> None:
    """The control: a program that answers nothing is no Actum."""
    done = subprocess.run(
        [ROOT / "scripts/demo.sh"],
        env={**os.environ, "ACTUM": "/bin/false", "TMPDIR": str(tmp_path)},
        text=True,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 1
    assert "promise broken" in done.stderr
