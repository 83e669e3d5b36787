"""The batch tour runs as it stands, in a folder that a reader names."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.sandbox

TOUR = Path(__file__).resolve().parents[2] / "examples/tours/batch/tour.sh"


def test_the_batch_tour_is_complete(tmp_path: Path) -> None:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    folder = tmp_path.resolve() / "tour"
    done = subprocess.run(
        ["sh", str(TOUR), str(folder)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=1_200,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("\nThe batch tour is complete.\n")
    # What it says is so: one text was undone, and with it the total; the others stand.
    counts = {path.name for path in (folder / "project/counts").iterdir()}
    assert counts == {f"{number:02}.txt" for number in range(1, 41)} - {"03.txt"}
    assert (folder / "project/counts/17.txt").read_text() == "3\n"
    assert "41 items committed, each once" in done.stdout
