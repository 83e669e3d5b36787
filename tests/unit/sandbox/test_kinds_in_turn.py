"""A program that uses tools of several kinds in turn finds a prepared sandbox for each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from actum.sandbox.host_probe import examine
from actum.sandbox.spawner_client import _GUESS, _KINDS, Kind, Spawner, _kind
from hostile.jail import until

if TYPE_CHECKING:
    from actum.sandbox.wire import Make

pytestmark = pytest.mark.sandbox

_SIZE = 4


@pytest.fixture
def spawner() -> Iterator[Spawner]:
    found = examine()
    assert found.cgroups is not None
    started = Spawner(pool_size=_SIZE)
    started.equip(found.cgroups)
    yield started
    started.close()


def asked(*, fork: bool = True, steady: bool = False) -> Make:
    return {"allow_fork": fork, "steady": steady, "interpreter": False, **_GUESS}


def carried_out(spawner: Spawner, make: Make) -> Counter[Kind]:
    """Which wait after an execution of that kind, once all that were asked for have come."""
    spawner._take(make).discard()
    spawner.refill()

    def have_come() -> bool:
        spawner.take_in()
        return not spawner._asked

    until(have_come)
    return Counter(member.kind for member in spawner._members)


def test_of_each_kind_that_was_used_lately_one_waits(spawner: Spawner) -> None:
    one, other = asked(), asked(steady=True)
    for _ in range(3):
        for make in (one, other):
            waiting = carried_out(spawner, make)
    assert waiting[_kind(one)] >= 1
    assert waiting[_kind(other)] >= 1
    assert waiting.total() <= _SIZE


def test_only_of_the_newest_kinds_and_never_too_many(spawner: Spawner) -> None:
    makes = [asked(fork=fork, steady=steady) for fork in (True, False) for steady in (True, False)]
    assert len(makes) > _KINDS
    spawner._wanted = _SIZE
    for make in (*makes, *makes):
        waiting = carried_out(spawner, make)
        assert waiting.total() <= _SIZE
        assert waiting[_kind(make)] >= 1
    newest = {_kind(make) for make in makes[-_KINDS:]}
    assert newest <= set(waiting)
