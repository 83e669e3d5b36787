"""The examples of docs/python.md print what their comments say."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "python.md"
EXAMPLES = [
    block
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    if "Runtime.temporary" in block
]


def test_the_page_has_examples() -> None:
    assert len(EXAMPLES) >= 3


@pytest.mark.sandbox
@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_an_example_prints_what_it_says(example: str, tmp_path: Path) -> None:
    expected = re.findall(r"print\(.*\)  # (.*)", example)
    ended = subprocess.run(
        [sys.executable, "-c", example], cwd=tmp_path, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr
    said = ended.stdout.splitlines()
    assert expected and len(said) == len(expected)
    for line, comment in zip(said, expected, strict=True):
        assert comment == line or comment.startswith((f"{line}; ", f"{line}: ")), (line, comment)
