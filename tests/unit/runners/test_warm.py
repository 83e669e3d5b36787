"""Which plans an interpreter may be started for before anybody asks for it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from evidence.factories import make_contract, make_plan, make_policy

from actum.contract.call import Executable, SecretUse
from actum.runners.warm import Likeness
from actum.sandbox.root import SNIPPET
from actum.value import replace
from hostile.member import asked, granted

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
        # Any further order may be one to carry out at once.
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
        # As would be the modules that it imports before it reads its program.
        ({"policy": replace(POLICY, write=("/usr/local",))}, False),
        ({"policy": replace(POLICY, read=("/usr/local/lib/python3.11/dist-packages",))}, False),
        ({"policy": replace(POLICY, read=("/usr/lib",))}, False),
        ({"policy": replace(POLICY, read=("/usr/share",))}, True),
        (
            {"policy": replace(POLICY, write=("/tmp/.local",)), "environment": {"HOME": "/tmp"}},
            False,
        ),
        ({"policy": replace(POLICY, write=("/tmp/work",)), "environment": {"HOME": "/tmp"}}, True),
        ({"layers": {"/srv/repo": "/srv/repo/.actum/transactions/e-1/0"}}, True),
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


def test_a_snippet_waits_where_changes_are_a_transaction_only_if_it_imports_nothing() -> None:
    layers = {"/srv/repo": "/srv/repo/.actum/transactions/e-1/0"}

    def serves(*words: str, **changes: Any) -> bool:
        plan = replace(PLAN, argv=("python3", "-s", SNIPPET, *words), **changes)
        return Likeness(plan).shape(asked(""), (0, 0)) is not None

    assert serves() and serves("math")
    assert serves(layers=layers)
    assert not serves("math", layers=layers)


def _shape(top: Path, layers: str, **changes: Any) -> bytes:
    grant = {**granted(top, write=True), "layers": layers}
    request = asked("", working_directory=str(top / "outer" / "inner"), grants=[grant], **changes)
    found = Likeness(replace(PLAN, **by("/usr/bin/python3.11"))).shape(request, (0, 0))
    assert found is not None
    return found


@pytest.fixture
def top(tmp_path: Path) -> Path:
    (tmp_path / "outer" / "inner").mkdir(parents=True)
    (tmp_path / "outer" / "denied").mkdir()
    return tmp_path


def test_which_layers_take_the_changes_does_not_matter_but_whether_some_do(top: Path) -> None:
    assert _shape(top, "/home/transactions/e-1/0") == _shape(top, "/home/transactions/f-2/0")
    assert _shape(top, "/home/transactions/e-1/0") != _shape(top, "")


def _another(path: Path) -> None:
    path.rename(path.with_name("away"))
    path.mkdir()
    for inner in path.with_name("away").iterdir():
        inner.rename(path / inner.name)


@pytest.mark.parametrize(
    ("change", "matters"),
    [
        (lambda top: (top / "outer").chmod(0o700), True),
        (lambda top: (top / "outer" / "inner").chmod(0o700), True),
        (lambda top: top.chmod(0o701), True),
        (lambda top: _another(top / "outer"), True),
        (lambda top: (top / "outer" / "denied").chmod(0o700), True),
        (lambda top: (top / "outer" / "inner" / "new").write_text("x"), False),
        (lambda top: (top / "other").mkdir(), False),
    ],
)
def test_every_folder_on_the_way_matters_and_nothing_else(
    top: Path, change: Callable[[Path], object], matters: bool
) -> None:
    os.chmod(top, 0o755)
    denied = [str(top / "outer" / "denied")]
    before = _shape(top, "/home/transactions/e-1/0", deny=denied)
    change(top)
    assert (_shape(top, "/home/transactions/e-1/0", deny=denied) != before) is matters
