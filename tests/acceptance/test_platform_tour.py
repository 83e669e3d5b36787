"""The platform tour runs as it stands, in a folder that a reader names."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.sandbox

TOUR = Path(__file__).resolve().parents[2] / "examples/tours/platform/tour.sh"


def test_the_platform_tour_is_complete(tmp_path: Path) -> None:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    folder = tmp_path.resolve() / "tour"
    words = ["sh", str(TOUR), str(folder)]
    done = subprocess.run(
        words, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("\nThe platform tour is complete.\n")
    assert done.stdout.count("Signature Verified Successfully") == 2
    # What it says is so: the report, its backup, and the receipt that names the exception.
    assert (folder / "exports/report.txt").read_text() == "all is well\n"
    statement = json.loads((folder / "audit/second.statement").read_text())
    (decision,) = statement["predicate"]["decisions"]
    assert decision["decided_by"].startswith("standing:")
    assert decision["granted_by"] == "ada"
    assert statement["predicate"]["outcome"] == "SUCCEEDED"
