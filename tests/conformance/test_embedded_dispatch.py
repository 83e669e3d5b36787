"""The dispatch of one machine keeps the promises of every dispatch, and some of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from dispatch_suite import QUEUE, Carried, DispatchConformance, bring_back, serving, until

from actum import Runtime
from actum.contract.model import RunnerKind
from actum.evidence.owner import owner_of
from actum.project import create
from actum.runs import run_ledger
from actum.runs.contract.resolve import fresh
from actum.runs.dispatch import embedded
from actum.runs.dispatch.embedded import EmbeddedDispatch
from actum.runs.dispatch.port import Dispatch, Ticket
from actum.runs.new_run import new_run
from actum.value import replace

#: A worker in a process of its own, which never ends its run by itself.
_WORKER = """
import sys, time
from actum import Runtime
from actum.evidence.owner import current_owner

with Runtime.open(sys.argv[1], pool=False) as rt:
    dispatch = rt.runs.dispatch()
    def carry(ticket):
        assert rt.runs.ledger.claim(rt.runs.get(ticket.run_id), current_owner())
        print("claimed", flush=True)
        time.sleep(600)
    dispatch.serve(carry, places=1)
"""


class RolledBack(Exception):
    pass


class EmbeddedBench:
    def __init__(self, rt: Runtime) -> None:
        self.rt = rt
        self.ledger = rt.runs.ledger
        self.home = rt.settings.home

    def dispatch(self, *queues: str, dead_after_s: float = 30.0) -> EmbeddedDispatch:
        return EmbeddedDispatch(
            self.home,
            queues=queues or (QUEUE,),
            waiting=self.ledger.waiting,
            owner_of=self.ledger.owner_of,
            dead_after_s=dead_after_s,
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

        def fail(_page: object, _ticket: Ticket) -> None:
            raise RolledBack

        self.ledger._enqueue = fail
        with pytest.raises(RolledBack):
            self.ledger.create(run, "created")
        self.ledger._enqueue = embedded.enqueue
        return run.ticket

    def claim_and_die(self, ticket: Ticket) -> None:
        worker = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        run = self.ledger.find(ticket.run_id)
        assert run is not None
        assert self.ledger.claim(run, owner_of(worker.pid)) is not None
        worker.kill()
        worker.communicate()


@pytest.fixture
def rt(tmp_path: Path) -> Iterator[Runtime]:
    folder = tmp_path / "project"
    create(folder, RunnerKind.LOCAL, by="user:tester", date="2026-11-18")
    with Runtime.open(folder, pool=False) as runtime:
        yield runtime


class TestEmbeddedDispatch(DispatchConformance):
    @pytest.fixture
    def bench(self, rt: Runtime) -> EmbeddedBench:
        return EmbeddedBench(rt)

    def test_it_is_a_dispatch(self, bench: EmbeddedBench) -> None:
        dispatch: Dispatch = bench.dispatch()
        assert dispatch.served() == frozenset()

    def test_a_killed_worker_is_absent_at_once(self, bench: EmbeddedBench) -> None:
        with self.worker(bench) as (ticket, process):
            observer = bench.dispatch()
            assert observer.absent([ticket]) == []
            process.kill()
            process.wait()
            assert observer.absent([ticket]) == [ticket]
            assert observer.served() == frozenset()

    def test_a_stopped_worker_is_absent_when_its_beat_is_old(self, bench: EmbeddedBench) -> None:
        with self.worker(bench) as (ticket, process):
            patient, hasty = bench.dispatch(), bench.dispatch(dead_after_s=5.0)
            time.sleep(5.5)  # its control: a worker that runs beats
            assert hasty.absent([ticket]) == []
            process.send_signal(signal.SIGSTOP)
            until(lambda: hasty.absent([ticket]) == [ticket])
            assert patient.absent([ticket]) == []
            assert QUEUE in patient.served()
            carried = Carried(bench)
            with serving(hasty, carried):
                (again,) = bring_back(bench, hasty)
                until(lambda: carried.claimed == [again.ticket])
            process.send_signal(signal.SIGCONT)

    def worker(
        self, bench: EmbeddedBench
    ) -> AbstractContextManager[tuple[Ticket, subprocess.Popen[str]]]:
        @contextmanager
        def started() -> Iterator[tuple[Ticket, subprocess.Popen[str]]]:
            ticket = bench.submit()
            process = subprocess.Popen(
                [sys.executable, "-c", _WORKER, str(bench.home.parent)],
                stdout=subprocess.PIPE,
                text=True,
            )
            try:
                assert process.stdout is not None
                assert process.stdout.readline() == "claimed\n"
                yield ticket, process
            finally:
                process.kill()
                process.communicate()

        return started()

    def test_ten_thousand_waiting_runs_are_not_sorted_for_each_look(
        self, bench: EmbeddedBench
    ) -> None:
        sql = run_ledger._NEXT.format(queues="?")
        plan = bench.rt.database.rows(f"EXPLAIN QUERY PLAN {sql}", ("/a", QUEUE))
        words = " ".join(str(row[-1]) for row in plan)
        assert "waiting_runs" in words
        assert "TEMP B-TREE" not in words

    def test_a_file_of_a_dead_worker_is_removed(self, bench: EmbeddedBench) -> None:
        with self.worker(bench) as (_ticket, process):
            assert len(os.listdir(bench.home / "workers")) == 1
            process.kill()
            process.wait()
            assert bench.dispatch().served() == frozenset()
            assert os.listdir(bench.home / "workers") == []
