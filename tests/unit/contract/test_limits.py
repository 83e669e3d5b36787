from __future__ import annotations

import pytest

from actum.contract.limits import RANGES, Limits


def test_the_table_of_limits_is_the_seeds():
    table = {name: (one.default, one.least, one.most) for name, one in RANGES.items()}
    assert table == {
        "timeout_ms": (30_000, 1_000, 600_000),
        "memory_mb": (512, 64, 4_096),
        "cpu_cores": (1, 1, 4),
        "max_children": (10, 0, 100),
    }


@pytest.mark.parametrize(("allow_fork", "children"), [(True, 7), (False, 0)])
def test_forbidding_fork_wins_over_the_number_of_children(allow_fork, children):
    limits = Limits(
        timeout_ms=1000, memory_mb=64, cpu_cores=1, max_children=7, allow_fork=allow_fork
    )
    assert limits.children == children


def test_a_megabyte_of_memory_is_binary():
    limits = Limits(timeout_ms=1000, memory_mb=64, cpu_cores=1, max_children=0, allow_fork=True)
    assert limits.memory_bytes == 67_108_864
