"""Rows that executions share are told once, and no others are taken for them."""

from __future__ import annotations

import json

from actum.evidence.enforcement import told
from actum.value import replace

from .factories import ENFORCED


def test_the_same_rows_are_told_once_and_equal_ones_alike() -> None:
    equal = tuple(replace(row, peak=row.peak) for row in ENFORCED)
    assert equal is not ENFORCED
    assert told(ENFORCED) is told(ENFORCED)
    assert told(equal) is not told(ENFORCED)
    assert told(equal) == told(ENFORCED)


def test_other_figures_are_told_as_they_are() -> None:
    for peak in (None, 0, 3, 2**53, -(2**53)):
        rows = (replace(ENFORCED[0], peak=peak, tripped=True), *ENFORCED[1:])
        first, *_ = json.loads(told(rows).encoded)["enforcement"]
        expected = peak if peak is None or abs(peak) < 2**53 else str(peak)
        assert (first["peak"], first["tripped"]) == (expected, True)
        assert told(rows).by_limit["timeout_ms"].peak == peak


def test_rows_that_come_and_go_never_get_what_was_told_of_others() -> None:
    for peak in range(200):  # more than are kept
        rows = (replace(ENFORCED[0], peak=peak),)  # the one before is gone, or kept with its text
        (row,) = json.loads(told(rows).encoded)["enforcement"]
        assert row["peak"] == peak
