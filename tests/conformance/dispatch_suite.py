"""What every dispatch of durable runs promises (`actum.runs.dispatch.port`), as tests.

An implementation subclasses `DispatchConformance` and gives it a `Bench`
(`test_embedded_dispatch.py`). The carry of these tests claims a run in the ledger and ends it, as a
worker does, without what a worker does in between.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Protocol

import pytest

from actum.evidence.owner import current_owner
from actum.runs.dispatch.port import Carry, Dispatch, Ticket
from actum.runs.model import Run
from actum.runs.run_ledger import RunLedger
from actum.runs.run_status import RunStatus

QUEUE = "runs.s1.d1.p1.c1.v1"
_MOST_S = 120.0


class Bench(Protocol):
    """One home, and workers that share it."""

    ledger: RunLedger

    def dispatch(self, *queues: str) -> Dispatch:
        """That of a further worker."""

    def submit(
        self, *, folder: str = "/a", priority: int = 0, queue: str = QUEUE, fails: bool = False
    ) -> Ticket:
        """A new run with its ticket, in one transaction; `fails` rolls it back."""

    def claim_and_die(self, ticket: Ticket) -> None:
        """A worker takes the ticket, claims the run, and is killed."""


class Carried:
    """A carry that claims a run and ends it, and what it was called with."""

    def __init__(self, bench: Bench, during: Callable[[Ticket], None] = lambda _: None) -> None:
        self.bench, self.during = bench, during
        self.asked: list[Ticket] = []
        self.claimed: list[Ticket] = []
        self.at_once = 0
        self.most_at_once = 0
        self._lock = threading.Lock()

    def __call__(self, ticket: Ticket) -> None:
        with self._lock:
            self.asked.append(ticket)
        run = self.bench.ledger.find(ticket.run_id)
        assert run is not None, "a ticket without a run"
        if run.ticket != ticket:
            return
        mine = self.bench.ledger.claim(run, "boot ns 1 1")
        if mine is None:
            return
        with self._lock:
            self.claimed.append(ticket)
            self.at_once += 1
            self.most_at_once = max(self.at_once, self.most_at_once)
        try:
            self.during(ticket)
        finally:
            with self._lock:
                self.at_once -= 1
            self.bench.ledger.set_status(mine, RunStatus.COMPLETE)


@contextlib.contextmanager
def serving(dispatch: Dispatch, carry: Carry, places: int = 1) -> Iterator[threading.Thread]:
    thread = threading.Thread(target=lambda: dispatch.serve(carry, places=places))
    thread.start()
    try:
        yield thread
    finally:
        dispatch.stop()
        thread.join(_MOST_S)
        assert not thread.is_alive()


def until(found: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _MOST_S
    while not found():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def bring_back(bench: Bench, dispatch: Dispatch) -> list[Run]:
    """What the reconciler of a worker does."""
    at_work = {run.ticket: run for run in bench.ledger.at_work()}
    moved = [
        bench.ledger.bring_back(at_work[each], lost_after=9) for each in dispatch.absent([*at_work])
    ]
    return [run for run in moved if run is not None]


class DispatchConformance:
    @pytest.fixture
    def bench(self) -> Bench:
        raise NotImplementedError

    def test_every_ticket_is_carried_by_some_worker(self, bench: Bench) -> None:
        before = [bench.submit() for _ in range(5)]
        carried = Carried(bench)
        with serving(bench.dispatch(), carried), serving(bench.dispatch(), carried):
            until(lambda: len(carried.claimed) == 5)
            later = [bench.submit() for _ in range(5)]  # to workers that wait
            until(lambda: len(carried.claimed) == 10)
        assert set(carried.claimed) == {*before, *later}

    def test_a_ticket_of_a_transaction_that_was_rolled_back_is_never_carried(
        self, bench: Bench
    ) -> None:
        gone = bench.submit(fails=True)
        there = bench.submit()
        carried = Carried(bench)
        with serving(bench.dispatch(), carried):
            until(lambda: carried.claimed == [there])
        assert gone not in carried.asked

    def test_the_highest_priority_goes_first_then_the_oldest(self, bench: Bench) -> None:
        first, second = bench.submit(), bench.submit()
        high = bench.submit(priority=5)
        low = bench.submit(priority=-5)
        carried = Carried(bench)
        bench.dispatch().serve(carried, places=1, once=True)
        assert carried.claimed == [high, first, second, low]

    def test_so_many_are_carried_at_a_time_and_of_a_folder_one(self, bench: Bench) -> None:
        for folder in ("/a", "/b", "/c", "/d"):
            bench.submit(folder=folder)
            bench.submit(folder=folder)
        go = threading.Event()
        carried = Carried(bench, lambda _: until(go.is_set))
        with serving(bench.dispatch(), carried, places=3):
            until(lambda: carried.at_once == 3)
            folders = {run.workspace for run in bench.ledger.at_work()}
            assert len(folders) == 3
            go.set()
            until(lambda: len(carried.claimed) == 8)
        assert carried.most_at_once == 3

    def test_only_tickets_of_its_queues_reach_a_worker(self, bench: Bench) -> None:
        other = bench.submit(queue="runs.s1.d1.p2.c1.v1", priority=9)
        own = bench.submit()
        carried = Carried(bench)
        bench.dispatch(QUEUE).serve(carried, places=1, once=True)
        assert carried.asked == [own]
        bench.dispatch(QUEUE, "runs.s1.d1.p2.c1.v1").serve(carried, places=1, once=True)
        assert carried.claimed == [own, other]

    @pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
    def test_a_carry_that_raises_stops_no_other(self, bench: Bench) -> None:
        bad = bench.submit(folder="/bad", priority=5)
        good = [bench.submit(), bench.submit()]
        carried = Carried(bench)
        raised: list[Ticket] = []

        def carry(ticket: Ticket) -> None:
            if ticket == bad and not raised:
                raised.append(ticket)
                raise RuntimeError("as a body does whose database restarts")
            carried(ticket)

        with serving(bench.dispatch(), carry):
            until(lambda: carried.claimed[-2:] == good or carried.claimed[:2] == good)
            until(lambda: bad in carried.claimed)  # at least once includes this one
        assert raised == [bad]

    def test_a_ticket_that_died_with_its_worker_is_absent_and_comes_back(
        self, bench: Bench
    ) -> None:
        lost, waiting = bench.submit(), bench.submit(folder="/b")
        bench.claim_and_die(lost)
        carried = Carried(bench)
        dispatch = bench.dispatch()
        assert [*dispatch.absent([lost, waiting])] == [lost]
        with serving(dispatch, carried):
            until(lambda: carried.claimed == [waiting])
            (again,) = bring_back(bench, dispatch)
            until(lambda: again.ticket in carried.claimed)
        assert again.ticket.epoch == lost.epoch + 1

    def test_a_ticket_that_is_carried_is_not_absent(self, bench: Bench) -> None:
        ticket = bench.submit()
        run = bench.ledger.find(ticket.run_id)
        assert run is not None
        assert bench.ledger.claim(run, current_owner()) is not None
        assert [*bench.dispatch().absent([ticket])] == []

    def test_a_ticket_that_was_given_up_is_absent(self, bench: Bench) -> None:
        ticket = bench.submit()
        run = bench.ledger.find(ticket.run_id)
        assert run is not None
        assert bench.ledger.claim(run, current_owner()) is not None
        dispatch = bench.dispatch()
        assert [*dispatch.absent([ticket])] == []
        dispatch.give_up(ticket)
        assert [*dispatch.absent([ticket])] == [ticket]
        (again,) = bring_back(bench, dispatch)
        assert [*dispatch.absent([again.ticket])] == []

    def test_one_worker_reconciles_at_a_time_at_most(self, bench: Bench) -> None:
        with bench.dispatch().turn() as mine:
            assert mine

    def test_two_carriers_of_one_ticket_are_harmless(self, bench: Bench) -> None:
        tickets = [bench.submit(folder=f"/{number}") for number in range(10)]
        carried = Carried(bench)
        both = threading.Barrier(2)

        def carry_all() -> None:
            for ticket in tickets:
                both.wait(_MOST_S)
                carried(ticket)

        threads = [threading.Thread(target=carry_all) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(_MOST_S)
        assert len(carried.asked) == 20
        assert sorted(carried.claimed, key=tickets.index) == tickets

    def test_a_waiting_worker_learns_of_a_ticket_and_may_be_woken_for_nothing(
        self, bench: Bench
    ) -> None:
        carried = Carried(bench)
        dispatch = bench.dispatch()
        dispatch.wake()
        with serving(dispatch, carried):
            until(lambda: QUEUE in bench.dispatch().served())
            for _ in range(20):
                dispatch.wake()
            ticket = bench.submit()
            until(lambda: carried.claimed == [ticket])
        dispatch.wake()

    def test_a_stopped_worker_ends_what_it_carries_and_begins_nothing(self, bench: Bench) -> None:
        first, second = bench.submit(), bench.submit()
        go = threading.Event()
        carried = Carried(bench, lambda _: until(go.is_set))
        dispatch = bench.dispatch()
        thread = threading.Thread(target=lambda: dispatch.serve(carried, places=1))
        thread.start()
        until(lambda: carried.claimed == [first])
        dispatch.stop()
        dispatch.stop()
        thread.join(0.2)
        assert thread.is_alive(), "it returned before its carry"
        go.set()
        thread.join(_MOST_S)
        assert not thread.is_alive()
        assert second not in carried.asked
        assert dispatch.served() == frozenset()

    def test_changes_of_other_processes_are_seen(self, bench: Bench) -> None:
        with bench.dispatch().changes() as changes:
            bench.submit()
            began = time.monotonic()
            changes.wait(_MOST_S)
            assert time.monotonic() - began < _MOST_S
