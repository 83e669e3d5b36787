"""The dispatch of one machine. The queue is the ledger: a queued row is its own ticket.

So nothing is enqueued, no ticket is lost while its row is queued, and a ticket is gone when the row
is claimed. Every worker looks at the ledger when the database has changed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

from actum.evidence.owner import current_owner, is_alive
from actum.runs.dispatch.database_changes import DatabaseChanges
from actum.runs.dispatch.local_disk import require_local_disk
from actum.runs.dispatch.port import Carry, Ticket
from actum.runs.dispatch.worker_file import WorkerFile, live_workers
from actum.runs.ledger.ledger_store import Transaction

#: A worker that has not beaten for so long is taken for dead: it is stopped, or hangs.
DEAD_AFTER_S = 30.0
#: A ticket whose carry raised waits so long.
_AGAIN_S = 1.0
_WAIT_S = 0.25

#: The tickets that may be carried now, of these queues, the next one first, at most so many.
Waiting = Callable[[Sequence[str], int], Sequence[Ticket]]
#: The process that has claimed a run, as `evidence.owner` names it; ``None`` if none has.
OwnerOf = Callable[[str], str | None]


def enqueue(_into: Transaction, _ticket: Ticket) -> None:
    """Implements `port.Enqueue`: the row that the caller writes is the ticket."""


class EmbeddedDispatch:
    """Implements `port.Dispatch`."""

    def __init__(
        self,
        home: Path,
        *,
        queues: Sequence[str],
        waiting: Waiting,
        owner_of: OwnerOf,
        dead_after_s: float = DEAD_AFTER_S,
    ) -> None:
        self._home = home
        self._queues = tuple(queues)
        self._waiting = waiting
        self._owner_of = owner_of
        self._dead_after_s = dead_after_s
        self._stopped = threading.Event()
        self._woken = threading.Event()
        self._carried: set[Ticket] = set()
        self._given_up: set[Ticket] = set()
        #: Tickets whose carry raised, and when each may be tried again.
        self._failed: dict[Ticket, float] = {}

    def serve(self, carry: Carry, *, places: int, once: bool = False) -> None:
        require_local_disk(self._home)
        threads: list[threading.Thread] = []
        with (
            WorkerFile(self._home, queues=self._queues),
            DatabaseChanges(self._home, self._woken) as changes,
        ):
            try:
                while not self._stopped.is_set():
                    threads = [each for each in threads if each.is_alive()]
                    free = places - len(self._carried)
                    due = self._due(free) if free > 0 else []
                    if once and not due and not self._carried:
                        return
                    threads += [self._begin(carry, ticket, once=once) for ticket in due[:free]]
                    changes.wait(_WAIT_S)
            finally:
                self._stopped.set()
                for each in threads:
                    each.join()

    def stop(self) -> None:
        self._stopped.set()
        self._woken.set()

    def wake(self) -> None:
        self._woken.set()

    def absent(self, tickets: Sequence[Ticket]) -> Sequence[Ticket]:
        stopped = {
            worker.owner
            for worker in live_workers(self._home)
            if worker.beat_age_s > self._dead_after_s
        }
        found = []
        for ticket in tickets:
            owner = self._owner_of(ticket.run_id)  # a row without an owner waits
            given_up = owner == current_owner() and ticket in self._given_up
            if owner is not None and (owner in stopped or given_up or not is_alive(owner)):
                found.append(ticket)
        return found

    def give_up(self, ticket: Ticket) -> None:
        self._given_up.add(ticket)

    def served(self) -> frozenset[str]:
        return frozenset(queue for each in live_workers(self._home) for queue in each.queues)

    @contextmanager
    def present(self) -> Iterator[None]:
        require_local_disk(self._home)
        with WorkerFile(self._home, queues=()):
            yield

    def turn(self) -> AbstractContextManager[bool]:
        return nullcontext(True)  # SQLite has one writer at a time

    def changes(self) -> DatabaseChanges:
        return DatabaseChanges(self._home)

    def _due(self, free: int) -> list[Ticket]:
        carried = set(self._carried)
        now = time.monotonic()
        for ticket, at in [*self._failed.items()]:
            if at < now:
                del self._failed[ticket]
        found = self._waiting(self._queues, free + len(carried) + len(self._failed))
        return [each for each in found if each not in carried and each not in self._failed]

    def _begin(self, carry: Carry, ticket: Ticket, *, once: bool) -> threading.Thread:
        self._carried.add(ticket)
        # A thread that lives as long as the carry: the processes of work items die with it.
        thread = threading.Thread(
            target=self._carry, args=(carry, ticket, once), name=f"actum-run-{ticket.run_id}"
        )
        thread.start()
        return thread

    def _carry(self, carry: Carry, ticket: Ticket, once: bool) -> None:
        try:
            carry(ticket)
        except BaseException:
            # Its thread reports it. The ticket waits, and others are carried.
            self._failed[ticket] = float("inf") if once else time.monotonic() + _AGAIN_S
            raise
        finally:
            self._carried.discard(ticket)
            self._woken.set()
