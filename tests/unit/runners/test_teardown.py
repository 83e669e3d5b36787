"""An ended sandbox is torn down after the answer: always, and exactly once."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, cast

from actum.runners import teardown
from actum.runners.cleanup import Cleanup
from actum.runners.teardown import Teardown

if TYPE_CHECKING:
    import pytest


class Ended:
    """Notes who lets it go, and what was done afterwards."""

    def __init__(self, done: list[str], name: str = "one") -> None:
        self.done = done
        self.name = name
        self.by: str | None = None

    def end(self) -> None:
        self.by = threading.current_thread().name
        self.done.append(f"{self.name} ended")

    def then(self) -> None:
        self.done.append(f"{self.name} refilled")


def schedule(worker: Teardown, ended: Ended) -> None:
    worker.schedule(cast("Cleanup", ended), ended.then)


def test_another_thread_does_it_and_takes_in_what_came_meanwhile() -> None:
    done: list[str] = []
    taken_in = threading.Event()
    worker = Teardown(lambda: done.append("asked for"), taken_in.set)
    ended = Ended(done)
    schedule(worker, ended)
    assert taken_in.wait(10)
    worker.close()
    # What the next one needs comes first.
    assert done == ["asked for", "one ended", "one refilled"]
    assert ended.by == "actum-teardown"


def test_closing_waits_for_what_is_due() -> None:
    done: list[str] = []
    worker = Teardown(lambda: None, lambda: None)
    for name in "abc":
        schedule(worker, Ended(done, name))
    worker.close()
    assert done == [f"{name} {what}" for name in "abc" for what in ("ended", "refilled")]


def test_after_closing_everybody_does_his_own() -> None:
    done: list[str] = []
    worker = Teardown(lambda: done.append("asked for"), lambda: None)
    worker.close()
    ended = Ended(done)
    schedule(worker, ended)
    assert done == ["asked for", "one ended", "one refilled"]
    assert ended.by == threading.current_thread().name


def test_whoever_brings_more_than_may_lie_around_does_his_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(teardown, "_PAUSE_S", 0.2)
    done: list[str] = []
    worker = Teardown(lambda: None, lambda: None)
    all_of_them = [Ended(done, str(number)) for number in range(20)]
    for ended in all_of_them:
        schedule(worker, ended)
    assert done  # some could not wait, and none of them waits for the thread
    monkeypatch.setattr(teardown, "_PAUSE_S", 0.0)
    worker.close()
    assert sorted(done) == sorted(
        f"{number} {what}" for number in range(20) for what in ("ended", "refilled")
    )
    assert {ended.by for ended in all_of_them} == {
        "actum-teardown",
        threading.current_thread().name,
    }


def test_whoever_is_hurried_asks_for_the_next_one_himself_and_once() -> None:
    done: list[str] = []
    askers: list[str] = []
    worker = Teardown(lambda: askers.append(threading.current_thread().name), lambda: None)
    ended = Ended(done)
    worker.schedule(cast("Cleanup", ended), ended.then, hurried=True)
    worker.close()
    assert askers == [threading.current_thread().name]
    assert (done, ended.by) == (["one ended", "one refilled"], "actum-teardown")
