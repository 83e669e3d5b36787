"""Patterns of paths: what they match, compared with git, and what is refused."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from actum.contract import path_patterns
from actum.settings_file import LAST_WINS

PATHS = (
    *(
        "a.log",
        "x/a.log",
        "log",
        "a.log/b",
        "x/y/z",
        "y",
        "y/z",
        "x/yy/z",
        "a/x/b",
        "a/b",
        "a/x/y/b",
    ),
    *("__pycache__/m.pyc", "x/__pycache__/m", "__pycache__", "node_modules/.cache/b/f", "b/c/d"),
    *("packages/a/node_modules/.cache/f", "node_modules/x", "target/debug/x", "r/target/debug/x"),
    *("target", "src/target/x", ".a", "x/.a/b", "ab", "abc"),
)
PATTERNS = (
    *("*.log", "y", "y/", "/y", "x/y", "x/y/", "a/**/b", "**/y/z", "?.log", "a*", "/a*", "b/*"),
    *("**/node_modules/.cache/", "__pycache__/", "x/**", "**/target/debug/", ".a", "ab?"),
)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_it_matches_what_git_ignores(pattern: str, tmp_path: Path) -> None:
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    (tmp_path / ".git" / "info").mkdir(exist_ok=True)
    (tmp_path / ".git" / "info" / "exclude").write_text(pattern + "\n")
    for path in PATHS:
        words = ["git", "-C", tmp_path, "check-ignore", "--no-index", "-q", path]
        ignored = subprocess.run(words, check=False).returncode == 0
        assert path_patterns.match([pattern], path) == ignored, path


def test_every_pattern_is_tried() -> None:
    assert path_patterns.match(["nothing", "*.log"], "a.log")
    assert not path_patterns.match([], "a.log")


@pytest.mark.parametrize(
    "pattern", ["", "/", "!x", "[ab]", "a\\b", "a//b", "../x", "x/./y", "a**", "**b/c"]
)
def test_what_is_not_taken_is_refused(pattern: str) -> None:
    assert path_patterns.problem_with(pattern)


@pytest.mark.parametrize("pattern", [*PATTERNS, *LAST_WINS])
def test_what_is_taken_is_not(pattern: str) -> None:
    assert path_patterns.problem_with(pattern) == ""


def test_a_long_path_is_no_burden() -> None:
    path = "/".join(["a"] * 2_000)
    assert not path_patterns.match(["**/a/**/a/**/a/**/b", "*a*a*a*a*b"], path)
