"""The whole local runner on an older kernel, with version 2 of the cgroups and Landlock ABI 2."""

from __future__ import annotations

import os

import pytest

from . import qemu
from .answers import Answers, program

pytestmark = [
    pytest.mark.vm,
    pytest.mark.skipif(
        os.geteuid() != 0, reason="only root can share this host's files with an emulated machine"
    ),
]

#: Check -> rows that would no longer be true if it failed.
_PROMISES: dict[str, tuple[str, ...]] = {
    "exit code and output": (),
    "held by version 2": (),
    "held by an older Landlock": (),
    "sees itself at the root": (),
    "a child's memory ends the tree": ("000-12", "000-36", "004-13", "004-50"),
    "by the kernel's own proof": ("000-86",),
    "and is on record": (),
    "a plain kill is not out of memory": ("000-86",),
    "timed out, output kept": ("000-87", "004-51"),
    "no survivors": ("004-52",),
    "as many children as granted": ("000-20",),
    "and not one more": ("000-20", "000-42"),
    "forks forbidden": ("000-21",),
    "threads are no children": (),
    "calls that are not on the list are missing": ("004-5",),
    "of /proc only processes are the kernel's": ("004-53",),
    "and what it says of memory is ours": (),
    "two busy children on one core are held back": ("000-13", "000-39", "004-49"),
    "no group is left": (),
    "prepared ones serve as well": (),
    "and leave no group": (),
}
_CHECKS = [
    ("root", "Landlock ABI 2", ()),
    ("root", "the pages of the clock can be unmapped", ("001-25",)),
    *((role, check, rows) for role in ("root", "user") for check, rows in _PROMISES.items()),
    ("user", "moved out of the subtree, nothing runs", ()),
    ("nothing", "refused, nothing ran", ()),
    ("nothing", "as a limit that cannot hold", ()),
    ("nothing", "the remedy is named", ()),
    ("nothing", "the doctor says so too", ()),
]


@pytest.fixture(scope="module")
def answers() -> Answers:
    return Answers(qemu.run(program("runner.py"), deadline_s=1_800))


@pytest.mark.parametrize(
    ("role", "check"),
    [
        pytest.param(
            role,
            check,
            marks=[pytest.mark.req(*rows)] if rows else [],
            id=f"{role}-{check.replace(' ', '-')}",
        )
        for role, check, rows in _CHECKS
    ],
)
def test_the_runner_on_an_older_kernel(answers: Answers, role: str, check: str):
    answers.require(role, check)


def test_nothing_is_told_that_is_not_asked_for(answers: Answers):
    assert answers.names == {(role, check) for role, check, _rows in _CHECKS}
