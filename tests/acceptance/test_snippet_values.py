"""A snippet on the command line has the value that it has in the library."""

from __future__ import annotations

import json
from typing import Any

import pytest

from .terminal import Terminal

WORDS = ("exec", "snippet", "--cwd", "scratch:", "--stdin", "-")


def order(code: str) -> bytes:
    return json.dumps({"code": code, "params": {}, "files": {}}).encode()


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("{2, 1}", [1, 2]),
        ("float('nan')", {"$type": "float", "$repr": "nan"}),
        ("b'a'", {"$type": "bytes", "$base64": "YQ=="}),
        ("'x' * 100_000", "x" * 100_000),
        ("None", None),
    ],
)
def test_the_value_is_the_output_of_the_document(
    project: Terminal, code: str, expected: Any
) -> None:
    answer = project.actum(*WORDS, "--json", stdin=order(code))
    assert answer.code == 0, answer.aside
    assert json.loads(answer.stdout)["output"] == expected


def test_the_value_is_in_the_summary_and_stdout_stays_the_snippets_own(project: Terminal) -> None:
    answer = project.actum(*WORDS, stdin=order("print('said')\n{2, 1}"))
    assert (answer.code, answer.text) == (0, "said\n")
    assert "  value: [1, 2]\n" in answer.aside
    long = project.actum(*WORDS, stdin=order("'x' * 1000"))
    assert "xxx… (all of it: --json)\n" in long.aside
    assert "value:" not in project.actum(*WORDS, stdin=order("print(1)")).aside
