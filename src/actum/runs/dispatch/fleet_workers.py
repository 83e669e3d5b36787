"""The workers of a fleet: a row with a beat for each, by the database's clock.

A worker of this machine that is gone is noticed at once, any other when its beat is old. A database
that was away took no beats, so a beat is never older than the server's start.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from actum.contract.ids import new_id
from actum.errors import ActumError
from actum.evidence.owner import current_owner, seen_alive
from actum.evidence.records.facts import ACTUM_VERSION
from actum.runs.ledger.postgres_link import PostgresLink

_AGE = "extract(epoch FROM now() - greatest(max(beat_at), pg_postmaster_start_time()))::float8"
_BEAT = (
    "INSERT INTO worker_nodes (node, owner, host, version, queues) VALUES (?, ?, ?, ?, ?)"
    " ON CONFLICT (node) DO UPDATE SET beat_at = now()"
)
#: Rows of workers that died long ago; nobody asks for them any more.
_FORGET = "DELETE FROM worker_nodes WHERE beat_at < now() - interval '1 day'"


class FleetWorkers:
    def __init__(self, link: PostgresLink, *, dead_after_s: float, beat_every_s: float) -> None:
        self._link = link
        self._dead_after_s = dead_after_s
        self._beat_every_s = beat_every_s

    @contextmanager
    def present(self, queues: Sequence[str]) -> Iterator[None]:
        """Says that this process is alive and serves `queues`."""
        node, over = new_id(), threading.Event()
        row = (node, current_owner(), socket.gethostname(), ACTUM_VERSION, [*queues])
        self._link.execute(_BEAT, row)
        self._link.execute(_FORGET)

        def beat() -> None:
            while not over.wait(self._beat_every_s):
                with suppress(ActumError):  # the next beat may succeed
                    self._link.execute(_BEAT, row)

        beating = threading.Thread(target=beat, name="actum-worker-beat", daemon=True)
        beating.start()
        try:
            yield
        finally:
            over.set()
            beating.join()
            with suppress(ActumError):  # the row gets old
                self._link.execute("DELETE FROM worker_nodes WHERE node = ?", (node,))

    def gone(self, owners: Sequence[str]) -> frozenset[str]:
        """Those of `owners` that are no live worker."""
        ages = dict(
            self._link.rows(
                f"SELECT owner, {_AGE} FROM worker_nodes WHERE owner = ANY(?) GROUP BY owner",  # noqa: S608 -- constants
                ([*owners],),
            )
        )
        return frozenset(each for each in owners if self._is_gone(each, ages.get(each)))

    def served(self) -> frozenset[str]:
        """The queues of live workers."""
        rows = self._link.rows(
            f"SELECT owner, queues, {_AGE} FROM worker_nodes GROUP BY node, owner, queues"  # noqa: S608 -- constants
        )
        return frozenset(
            queue
            for owner, queues, age in rows
            if not self._is_gone(owner, age)
            for queue in queues
        )

    def _is_gone(self, owner: str, age: float | None) -> bool:
        seen = seen_alive(owner)
        if seen is False:
            return True
        if age is None:
            return seen is None  # it had no row, or has left
        return age > self._dead_after_s
