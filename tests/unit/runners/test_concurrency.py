"""A cap, a fair queue of bounded length, and nobody who waits for ever."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest

from actum.contract.model import Contract
from actum.errors import Refused
from actum.runners.base import Cancel
from actum.runners.concurrency import ConcurrencyLimit, Got, Queueing, Sharing, Waiting
from hostile.jail import until


def asked_by(caller: str) -> Contract:
    return cast("Contract", SimpleNamespace(metadata=SimpleNamespace(requested_by=caller)))


def place(
    concurrency: ConcurrencyLimit,
    caller: str = "a",
    cancel: Cancel | None = None,
    wait_s: float = 60,
) -> AbstractContextManager[Got]:
    return Queueing(concurrency, cancel, wait_s).place(asked_by(caller))


class Crowd:
    """Threads that each hold a place for a moment, and the order in which they had it."""

    def __init__(self, concurrency: ConcurrencyLimit) -> None:
        self.concurrency = concurrency
        self.order: list[str] = []
        self.refused: list[str] = []
        self.threads: list[threading.Thread] = []

    def ask(self, caller: str, **more: Any) -> None:
        def stay() -> None:
            try:
                with place(self.concurrency, caller, **more) as got:
                    assert got is Got.AFTER_A_WAIT
                    self.order.append(caller)
            except Refused as refusal:
                self.refused.append(f"{caller} {refusal.code}")

        before = self.concurrency.waiting + len(self.refused)
        thread = threading.Thread(target=stay)
        thread.start()
        self.threads.append(thread)
        until(lambda: self.concurrency.waiting + len(self.refused) > before)

    def meanwhile(self, act: Callable[[], object]) -> None:
        """Act as soon as one more waits."""
        before = self.concurrency.waiting
        thread = threading.Thread(
            target=lambda: (until(lambda: self.concurrency.waiting > before), act())
        )
        thread.start()
        self.threads.append(thread)

    def join(self) -> None:
        for thread in self.threads:
            thread.join(60)
            assert not thread.is_alive()


@contextmanager
def crowd(count: int = 1, queued: int = 10_000) -> Iterator[Crowd]:
    """Everybody in it came while all places were taken; they go on when the block ends."""
    concurrency = ConcurrencyLimit(count, queued=queued)
    for _ in range(count):
        assert concurrency.try_take()
    people = Crowd(concurrency)
    yield people
    for _ in range(count):
        concurrency.give_back()
    people.join()
    assert (concurrency.free, concurrency.waiting) == (count, 0)


@pytest.mark.req("004-76")
def test_of_one_caller_the_first_comes_first() -> None:
    concurrency = ConcurrencyLimit(1, queued=100)
    order: list[int] = []
    assert concurrency.try_take()
    waiting = [
        concurrency.join("a", lambda number=number: order.append(number)) for number in range(20)
    ]
    for number in range(20):
        concurrency.give_back()
        assert [each.holds for each in waiting] == [n <= number for n in range(20)]
    assert order == list(range(20))


def test_who_asks_once_is_not_starved_by_who_asks_a_thousand_times() -> None:
    with crowd() as people:
        for _ in range(200):
            people.ask("greedy")
        people.ask("modest")
    assert people.order.index("modest") == 1


def test_callers_take_turns_whatever_the_length_of_their_lines() -> None:
    with crowd() as people:
        for caller, times in (("a", 30), ("b", 3), ("c", 10)):
            for _ in range(times):
                people.ask(caller)
    assert people.order[:9] == ["a", "b", "c"] * 3
    assert people.order[9:23] == ["a", "c"] * 7
    assert set(people.order[23:]) == {"a"}


def test_no_more_hold_a_place_than_there_are() -> None:
    concurrency, most, now = ConcurrencyLimit(3, queued=1_000), [0], [0]
    guard = threading.Lock()

    def stay(caller: str) -> None:
        with place(concurrency, caller) as got:
            assert got is not Got.CANCELLED
            with guard:
                now[0] += 1
                most[0] = max(most[0], now[0])
            time.sleep(0.001)
            with guard:
                now[0] -= 1

    threads = [threading.Thread(target=stay, args=(f"c{n % 7}",)) for n in range(300)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most[0] == 3
    assert (concurrency.free, concurrency.waiting) == (3, 0)


def test_a_full_queue_refuses_and_says_what_would_help() -> None:
    with crowd(queued=2) as people:
        people.ask("a")
        people.ask("a")
        with pytest.raises(Refused) as caught, place(people.concurrency, "a"):
            raise AssertionError
    assert caught.value.code == "QUEUE_FULL"
    assert "limits.max_queued" in str(caught.value)
    assert people.order == ["a", "a"]


def test_a_queue_filled_by_one_caller_has_room_for_another() -> None:
    """The last of the longest line gives way; it was not started, so it is a plain refusal."""
    with crowd(queued=10) as people:
        for _ in range(10):
            people.ask("greedy")
        people.ask("modest")
        until(lambda: people.refused == ["greedy QUEUE_FULL"])
        assert people.concurrency.waiting == 10
    assert people.order.count("greedy") == 9
    assert people.order.index("modest") == 1


def test_equal_lines_do_not_push_each_other_out() -> None:
    with crowd(queued=4) as people:
        for caller in ("a", "a", "b", "b"):
            people.ask(caller)
        for caller in ("a", "b"):
            with pytest.raises(Refused), place(people.concurrency, caller):
                raise AssertionError
    assert people.order == ["a", "b", "a", "b"]


def test_without_a_queue_nobody_waits() -> None:
    concurrency = ConcurrencyLimit(1, queued=0)
    with place(concurrency) as got:
        assert got is Got.AT_ONCE
        with pytest.raises(Refused, match="nothing ran"), place(concurrency):
            raise AssertionError
    with place(concurrency) as got:
        assert got is Got.AT_ONCE


def test_waiting_has_an_end() -> None:
    with (
        crowd() as people,
        pytest.raises(Refused) as caught,
        place(people.concurrency, wait_s=0.05),
    ):
        raise AssertionError
    assert caught.value.code == "QUEUE_TIMEOUT"
    assert "limits.max_wait_s" in str(caught.value)


def test_who_waits_can_be_cancelled_and_holds_nothing_then() -> None:
    with crowd() as people:
        cancel = Cancel()
        people.meanwhile(cancel.cancel)
        with place(people.concurrency, cancel=cancel) as got:
            assert got is Got.CANCELLED
        assert people.concurrency.waiting == 0
    cancel.close()
    with place(people.concurrency, cancel=cancel) as got:  # before it even waits
        assert got is Got.CANCELLED
    assert people.concurrency.free == 1


def test_an_interrupt_while_waiting_leaves_the_queue() -> None:
    import signal

    main = threading.main_thread().ident or 0
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with crowd() as people:
            people.meanwhile(lambda: signal.pthread_kill(main, signal.SIGINT))
            with pytest.raises(KeyboardInterrupt), place(people.concurrency):
                raise AssertionError
            assert people.concurrency.waiting == 0
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_signal_handler_can_cancel_who_waits() -> None:
    import signal

    cancel, main = Cancel(), threading.main_thread().ident or 0
    before = signal.signal(signal.SIGUSR1, lambda *_: cancel.cancel())
    try:
        with crowd() as people:
            people.meanwhile(lambda: signal.pthread_kill(main, signal.SIGUSR1))
            with place(people.concurrency, cancel=cancel) as got:
                assert got is Got.CANCELLED
    finally:
        signal.signal(signal.SIGUSR1, before)
        cancel.close()


def test_waiting_takes_no_descriptor() -> None:
    import os

    cancels = [Cancel() for _ in range(50)]
    with crowd() as people:
        before = len(os.listdir("/proc/self/fd"))
        for cancel in cancels:
            people.ask("a", cancel=cancel)
        assert len(os.listdir("/proc/self/fd")) == before


def test_whatever_happens_in_whatever_order_no_place_is_lost() -> None:
    """Joining, leaving and giving back at random; in the end everything is as at the start."""
    for seed in range(30):
        chance = random.Random(seed)
        concurrency = ConcurrencyLimit(3, queued=8)
        held = 0
        waiting: list[Waiting] = []
        for _ in range(400):
            match chance.choice(["join", "join", "leave", "back"]):
                case "join":
                    try:
                        new = concurrency.join(chance.choice("abcd"), lambda: None)
                    except Refused:
                        continue
                    waiting.append(new)
                case "leave" if waiting:
                    concurrency.leave(chance.choice(waiting))
                case "back" if held:
                    concurrency.give_back()
                    held -= 1
            held += sum(each.holds for each in waiting)
            waiting = [each for each in waiting if each.state.name == "WAITING"]
            assert concurrency.free + held == 3
            assert concurrency.waiting == len(waiting) <= 8
            assert not (concurrency.free and concurrency.waiting)
        for each in waiting:
            assert concurrency.leave(each)
        for _ in range(held):
            concurrency.give_back()
        assert (concurrency.free, concurrency.waiting) == (3, 0)


def test_what_runs_in_anothers_place_needs_none_of_its_own() -> None:
    concurrency = ConcurrencyLimit(1, queued=0)
    turn = Queueing(concurrency, None, 0)
    assert not turn.holds
    with turn.place(asked_by("a")):
        assert turn.holds
        with Sharing().place(asked_by("a")) as got:
            assert got is Got.AT_ONCE
        assert concurrency.free == 0
    assert (turn.holds, concurrency.free) == (False, 1)


def test_a_cancel_can_be_polled_whenever_it_was_asked_for() -> None:
    import select

    early, late = Cancel(), Cancel()
    early.cancel()
    late.fileno()
    late.cancel()
    for cancel in (early, late):
        assert cancel.requested
        poll = select.poll()
        poll.register(cancel.fileno(), select.POLLIN)
        assert poll.poll(0)
        cancel.close()
