"""The size of a diff is exact for files that are larger than the cap on it."""

from __future__ import annotations

from pathlib import Path

import pytest

from actum.work.step_caps import StepCaps, broken_cap
from actum.workspace.tree import Change, Entry, Kind

CAPS = StepCaps(
    max_files=1, max_total_diff_bytes=1_000, max_file_bytes=100_000, allow_env_mutation=False
)
LINES = (b"x" * 99 + b"\n") * 500
HEAD = b"x" * 1_001


@pytest.mark.parametrize(
    ("old", "new", "is_broken"),
    [
        (LINES, LINES + b"y\n", False),
        (b"y\n" + LINES, LINES, False),
        (HEAD + b"q" * 1_000_000, HEAD, True),
        (LINES, LINES[:1_001], True),
        (LINES, LINES[:-1_100], True),
    ],
    ids=["append", "first-line", "cut-huge", "cut", "cut-the-end"],
)
def test_large_files(tmp_path: Path, old: bytes, new: bytes, is_broken: bool) -> None:
    (tmp_path / "base").mkdir()
    (tmp_path / "new").mkdir()
    (tmp_path / "base/f").write_bytes(old)
    (tmp_path / "new/0").write_bytes(new)
    delta = (Change(b"f", Entry(Kind.FILE, 0o644, b"1"), Entry(Kind.FILE, 0o644, b"2")),)
    found = broken_cap(CAPS, delta, tmp_path / "base", tmp_path / "new")
    assert (found is not None) == is_broken, found
