"""Warm interpreters run a caller's imports before anybody asks. That is no way to run."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable

import pytest

from actum.runners import warm
from hostile.jail import Jail, alive, marker

pytestmark = pytest.mark.sandbox

_ORDER = b'{"code": "6 * 7", "params": {}, "files": {}}'


@pytest.mark.parametrize(("body", "stays"), [("while True: pass", False), ("", True)])
def test_imports_that_never_end_are_ended_though_nobody_asked_for_them(
    own_jail: Jail, monkeypatch: pytest.MonkeyPatch, body: str, stays: bool
) -> None:
    """The module behaves while an order is there, and burns the processor while none is."""
    monkeypatch.setattr(warm, "_IMPORTS_S", 1.0)
    monkeypatch.setattr(warm, "_LOOK_S", 0.2)
    name = f"module_{marker()}"
    (own_jail.work / f"{name}.py").write_text(
        f"import select\nif not select.select([0], [], [], 0)[0]:\n    {body or 'pass'}\n"
    )
    result = own_jail.runtime.exec("snippet", name, stdin=_ORDER, cwd=own_jail.work)
    assert result.outcome == "SUCCEEDED"
    assert _within(10, lambda: len(alive(name)) >= 2), "no warm interpreter was started"
    if stays:
        assert not _within(4, lambda: not alive(name))
    else:
        assert _within(20, lambda: not alive(name))


def test_imports_that_fail_cost_only_those_who_asked_for_them(
    own_jail: Jail, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Interpreters that end while they wait are let go; others are still made ahead."""
    monkeypatch.setattr(warm, "_LOOK_S", 0.02)
    ended: list[bool] = []
    waits = warm.Warm.waits

    def noted(one: warm.Warm, now: float) -> bool:
        waiting = waits(one, now)
        ended.append(not waiting)
        return waiting

    monkeypatch.setattr(warm.Warm, "waits", noted)
    absent, present = f"absent_{marker()}", f"module_{marker()}"
    result = own_jail.runtime.exec("snippet", absent, stdin=_ORDER, cwd=own_jail.work)
    assert result.outcome == "TOOL_ERROR"
    assert _within(10, lambda: any(ended)), "none was made ahead"
    assert _within(10, lambda: not alive(absent))
    (own_jail.work / f"{present}.py").write_text("")
    result = own_jail.runtime.exec("snippet", present, stdin=_ORDER, cwd=own_jail.work)
    assert result.outcome == "SUCCEEDED"
    assert _within(10, lambda: len(alive(present)) >= 2), "no warm interpreter was started"


def _within(seconds: float, happens: Callable[[], bool]) -> bool:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if happens():
            return True
        time.sleep(0.05)
    return False


def test_one_snippet_leaves_nothing_for_the_next(jail: Jail) -> None:
    plant = """
import builtins, json, os, sys, tempfile
builtins.print = None
json.loads = None
sys.modules["math"] = None
open("/tmp/math.py", "w").write("pi = 3")
open("/dev/shm/left", "w").write("x")
os.environ["LEFT"] = "x"
"""
    look = """
import math, os
(math.pi > 3, os.listdir("/tmp"), os.listdir("/dev/shm"), os.environ.get("LEFT"), os.getpid() > 1)
"""
    for _ in range(4):
        assert jail.runtime.python(plant).outcome == "SUCCEEDED"
        assert jail.runtime.python(look).output == [True, [], [], None, True]


@pytest.mark.parametrize("replaced", [True, False])
def test_a_file_that_is_saved_anew_stays_closed_to_those_who_wait_already(
    own_jail: Jail, monkeypatch: pytest.MonkeyPatch, replaced: bool
) -> None:
    """Whatever is renamed over a file that is covered takes the cover away, wherever it is."""
    closed = own_jail.work / "closed"
    closed.write_text("of nobody's business")
    served: list[bool] = []
    take = warm.WarmInterpreters.take

    def counted(waiting: warm.WarmInterpreters, shape: bytes) -> warm.Warm | None:
        found = take(waiting, shape)
        served.append(found is not None)
        return found

    monkeypatch.setattr(warm.WarmInterpreters, "take", counted)
    name = f"module_{marker()}"
    (own_jail.work / f"{name}.py").write_text("")
    order = b'{"code": "print(open(\\"closed\\").read())", "params": {}, "files": {}}'

    def ask(stdin: bytes) -> str:
        denied = {"sandbox.filesystem.read": ["."], "sandbox.filesystem.deny": ["closed"]}
        result = own_jail.runtime.exec("snippet", name, stdin=stdin, cwd=own_jail.work, set=denied)
        assert result.result is not None, result.violations
        return result.result.stdout + result.result.stderr

    ask(_ORDER)
    assert _within(10, lambda: len(alive(name)) >= 2), "no warm interpreter was started"
    if replaced:
        new = own_jail.work / "new"
        new.write_text("of nobody's business, as saved by an editor")
        new.rename(closed)
    assert "Permission denied" in ask(order)
    assert served == [False, not replaced]


@pytest.mark.parametrize("anew", [True, False])
def test_a_folder_that_was_made_anew_is_the_one_a_snippet_stands_in(
    own_jail: Jail, anew: bool
) -> None:
    name = f"module_{marker()}"
    folder = own_jail.work / "folder"
    order = b'{"code": "import os; print(os.listdir())", "params": {}, "files": {}}'

    def make(file: str) -> None:
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.py").write_text("")
        (folder / file).write_text("")

    def ask() -> str:
        result = own_jail.runtime.exec("snippet", name, stdin=order, cwd=folder)
        assert result.result is not None, result.violations
        return result.result.stdout

    make("first")
    assert "'first'" in ask()
    assert _within(10, lambda: len(alive(name)) >= 2), "no warm interpreter was started"
    if anew:
        shutil.rmtree(folder)
    make("second")
    listed = ask()
    assert "'second'" in listed
    assert ("'first'" in listed) is not anew
