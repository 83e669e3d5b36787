"""The agent tour runs as it stands: every tool is called, and every receipt verifies."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.sandbox

TOUR = Path(__file__).resolve().parents[2] / "examples/tours/agent/tour.py"


@pytest.mark.skipif(
    subprocess.run(["/usr/bin/python3", "-I", "-m", "pip", "--version"], capture_output=True)
    .returncode != 0,
    reason="the system's Python has no pip",
)  # fmt: skip
def test_the_agent_tour_is_complete(tmp_path: Path) -> None:
    folder = tmp_path.resolve() / "tour"
    done = subprocess.run(
        [sys.executable, str(TOUR), str(folder)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    counted = re.search(r"^10 receipts, (\d+) checks, 0 failed$", done.stdout, re.MULTILINE)
    assert counted is not None, done.stdout
    assert int(counted[1]) > 50
    assert done.stdout.count("SUCCEEDED") == 8
    assert done.stdout.count("asks: AG-03: connect of") == 2
    assert "{'items': 2, 'total': 9.0} · dearest.txt: ink" in done.stdout
    assert "network refused: the tool has no network" in done.stdout
    assert (folder / "report.csv").read_text() == "pen,2.4\nink,6.6\n"
    assert (folder / "vendor/pricing.py").is_file()
