"""examples/secrets does what it says."""

from __future__ import annotations

import hashlib
import hmac
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "examples" / "secrets" / "run.sh"
KEY = b"correct-horse-battery-staple"


def signature(text: bytes) -> str:
    return hmac.new(KEY, text, hashlib.sha256).hexdigest()


@pytest.mark.sandbox
@pytest.mark.req("004-56", "004-58")
def test_the_example(tmp_path: Path) -> None:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    ended = subprocess.run(
        [SCRIPT, tmp_path / "project"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PATH": path},
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    said = [line.strip() for line in ended.stdout.splitlines() if not line[:1].isdigit()]
    signed = [line for line in ended.stdout.splitlines() if len(line) == 64]
    assert said == [
        "exit code 1",
        "exit code 3",
        *(line for line in signed if not line[:1].isdigit()),
        "debug: the key is [redacted:SIGNING_KEY] or [redacted:SIGNING_KEY]",
    ]
    assert signed == [signature(b"hello"), signature(b"hello, debug")]
