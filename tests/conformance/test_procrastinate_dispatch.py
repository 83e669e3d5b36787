"""The dispatch of a fleet keeps the promises of every dispatch, and some of its own."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from dispatch_suite import QUEUE, Carried, DispatchConformance, bring_back, serving, until

from actum import Runtime
from actum.contract.model import RunnerKind
from actum.evidence.owner import current_owner
from actum.project import create
from actum.runs.contract.resolve import fresh
from actum.runs.dispatch.fleet_enqueue import engine_queue, enqueue
from actum.runs.dispatch.port import Dispatch, Ticket
from actum.runs.dispatch.procrastinate_dispatch import ProcrastinateDispatch
from actum.runs.ledger.ledger_store import Transaction
from actum.runs.ledger.postgres_link import PostgresLink
from actum.runs.ledger.postgres_store import PostgresStore
from actum.runs.new_run import new_run
from actum.runs.run_ledger import RunLedger
from actum.value import replace
from postgres import Server
from postgres.fleet import Fleet

#: A worker in a process of its own, which never ends its run by itself.
_WORKER = """
import sys, time
from actum import Runtime
from actum.evidence.owner import current_owner
from actum.runs.dispatch.fleet_enqueue import enqueue
from actum.runs.dispatch.procrastinate_dispatch import ProcrastinateDispatch
from actum.runs.ledger.postgres_link import PostgresLink
from actum.runs.ledger.postgres_store import PostgresStore
from actum.runs.run_ledger import RunLedger

with Runtime.open(sys.argv[1], pool=False) as rt:
    log = rt.services.ledger.log
    link = PostgresLink(sys.argv[2], home=log.origin)
    ledger = RunLedger(PostgresStore(link, log), rt.services.clock, enqueue)
    dispatch = ProcrastinateDispatch(link, queues=sys.argv[3:])
    def carry(ticket):
        assert ledger.claim(ledger.find(ticket.run_id), current_owner())
        print("claimed", ticket.run_id, flush=True)
        time.sleep(600)
    dispatch.serve(carry, places=1)
"""


class RolledBack(Exception):
    pass


class FleetBench:
    def __init__(self, rt: Runtime, fleet: Fleet) -> None:
        self.rt, self.fleet = rt, fleet
        self.links: list[PostgresLink] = []
        log = rt.services.ledger.log
        self.link = self.linked()
        self.ledger = RunLedger(PostgresStore(self.link, log), rt.services.clock, enqueue)

    def linked(self, login: str = "carrier", home: str = "") -> PostgresLink:
        url = self.fleet.url_of(login)
        link = PostgresLink(url, home=home or self.rt.services.ledger.log.origin, patience_s=60)
        self.links.append(link)
        return link

    def dispatch(self, *queues: str, dead_after_s: float = 30.0) -> ProcrastinateDispatch:
        return ProcrastinateDispatch(
            self.link, queues=queues or (QUEUE,), dead_after_s=dead_after_s, beat_every_s=1.0
        )

    def submit(
        self, *, folder: str = "/a", priority: int = 0, queue: str = QUEUE, fails: bool = False
    ) -> Ticket:
        run = new_run(
            "items: []",
            fresh({}, {}),
            workspace=Path(folder),
            requested_by="user:tester",
            priority=priority,
            at=datetime.now(UTC),
            signer=self.rt.keyring.signer,
        )
        run = replace(run, queue=queue)
        if not fails:
            self.ledger.create(run, "created")
            return run.ticket

        def fail(into: Transaction, ticket: Ticket) -> None:
            enqueue(into, ticket)
            raise RolledBack

        self.ledger._enqueue = fail
        with pytest.raises(RolledBack):
            self.ledger.create(run, "created")
        self.ledger._enqueue = enqueue
        return run.ticket

    @contextmanager
    def worker(self) -> Iterator[subprocess.Popen[str]]:
        """A worker that has claimed a run, in a process of its own."""
        argv = [str(self.rt.settings.root), self.fleet.url_of("carrier"), QUEUE]
        process = subprocess.Popen(
            [sys.executable, "-c", _WORKER, *argv], stdout=subprocess.PIPE, text=True
        )
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("claimed ")
            yield process
        finally:
            process.kill()
            process.communicate()

    def claim_and_die(self, ticket: Ticket) -> None:
        with self.worker():
            run = self.ledger.find(ticket.run_id)
            assert run is not None
            assert run.worker is not None

    def jobs(self) -> list[tuple[str, str]]:
        return self.fleet.execute(
            "SELECT queueing_lock, status::text FROM actum_engine.procrastinate_jobs ORDER BY id"
        )


class TestProcrastinateDispatch(DispatchConformance):
    @pytest.fixture
    def bench(self, tmp_path: Path, postgres: Server) -> Iterator[FleetBench]:
        folder = tmp_path / "project"
        create(folder, RunnerKind.LOCAL, by="user:tester", date="2026-11-19")
        with Runtime.open(folder, pool=False) as runtime:
            bench = FleetBench(runtime, Fleet(postgres))
            yield bench
            for link in bench.links:
                link.close()

    def test_it_is_a_dispatch(self, bench: FleetBench) -> None:
        dispatch: Dispatch = bench.dispatch()
        assert dispatch.served() == frozenset()

    def test_the_queue_of_a_project_has_one_name(self, bench: FleetBench) -> None:
        ((named,),) = bench.link.rows("SELECT engine_queue(?, ?)", (QUEUE, "actum/é"))
        assert named == engine_queue(QUEUE, "actum/é")
        assert len(f"procrastinate_queue_v1#{named}") < 64, "the longest name of a channel"

    def test_a_worker_serves_runs_of_its_own_project_only(self, bench: FleetBench) -> None:
        ticket = bench.submit()
        other = ProcrastinateDispatch(bench.linked(home="actum/elsewhere"), queues=(QUEUE,))
        carried = Carried(bench)
        other.serve(carried, places=1, once=True)
        assert carried.asked == []
        bench.dispatch().serve(carried, places=1, once=True)
        assert carried.claimed == [ticket]

    def test_a_killed_worker_is_absent_at_once(self, bench: FleetBench) -> None:
        ticket = bench.submit()
        with bench.worker() as process:
            observer = bench.dispatch()
            assert [*observer.absent([ticket])] == []
            assert observer.served() == {QUEUE}
            process.kill()
            process.wait()
            assert [*observer.absent([ticket])] == [ticket]
            assert observer.served() == frozenset()

    def test_a_worker_of_another_machine_is_dead_when_its_beat_is_old(
        self, bench: FleetBench
    ) -> None:
        ticket = bench.submit()
        run = bench.ledger.find(ticket.run_id)
        assert run is not None
        far = "00000000-boot pid:[1] 7 7"
        assert bench.ledger.claim(run, far) is not None
        observer = bench.dispatch(dead_after_s=60.0)
        assert [*observer.absent([ticket])] == [ticket], "it has no row"
        bench.link.execute(
            "INSERT INTO worker_nodes (node, owner, host, version, queues) VALUES"
            " ('n', ?, 'far', '0', '{q}')",
            (far,),
        )
        assert [*observer.absent([ticket])] == []
        assert observer.served() == {"q"}
        bench.link.execute("UPDATE worker_nodes SET beat_at = now() - interval '61 s'")
        # The server's start is newer than that, and counts as a beat.
        assert [*observer.absent([ticket])] == []
        assert [*bench.dispatch(dead_after_s=0.0).absent([ticket])] == [ticket]

    def test_a_run_whose_job_was_lost_is_carried_all_the_same(
        self, bench: FleetBench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("actum.runs.dispatch.procrastinate_dispatch._SWEEP_S", 0.2)
        ticket = bench.submit()
        bench.fleet.execute("SET search_path = actum_engine; DELETE FROM procrastinate_jobs")
        carried = Carried(bench)
        with serving(bench.dispatch(), carried):
            until(lambda: carried.claimed == [ticket])
        until(lambda: bench.jobs() == [])

    def test_a_run_behind_one_without_a_job_is_carried_after_it(self, bench: FleetBench) -> None:
        first, second = bench.submit(), bench.submit()
        run = bench.ledger.find(first.run_id)
        assert run is not None
        mine = bench.ledger.claim(run, "boot ns 1 1")  # as a command in the foreground does
        assert mine is not None
        asked = threading.Event()
        carried = Carried(bench)

        def carry(ticket: Ticket) -> None:
            carried(ticket)
            if ticket == second:
                asked.set()

        with serving(bench.dispatch(), carry):
            assert asked.wait(60)
            assert carried.claimed == []
            bench.fleet.execute("UPDATE agent_runs SET status = 'complete' WHERE fence > 0")
            until(lambda: carried.claimed == [second])

    @pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
    def test_a_run_that_its_worker_gave_up_comes_back(self, bench: FleetBench) -> None:
        ticket = bench.submit()
        raised = threading.Event()

        def carry(given: Ticket) -> None:
            run = bench.ledger.find(given.run_id)
            assert run is not None
            if raised.is_set():
                bench.ledger.claim(run, current_owner())
                return
            assert bench.ledger.claim(run, current_owner()) is not None
            raised.set()
            raise RuntimeError("as a body does whose database was away for too long")

        dispatch = bench.dispatch()
        with serving(dispatch, carry):
            assert raised.wait(60)
            until(lambda: [*dispatch.absent([ticket])] == [ticket])
            (again,) = bring_back(bench, dispatch)
            until(lambda: _fence(bench, again.run_id) == 2)

    def test_one_worker_reconciles_at_a_time(self, bench: FleetBench) -> None:
        one, two = bench.dispatch(), bench.dispatch()
        with one.turn() as mine, two.turn() as theirs:
            assert (mine, theirs) == (True, False)
        with two.turn() as theirs:
            assert theirs

    def test_workers_survive_a_crash_of_the_database(self, bench: FleetBench) -> None:
        """A hundred runs, and the server is killed while they are carried."""
        tickets = [bench.submit(folder=f"/{number % 10}") for number in range(100)]
        carried = Carried(bench)
        dispatches = [bench.dispatch(dead_after_s=10.0) for _ in range(2)]
        with serving(dispatches[0], carried, places=2), serving(dispatches[1], carried, places=2):
            until(lambda: len(carried.claimed) >= 20)
            bench.fleet.server.restart(away_s=1.0)
            until(lambda: _count(bench, "complete") == 100)
        assert sorted(carried.claimed, key=tickets.index) == tickets
        assert bench.fleet.execute("SELECT count(*) FROM run_receipts") == [(100,)]


def _fence(bench: FleetBench, run_id: str) -> int:
    run = bench.ledger.find(run_id)
    assert run is not None
    return run.fence


def _count(bench: FleetBench, status: str) -> int:
    ((count,),) = bench.link.rows("SELECT count(*) FROM agent_runs WHERE status = ?", (status,))
    return int(count)
