"""The dispatch of a fleet: Procrastinate in the ledger's PostgreSQL. No other module imports it.

A job is a ticket. One engine worker for each place, so that a place whose connection was lost is
begun again without waiting for the carries of the others. A job whose engine worker is gone, and a
queued run without a job, are found by the sweep.

An engine worker may be gone while its carry goes on: then the job may be given out again, and the
ledger refuses the second claim.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from typing import Any

from procrastinate import App, PsycopgConnector, RetryStrategy
from procrastinate.exceptions import ConnectorException
from procrastinate.jobs import DeleteJobCondition, Job, Status

from actum.errors import ActumError
from actum.evidence.owner import current_owner
from actum.runs.dispatch.fleet_enqueue import engine_queue
from actum.runs.dispatch.fleet_workers import FleetWorkers
from actum.runs.dispatch.port import Carry, Changes, Ticket
from actum.runs.ledger.postgres_link import LOST_CONNECTION, PostgresLink
from actum.runs.ledger.postgres_store import CHANNEL
from actum.runs.run_status import AT_WORK, RunStatus

_TASK = "actum_run"
_AGAIN_S = 1
_SWEEP_S = 2.0
#: Queued runs without a job are looked for in one sweep of so many.
_LOST_EVERY = 5
_CONNECT_AGAIN_S = 0.5
_POOL_S = 10.0
_CONNECTIONS = 3  #: of a place at most: to take jobs, to end them, to beat
#: The lock of the one worker that reconciles.
_RECONCILING = 0x616374756E

for _name in ("procrastinate", "psycopg.pool"):
    # Lost connections are expected; a program that wants their messages adds its own handler.
    logging.getLogger(_name).addHandler(logging.NullHandler())


class _StillWaiting(Exception):
    """The run is queued as before: its folder was busy, or this worker is about to leave."""


class ProcrastinateDispatch:
    """Implements `port.Dispatch`."""

    def __init__(
        self,
        link: PostgresLink,
        *,
        queues: Sequence[str],
        dead_after_s: float = 30.0,
        beat_every_s: float = 5.0,
    ) -> None:
        self._link = link
        self._queues = tuple(queues)
        self._dead_after_s = dead_after_s
        self._beat_every_s = beat_every_s
        self._workers = FleetWorkers(link, dead_after_s=dead_after_s, beat_every_s=beat_every_s)
        self._stopped = threading.Event()
        self._places: list[asyncio.Task[None]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = threading.Lock()
        #: Tickets whose carry raised in this process: nobody carries them.
        self._given_up: set[Ticket] = set()

    # Implements `port.Dispatch`

    def serve(self, carry: Carry, *, places: int, once: bool = False) -> None:
        with self._workers.present(self._queues):
            asyncio.run(self._serve(carry, places, once))

    def stop(self) -> None:
        with self._lock:
            if self._stopped.is_set():
                return  # a second cancel would not wait for the carries
            self._stopped.set()
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._cancel)

    def wake(self) -> None:
        """Nothing: PostgreSQL notifies the workers of each new job."""

    def absent(self, tickets: Sequence[Ticket]) -> Sequence[Ticket]:
        if not tickets:
            return []
        owners = dict(
            self._link.rows(
                "SELECT run_id, worker FROM agent_runs"
                " WHERE worker IS NOT NULL AND run_id = ANY(?)",
                ([each.run_id for each in tickets],),
            )
        )
        gone = self._workers.gone([*owners.values()])
        return [each for each in tickets if self._is_absent(each, owners.get(each.run_id), gone)]

    def give_up(self, ticket: Ticket) -> None:
        self._given_up.add(ticket)

    def served(self) -> frozenset[str]:
        return self._workers.served()

    def present(self) -> AbstractContextManager[None]:
        return self._workers.present(())

    def turn(self) -> AbstractContextManager[bool]:
        return self._link.turn(_RECONCILING)

    @contextmanager
    def changes(self) -> Iterator[Changes]:
        with self._link.listening(CHANNEL) as listener:
            yield listener

    # Parts

    def _is_absent(self, ticket: Ticket, owner: str | None, gone: frozenset[str]) -> bool:
        if owner is None:
            return False  # it waits; a job that was lost is enqueued again by the sweep
        return owner in gone or (owner == current_owner() and ticket in self._given_up)

    async def _serve(self, carry: Carry, places: int, once: bool) -> None:
        with self._lock:
            if self._stopped.is_set():
                return
            self._loop = asyncio.get_running_loop()
            self._loop.set_exception_handler(_report)
            count, each = (1, places) if once else (places, 1)
            self._places = [
                asyncio.create_task(self._place(carry, each, once=once)) for _ in range(count)
            ]
        sweeping = asyncio.create_task(self._sweep(carry))
        try:
            ended = await asyncio.gather(*self._places, return_exceptions=True)
        finally:
            with self._lock:
                self._loop = None
            sweeping.cancel()
            await asyncio.gather(sweeping, return_exceptions=True)
        for error in ended:
            if isinstance(error, Exception):
                raise error

    def _cancel(self) -> None:
        # The engine's way to stop: it takes no further job and waits for the current ones.
        for place in self._places:
            place.cancel()

    async def _place(self, carry: Carry, concurrency: int, *, once: bool) -> None:
        """Carry tickets until it is stopped, also after the database was away."""
        if once:
            await self._clear(carry)
        while not self._stopped.is_set():
            try:
                async with self._app(carry).open_async() as app:
                    await app.run_worker_async(
                        queues=[engine_queue(each, self._link.home) for each in self._queues],
                        concurrency=concurrency,
                        wait=not once,
                        listen_notify=not once,
                        install_signal_handlers=False,
                        delete_jobs=DeleteJobCondition.ALWAYS,
                        fetch_job_polling_interval=_AGAIN_S,
                        update_heartbeat_interval=self._beat_every_s,
                        stalled_worker_timeout=self._dead_after_s,
                    )
            except (ConnectorException, *LOST_CONNECTION):
                if once:
                    raise
            if once:
                return
            await asyncio.sleep(_CONNECT_AGAIN_S)

    def _app(self, carry: Carry) -> App:
        kwargs = {**self._link.parameters(), "options": "-c search_path=actum_engine"}
        connector = PsycopgConnector(
            conninfo=self._link.url,
            kwargs=kwargs,
            min_size=1,
            max_size=_CONNECTIONS,
            timeout=_POOL_S,
        )
        app = App(connector=connector)

        @app.task(name=_TASK, retry=RetryStrategy(wait=_AGAIN_S))
        async def _carry(run_id: str, epoch: int, queue: str, priority: int) -> None:
            ticket = Ticket(run_id=run_id, epoch=epoch, queue=queue, priority=priority)
            await self._carried(carry, ticket)

        return app

    async def _carried(self, carry: Carry, ticket: Ticket) -> None:
        loop = asyncio.get_running_loop()
        over: asyncio.Future[bool] = loop.create_future()

        def run() -> None:
            waits = True
            try:
                carry(ticket)
                waits = self._is_waiting(ticket)
            except BaseException:
                self._given_up.add(ticket)
                raise  # its thread reports it
            finally:
                loop.call_soon_threadsafe(over.set_result, waits)

        # A thread that lives as long as the carry: the processes of work items die with it.
        threading.Thread(target=run, name=f"actum-run-{ticket.run_id}").start()
        if await over:
            raise _StillWaiting

    def _is_waiting(self, ticket: Ticket) -> bool:
        sql = "SELECT 1 FROM agent_runs WHERE run_id = ? AND epoch = ? AND status = 'queued'"
        return bool(self._link.rows(sql, (ticket.run_id, ticket.epoch)))

    async def _sweep(self, carry: Carry) -> None:
        """End the jobs of runs that moved on, give out those of lost engine workers again, and
        enqueue queued runs without a job."""
        over: frozenset[int] = frozenset()
        number = 0
        while True:
            await asyncio.sleep(_SWEEP_S)
            number += 1
            try:
                async with self._app(carry).open_async() as app:
                    over = await self._swept(app, over)
                if number % _LOST_EVERY == 0:
                    await asyncio.to_thread(self._link.rows, "SELECT enqueue_lost()")
            except (ConnectorException, ActumError, *LOST_CONNECTION):
                over = frozenset()  # the next sweep may succeed

    async def _clear(self, carry: Carry) -> None:
        """A dead worker's job holds back the runs of its folder: do not wait for a sweep."""
        async with self._app(carry).open_async() as app:
            over = await self._swept(app, frozenset())
            await self._swept(app, over)
        await asyncio.to_thread(self._link.rows, "SELECT enqueue_lost()")

    async def _swept(self, app: App, before: frozenset[int]) -> frozenset[int]:
        """Returns the jobs whose run has moved on. The second sweep in a row that finds one ends
        it: the carry of a live worker ends its own job within that time."""
        jobs = app.job_manager
        doing = [*await jobs.list_jobs_async(task=_TASK, status=Status.DOING.value)]
        if not doing:
            return frozenset()
        stalled = {
            each.id
            for each in await jobs.get_stalled_jobs(
                task_name=_TASK, seconds_since_heartbeat=self._dead_after_s
            )
        }
        now = await asyncio.to_thread(self._now, doing)
        over = frozenset(
            each.id for each in doing if each.id is not None and _moved_on(each.task_kwargs, now)
        )
        for job_id in over & before:
            await jobs.finish_job_by_id_async(job_id, Status.FAILED, delete_job=True)
        for each in doing:
            found = now.get(str(each.task_kwargs["run_id"]))
            is_queued = found is not None and found[1] == RunStatus.QUEUED
            if each.id is not None and each.id in stalled - over and is_queued:
                await jobs.retry_job_by_id_async(each.id, retry_at=datetime.now(UTC))
        return over - before

    def _now(self, doing: Sequence[Job]) -> dict[str, tuple[int, str]]:
        ids = [str(each.task_kwargs["run_id"]) for each in doing]
        rows = self._link.rows(
            "SELECT run_id, epoch, status FROM agent_runs WHERE run_id = ANY(?)", (ids,)
        )
        return {run_id: (epoch, status) for run_id, epoch, status in rows}


def _report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """A job whose end could not be stored is found by the sweep."""
    if not isinstance(context.get("exception"), ConnectorException):
        loop.default_exception_handler(context)


def _moved_on(ticket: dict[str, Any], now: dict[str, tuple[int, str]]) -> bool:
    """Whether a job is for an earlier epoch of its run, or the run has ended."""
    found = now.get(str(ticket["run_id"]))
    if found is None or found[0] != ticket["epoch"]:
        return True
    return found[1] != RunStatus.QUEUED and found[1] not in AT_WORK
