"""Which plans an interpreter may be started for before anybody asks for it."""

from __future__ import annotations

from typing import Any

import pytest
from evidence.factories import make_contract, make_plan, make_policy

from actum.contract.call import Executable, SecretUse
from actum.runners.warm import Likeness
from actum.value import replace
from hostile.member import asked

POLICY = make_policy()
PLAN = make_plan(make_contract(), POLICY, argv=("python3", "-", "word"))


def by(path: str) -> dict[str, Any]:
    executable = Executable(path=path, sha256="d" * 64, device=1, inode=2)
    return {"proof": replace(PLAN.proof, executable=executable)}


@pytest.mark.parametrize(
    ("changes", "waits"),
    [
        ({}, True),
        ({"argv": ("python3", "-")}, True),
        ({"argv": ("python3", "-B", "-", "word")}, True),
        ({"argv": ("python3", "-B", "word", "-")}, False),
        ({"argv": ("python3", "-B")}, False),
        (by("/usr/bin/python3"), True),
        ({"policy": replace(POLICY, read=("/srv/repo",), write=("/srv/repo",))}, True),
        # Anything that it is told besides may be something to do at once.
        ({"argv": ("python3",)}, False),
        ({"argv": ("python3", "-c", "-")}, False),
        ({"argv": ("python3", "-i", "-")}, False),
        ({"argv": ("python3", "program.py", "-")}, False),
        # Another program may begin before it has read to the end.
        (by("/usr/bin/dash"), False),
        (by("/usr/bin/python3-config"), False),
        (by("/usr/bin/python2.7"), False),
        # It would be another tool's to say what runs.
        ({"policy": replace(POLICY, write=("/usr/bin",))}, False),
        ({"policy": replace(POLICY, read=("/usr",))}, False),
        ({"environment": {"PYTHONPATH": "/srv/repo"}}, False),
        # Of this one execution alone.
        ({"secrets": (SecretUse(name="S", variable="S"),)}, False),
    ],
)
def test_an_interpreter_waits_for_a_program_that_cannot_run_before_it_is_there(
    changes: dict[str, Any], waits: bool
) -> None:
    plan = replace(PLAN, **{**by("/usr/bin/python3.11"), **changes})
    shape = Likeness(plan).shape(asked(""), (0, 0))
    assert (shape is not None) is waits
