"""The port between the ledger of runs and what hands queued runs to workers.

The contract of every implementation, which `tests/conformance/dispatch_suite.py` checks:

1. *At least once.* A ticket that was enqueued is carried by some live worker that serves its queue.
   A ticket of a transaction that was rolled back never is.
2. *A carry may raise.* Other tickets are carried all the same.
3. *A ticket may be lost*: with its worker, or in the store of the implementation. Then `absent`
   names it, and the reconciler enqueues the run again under the next epoch.
4. *Two live carriers of one run are harmless.* The ledger's fence lets one of them write, so an
   implementation needs no lock that survives a network partition.
5. *Order.* Of the waiting tickets the one with the highest priority is carried first, then the
   oldest. A ticket whose folder has a run at work waits.

An implementation holds no state of a run. It may lose everything it has, except for that the
reconciler then needs a second.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from actum.runs.ledger.ledger_store import Transaction
from actum.value import value


@value
class Ticket:
    """One order to carry a run out. A run has a new epoch, and so a new ticket, after each submit,
    continue, hand-over and recovery."""

    run_id: str
    epoch: int
    queue: str  #: workers serve the queues of the contract versions that they support
    priority: int


#: Claims a run and carries it out; returns quietly if another worker has it.
Carry = Callable[[Ticket], None]
#: Adds a ticket in the caller's transaction, which also writes the row of the run. Needs no worker
#: and no connection of its own, so a client needs no right but to write that row.
Enqueue = Callable[[Transaction, Ticket], None]


class Changes(Protocol):
    """Waits for changes of the ledger."""

    def wait(self, most_s: float) -> None:
        """Return after a change, or after `most_s` seconds. May return early."""


class Dispatch(Protocol):
    """Hands tickets to this process, one of the workers. One object serves once."""

    def serve(self, carry: Carry, *, places: int, once: bool = False) -> None:
        """Call `carry` for tickets, each call in a thread of its own, at most `places` at a time.

        Returns after `stop`, when every call has returned; with `once` also when no ticket waits.
        """

    def stop(self) -> None:
        """Begin no further call. May be called from any thread, any number of times."""

    def wake(self) -> None:
        """There may be a ticket now. May be called from any thread, at any time."""

    def absent(self, tickets: Sequence[Ticket]) -> Sequence[Ticket]:
        """Those that neither wait nor are carried by a worker that is alive."""

    def give_up(self, ticket: Ticket) -> None:
        """This process has claimed the run, carries it no more and could not say so in the ledger:
        the ticket is absent from now on."""

    def served(self) -> frozenset[str]:
        """The queues that live workers serve."""

    def present(self) -> AbstractContextManager[None]:
        """Says that this process is alive without serving a queue: it carries out one run."""

    def turn(self) -> AbstractContextManager[bool]:
        """Whether this worker is the one that reconciles now."""

    def changes(self) -> AbstractContextManager[Changes]:
        """Learn of changes of the ledger, by any process."""
