"""An ended sandbox is let go behind the answer: once, always, and by somebody."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, cast

from actum.runners import hangup
from actum.runners.hangup import Hangups

if TYPE_CHECKING:
    import pytest

    from actum.runners.clearing import Clearing


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


def hang_up(hangups: Hangups, ended: Ended) -> None:
    hangups.hang_up(cast("Clearing", ended), ended.then)


def test_another_thread_does_it_and_takes_in_what_came_meanwhile() -> None:
    done: list[str] = []
    taken_in = threading.Event()
    hangups = Hangups(lambda: done.append("asked for"), taken_in.set)
    ended = Ended(done)
    hang_up(hangups, ended)
    assert taken_in.wait(10)
    hangups.close()
    # What the next one needs comes first.
    assert done == ["asked for", "one ended", "one refilled"]
    assert ended.by == "actum-hangup"


def test_closing_waits_for_what_is_due() -> None:
    done: list[str] = []
    hangups = Hangups(lambda: None, lambda: None)
    for name in "abc":
        hang_up(hangups, Ended(done, name))
    hangups.close()
    assert done == [f"{name} {what}" for name in "abc" for what in ("ended", "refilled")]


def test_after_closing_everybody_does_his_own() -> None:
    done: list[str] = []
    hangups = Hangups(lambda: done.append("asked for"), lambda: None)
    hangups.close()
    ended = Ended(done)
    hang_up(hangups, ended)
    assert done == ["asked for", "one ended", "one refilled"]
    assert ended.by == threading.current_thread().name


def test_whoever_brings_more_than_may_lie_around_does_his_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hangup, "_PAUSE_S", 0.2)
    done: list[str] = []
    hangups = Hangups(lambda: None, lambda: None)
    all_of_them = [Ended(done, str(number)) for number in range(20)]
    for ended in all_of_them:
        hang_up(hangups, ended)
    assert done  # some could not wait, and none of them waits for the thread
    monkeypatch.setattr(hangup, "_PAUSE_S", 0.0)
    hangups.close()
    assert sorted(done) == sorted(
        f"{number} {what}" for number in range(20) for what in ("ended", "refilled")
    )
    assert {ended.by for ended in all_of_them} == {
        "actum-hangup",
        threading.current_thread().name,
    }


def test_whoever_is_hurried_asks_for_the_next_one_himself_and_once() -> None:
    done: list[str] = []
    askers: list[str] = []
    hangups = Hangups(lambda: askers.append(threading.current_thread().name), lambda: None)
    ended = Ended(done)
    hangups.hang_up(cast("Clearing", ended), ended.then, hurried=True)
    hangups.close()
    assert askers == [threading.current_thread().name]
    assert (done, ended.by) == (["one ended", "one refilled"], "actum-hangup")
