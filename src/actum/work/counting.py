"""Counts passed and failed tests in the output of known test runners."""

from __future__ import annotations

import re
from collections.abc import Callable

#: (passed, failed)
Counted = tuple[int, int]

_PYTEST = re.compile(r"^=* ?((?:\d+ [a-z]+(?:, )?)+) in [\d.]+s(?: \([^)]*\))? ?=*$", re.MULTILINE)
_NODE_PASS = re.compile(r"^(?:# |ℹ )pass (\d+)$", re.MULTILINE)
_NODE_FAIL = re.compile(r"^(?:# |ℹ )fail (\d+)$", re.MULTILINE)
_CARGO = re.compile(r"^test result: \w+\. (\d+) passed; (\d+) failed;", re.MULTILINE)
_GO = re.compile(r"^\s*--- (PASS|FAIL|SKIP): ", re.MULTILINE)


def count_tests(output: str) -> Counted | None:
    """``None`` where the output is of no known runner: nothing is guessed."""
    for reader in _READERS:
        counted = reader(output)
        if counted is not None:
            return counted
    return None


def _pytest(output: str) -> Counted | None:
    found = _PYTEST.findall(output)
    if not found:
        return None
    words = {word: int(number) for number, word in re.findall(r"(\d+) ([a-z]+)", found[-1])}
    known = {"passed", "failed", "error", "errors", "skipped", "xfailed", "xpassed", "deselected"}
    if not known.intersection(words):
        return None
    failed = words.get("failed", 0) + words.get("error", 0) + words.get("errors", 0)
    return words.get("passed", 0) + words.get("xpassed", 0), failed


def _node(output: str) -> Counted | None:
    passed, failed = _NODE_PASS.findall(output), _NODE_FAIL.findall(output)
    return (int(passed[-1]), int(failed[-1])) if passed and failed else None


def _cargo(output: str) -> Counted | None:
    found = _CARGO.findall(output)  # one line per test binary
    if not found:
        return None
    return sum(int(passed) for passed, _ in found), sum(int(failed) for _, failed in found)


def _go(output: str) -> Counted | None:
    found = _GO.findall(output)
    return (found.count("PASS"), found.count("FAIL")) if found else None


_READERS: tuple[Callable[[str], Counted | None], ...] = (_pytest, _node, _cargo, _go)
