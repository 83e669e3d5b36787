from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from actum.contract.call import EffectivePolicy, NetworkPolicy
from actum.contract.limits import Limits
from actum.contract.model import RunnerKind
from actum.policy.order import wider

LIMITS = Limits(timeout_ms=1_000, memory_mb=64, cpu_cores=1, max_children=2, allow_fork=True)
NETWORK = NetworkPolicy(enabled=True, allow=("*.a.test",), deny=("b.a.test",), outbound=("https",))
BASE = EffectivePolicy(
    runner=RunnerKind.LOCAL,
    limits=LIMITS,
    read=("/r",),
    write=("/r/w",),
    deny=("/r/secret",),
    protect=("/r/w/tools",),
    network=NETWORK,
    environment=("A",),
)


def limits(**changes: Any) -> EffectivePolicy:
    return replace(BASE, limits=replace(LIMITS, **changes))


def network(**changes: Any) -> EffectivePolicy:
    return replace(BASE, network=replace(NETWORK, **changes))


@pytest.mark.parametrize(
    ("more", "dimensions"),
    [
        (limits(timeout_ms=1_001), ("timeout_ms",)),
        (limits(memory_mb=65), ("memory_mb",)),
        (limits(cpu_cores=2), ("cpu_cores",)),
        (limits(max_children=3), ("max_children",)),
        (replace(BASE, read=("/r", "/s")), ("read",)),
        (replace(BASE, read=("/",)), ("read",)),
        (replace(BASE, write=("/r/w", "/r/v")), ("write",)),
        (replace(BASE, deny=()), ("deny",)),
        (replace(BASE, deny=("/r/secret/part",)), ("deny",)),
        (replace(BASE, protect=()), ("protect",)),
        (network(allow=("*.a.test", "c.test")), ("network.allow",)),
        (network(deny=()), ("network.deny",)),
        (network(outbound=("https", "tcp")), ("network.outbound",)),
        (network(internal=("x.a.test:443",)), ("network.internal",)),
        (replace(BASE, environment=("A", "B")), ("environment",)),
    ],
)
def test_more_in_one_dimension_is_named_and_less_is_not(
    more: EffectivePolicy, dimensions: tuple[str, ...]
) -> None:
    assert wider(more, BASE) == dimensions
    assert wider(BASE, more) == ()


def test_forking_and_network_are_named_with_what_they_bring() -> None:
    assert wider(BASE, limits(allow_fork=False)) == ("max_children", "allow_fork")
    assert wider(BASE, network(enabled=False)) == ("network.enabled",)
    assert wider(network(enabled=False), BASE) == ()


def test_a_policy_is_not_wider_than_itself() -> None:
    assert wider(BASE, BASE) == ()


def test_a_denied_path_out_of_reach_makes_no_difference() -> None:
    elsewhere = replace(BASE, deny=("/r/secret", "/elsewhere"))
    assert wider(BASE, elsewhere) == ()
