"""The examples do what they say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples" / "python"
SAID = {"many_calls.py": "2470\n{'failed': 'TOOL_ERROR', 'best': 'tue'}\n"}


@pytest.mark.sandbox
@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.py")), ids=lambda file: file.name)
def test_an_example_says_what_it_should(file: Path) -> None:
    ended = subprocess.run([sys.executable, file], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, SAID[file.name], "")
