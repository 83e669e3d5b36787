"""Work items on an older kernel, where a tmpfs has neither idmapped mounts nor user attributes.

`make test` undoes and strikes on the overlay. `make soak` does both at each place, and runs the
item on each engine by name.
"""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from strikes.cells import SOAK

from . import qemu
from .answers import Answers, program

pytestmark = [
    pytest.mark.vm,
    pytest.mark.soak,
    pytest.mark.skipif(
        os.geteuid() != 0, reason="only root can share this host's files with an emulated machine"
    ),
]

_ON_EXT4 = "root on ext4"
_ON_TMPFS = ("root on tmpfs", "user on tmpfs")
_PLACES = (*_ON_TMPFS, _ON_EXT4)
_REFUSED = "overlay is refused, nothing is lost"
_COPY_SAME, _OVERLAY_SAME = "copy does the same", "overlay does the same"
_STRUCK = "struck, wholly before or wholly after"
#: Check -> rows that would no longer be true if it failed.
_EVERYWHERE: dict[str, tuple[str, ...]] = {
    "auto takes the engine that works": (),
    "auto does the work exactly": (),
    "files come out with the project's owner": (),
    "nothing stays mounted": (),
}
_UNDONE_AND_STRUCK: dict[str, tuple[str, ...]] = {
    "undo brings back what was there": (),
    _STRUCK: ("002-35", "002-47"),
    "as often as planned": (),
}
_CHECKS = [
    *((place, check, rows) for place in _PLACES for check, rows in _EVERYWHERE.items()),
    *((place, _REFUSED, ("002-47",)) for place in _ON_TMPFS),
    *(
        (place, check, rows)
        for place in (_PLACES if SOAK else (_ON_EXT4,))
        for check, rows in _UNDONE_AND_STRUCK.items()
    ),
    *((place, _COPY_SAME, ()) for place in _PLACES if SOAK),
    *((place, _OVERLAY_SAME, ()) for place in (_ON_EXT4,) if SOAK),
]


@pytest.fixture(scope="module")
def answers() -> Answers:
    return Answers(qemu.run(program("work.py"), deadline_s=3_600))


@pytest.mark.parametrize(
    ("place", "check"),
    [
        pytest.param(
            place,
            check,
            marks=[pytest.mark.req(*rows)] if rows else [],
            id=f"{place}-{check}".replace(" ", "-"),
        )
        for place, check, rows in _CHECKS
    ],
)
def test_work_items_on_an_older_kernel(
    answers: Answers, place: str, check: str, record_property: Callable[[str, object], None]
):
    answers.require(place, check)
    if check == _STRUCK:
        record_property("figure", f"Linux 6.1, {place}: {answers.seen(place, check)}")


def test_nothing_is_told_that_is_not_asked_for(answers: Answers):
    assert answers.names == {(place, check) for place, check, _rows in _CHECKS}
