"""Groups of version 2 keep their promises: proven by a kernel that has no others, in seconds."""

from __future__ import annotations

import pytest

from . import uml
from .answers import Answers, program

pytestmark = pytest.mark.vm

_PROMISES = (
    "limits are in force",
    "born inside",
    "its parent stays outside",
    "no event without a reason",
    "usage is counted",
    "an idle group is removed",
    "out of memory kills",
    "out of memory is heard",
    "out of memory is proven",
    "a child's memory takes the whole tree",
    "a child's memory is proven",
    "a plain kill is not out of memory",
    "children are counted exactly",
    "a refused child is counted",
    "removal ends survivors",
    "the next group is a fresh one",
    "what a dead process left is swept away",
    "a living process's group is not",
)
_CHECKS = [
    *(("root", check) for check in ("version 2", *_PROMISES)),
    # To whom nothing was delegated; and for whom there is a subtree, but they live elsewhere.
    *(
        (role, check)
        for role in ("nothing", "outside")
        for check in ("refused", "the remedy is named")
    ),
    *(("user", check) for check in ("lives in the subtree", *_PROMISES)),
    ("user", "the subtree's own limits stay root's"),
    ("user", "nothing outside the subtree"),
    ("scope", "its processes move to a leaf"),
    ("scope", "memory is limited"),
    ("scope", "a second process finds the same place"),
    ("container", "groups below its own root"),
    ("container", "memory is limited"),
    ("container", "nothing to delegate there"),
    ("root", "no revoking under a sandbox"),
    ("root", "the shell is moved in"),
    ("root", "revoked, and the shell lives"),
    ("root", "a kernel without Landlock is reported"),
]


@pytest.fixture(scope="module")
def answers() -> Answers:
    return Answers(uml.run(program("groups.py"), deadline_s=1_800))


@pytest.mark.parametrize(("role", "check"), _CHECKS, ids=lambda word: word.replace(" ", "-"))
def test_groups_of_version_2(answers: Answers, role: str, check: str):
    answers.require(role, check)


def test_nothing_is_told_that_is_not_asked_for(answers: Answers):
    assert answers.names == set(_CHECKS)
