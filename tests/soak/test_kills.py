"""Spawner and sandboxes die at random under load: every request ends honestly, the next one works.

`make test` kills 30 times; `make soak` kills 300 times.
"""

from __future__ import annotations

import gc
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from actum import Fault, Outcome, Runtime

from .test_leaks import SOAK, _children, _groups

pytestmark = [pytest.mark.sandbox, pytest.mark.soak]

KILLS = 300 if SOAK else 30
CALLERS = 4


def _spawners() -> list[int]:
    return [
        pid
        for pid in _children(os.getpid())
        if b"actum.sandbox.spawner" in _read(f"/proc/{pid}/cmdline")
    ]


def _read(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError:
        return b""


def _below(pid: int) -> list[int]:
    try:
        return _children(pid)
    except OSError:
        return []


def _kill(pid: int, among: Callable[[], list[int]]) -> bool:
    """By a descriptor, and only if it still is who it was: numbers are used again."""
    try:
        descriptor = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if pid not in among():
            return False
        signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    except OSError:
        return False
    else:
        return True
    finally:
        os.close(descriptor)


class Load:
    """Callers that ask without end, and what became of each request."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.over = threading.Event()
        self.ends: Counter[str] = Counter()
        self.lies: list[str] = []
        self.asked = 0
        self._guard = threading.Lock()

    def ask(self, number: int, *, snippet: bool) -> None:
        word = f"word-{number}"
        try:
            if snippet:
                result = self.runtime.python("print(w)", params={"w": word}, timeout="60s")
            else:
                result = self.runtime.exec("shell", stdin=f"echo {word}", timeout="60s")
        except Fault as fault:
            end = fault.code
        else:
            end = result.outcome.value
            said = result.result.stdout if result.result else ""
            if result.ok and said != f"{word}\n":
                self.lies.append(f"{word}: {said!r}")
        with self._guard:
            self.ends[end] += 1

    def work(self) -> None:
        while not self.over.is_set():
            with self._guard:
                self.asked += 1
                number = self.asked
            self.ask(number, snippet=number % 3 == 0)


@pytest.mark.req("000-187", "004-17")
def test_whoever_is_killed_under_load_every_request_ends_honestly(
    record_property: Callable[[str, object], None],
) -> None:
    chance = random.Random(7)
    descriptors = len(os.listdir("/proc/self/fd"))
    with Runtime.temporary() as runtime:
        load = Load(runtime)
        threads = [threading.Thread(target=load.work) for _ in range(CALLERS)]
        for thread in threads:
            thread.start()
        killed: Counter[str] = Counter()
        deadline = time.monotonic() + 600
        while killed.total() < KILLS:
            assert time.monotonic() < deadline, killed
            # Something has to go well in between, or only starting would be looked at.
            before = load.ends["SUCCEEDED"]
            while load.ends["SUCCEEDED"] == before and time.monotonic() < deadline:
                time.sleep(0.001)
            spawners = _spawners()
            members = [pid for spawner in spawners for pid in _below(spawner)]
            if members and chance.random() < 0.7:
                chosen = chance.choice(members)
                hit = _kill(chosen, lambda: [p for s in _spawners() for p in _below(s)])
                killed["sandbox"] += hit
            elif spawners:
                killed["spawner"] += _kill(chance.choice(spawners), _spawners)
            time.sleep(chance.random() * 0.02)
        load.over.set()
        for thread in threads:
            thread.join(120)
            assert not thread.is_alive()
        assert min(killed.values()) > 0
        assert load.lies == []
        assert load.ends.total() == load.asked
        # A tool of which we do not know how it ended is a fault, and a killed one no success.
        assert set(load.ends) <= {"SUCCEEDED", "SANDBOX_UNAVAILABLE", "TOOL_ERROR"}, load.ends
        assert load.ends["SUCCEEDED"] > 0
        states = Counter(
            (row[0], row[1])
            for row in runtime.database.rows("SELECT state, outcome FROM executions")
        )
        assert states.total() == load.asked
        assert {state for state, _outcome in states} == {"FINAL"}
        assert states["FINAL", "SUCCEEDED"] == load.ends["SUCCEEDED"]
        assert states["FINAL", "EXCEPTION"] == load.ends["SANDBOX_UNAVAILABLE"]
        for number in range(3):
            assert runtime.exec("shell", stdin=f"echo {number}").outcome is Outcome.SUCCEEDED
            assert runtime.python(f"{number}").output == number
        assert all(finding.passed for finding in runtime.verifier.verify_all())
    record_property("figure", f"{KILLS} kills ({dict(killed)}): {dict(load.ends)}")
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= descriptors  # earlier tests may close theirs
    assert _spawners() == []
    assert _groups() == []
