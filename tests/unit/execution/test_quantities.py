"""Times and sizes: numbers and text mean the same, and what is neither is named."""

from __future__ import annotations

from typing import Any

import pytest

from actum import ContractInvalid
from actum.execution.quantities import duration_ms, size_mb

MIB = 1_048_576
NO_NUMBERS = [True, False, None, [], {}, b"5", object(), 1j]


def _shown(given: Any) -> str:
    # Python does not write an int of thousands of digits.
    return "many digits" if isinstance(given, int) and given > 10**20 else repr(given)[:20]


@pytest.mark.parametrize(
    ("given", "ms"),
    [
        *[(5, 5_000), (2.5, 2_500), ("5", 5_000), ("5s", 5_000), ("2.5s", 2_500), ("2.5", 2_500)],
        *[("500ms", 500), ("2m", 120_000), ("1.5m", 90_000), ("1h", 3_600_000), (0.25, 250)],
    ],
)
def test_a_time_without_a_unit_is_seconds(given: Any, ms: int) -> None:
    assert duration_ms(given) == ms


@pytest.mark.parametrize(
    ("given", "mib"),
    [
        *[("256M", 256), ("256MB", 256), ("256MiB", 256), ("256m", 256), ("1G", 1_024)],
        *[("0.5G", 512), (256 * MIB, 256), (str(256 * MIB), 256), (100_000_000, 95), (MIB, 1)],
    ],
)
def test_a_size_without_a_unit_is_bytes_rounded_down_to_mib(given: Any, mib: int) -> None:
    assert size_mb(given) == mib


@pytest.mark.parametrize(
    "given",
    [
        *NO_NUMBERS,
        *[0, -1, 0.0, -2.5, float("nan"), float("inf"), float("-inf"), 10**5_000],
        *["", "s", "-5s", "5 s", "5sec", "0x5", "1e3", "nan", "٥s", "9" * 5_000, "1:30"],
    ],
    ids=_shown,
)
def test_what_is_no_time_is_refused_by_its_field(given: Any) -> None:
    with pytest.raises(ContractInvalid) as caught:
        duration_ms(given, "lifetime")
    (problem,) = caught.value.problems
    assert problem.field == "lifetime"
    assert "500ms, 5s or 2m" in problem.permitted
    assert len(str(problem)) < 400


@pytest.mark.parametrize(
    "given",
    [
        *NO_NUMBERS,
        *[0, -1, 256, 2.5, 256.0, float("nan"), float("inf"), 10**5_000],
        *["", "M", "256", "256K", "-1G", "1e9", "0.5", "9" * 5_000, "256 M", "1T"],
    ],
    ids=_shown,
)
def test_what_is_no_size_is_refused_by_its_field(given: Any) -> None:
    with pytest.raises(ContractInvalid) as caught:
        size_mb(given)
    (problem,) = caught.value.problems
    assert problem.field == "memory"
    assert "256M or 1G" in problem.permitted
    assert len(str(problem)) < 400
