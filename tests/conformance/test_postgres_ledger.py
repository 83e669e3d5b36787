"""The ledger in PostgreSQL keeps the promises of every ledger, and some of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
from ledger_suite import A, LedgerConformance, at_once, claimed, made, records, step_of, submitted

from actum import Runtime
from actum.contract.model import RunnerKind
from actum.errors import EvidenceUnavailable, Refused
from actum.project import create
from actum.runs.dispatch.engine_schema import engine_schema
from actum.runs.ledger import postgres_store
from actum.runs.ledger.fleet_schema import migrate
from actum.runs.ledger.postgres_link import Connection, PostgresLink
from actum.runs.ledger.postgres_store import PostgresStore
from actum.runs.run_ledger import RunLedger
from actum.runs.run_status import RunStatus
from postgres import Server
from postgres.fleet import Fleet

_ENGINE = "actum_engine.procrastinate"
#: What a login of another role, or of another run, is refused.
_DENIED = (
    ("alice", "UPDATE agent_runs SET status = 'complete'"),
    ("alice", "UPDATE agent_runs SET status = 'running'"),
    ("alice", "UPDATE agent_runs SET fence = 9"),
    ("alice", "UPDATE agent_runs SET source = 'items: []'"),
    ("alice", "UPDATE agent_runs SET owner = 'bob'"),
    ("alice", "DELETE FROM agent_runs"),
    ("alice", "TRUNCATE agent_runs CASCADE"),
    ("alice", "UPDATE agent_steps SET status = 'success'"),
    ("alice", f"SELECT * FROM {_ENGINE}_jobs"),
    ("alice", f"INSERT INTO {_ENGINE}_jobs (queue_name, task_name) VALUES ('q', 't')"),
    ("alice", f"DELETE FROM {_ENGINE}_jobs"),
    ("alice", f"SELECT {_ENGINE}_finish_job_v1(1, 'failed', true)"),
    ("alice", "SELECT actum.enqueue_lost()"),
    ("alice", ("INSERT INTO worker_nodes (node, owner, host, version, queues)"
     " VALUES ('n', 'o', 'h', 'v', '{}')")),
    ("bob", ("INSERT INTO run_contracts SELECT run_id, 2, '{}', '', 'created', '', ''"
     " FROM agent_runs")),
    ("bob", "INSERT INTO run_decisions SELECT run_id, 'd', '{}', '' FROM agent_runs"),
    ("bob", ("INSERT INTO run_receipts (receipt_id, run_id, sha256, envelope)"
     " SELECT 'r', run_id, '', '{}' FROM agent_runs")),
    ("bob", "INSERT INTO run_log SELECT 'l', 1, run_id, '' FROM agent_runs"),
    ("reader", "UPDATE agent_runs SET cancel_by = 'x'"),
    ("reader", "SELECT actum.enqueue_run('x', 1)"),
    ("carrier", "DELETE FROM agent_runs"),
    ("carrier", "TRUNCATE agent_runs CASCADE"),
)  # fmt: skip


def _no_queue(_into: object, _ticket: object) -> None:
    """These tests have no worker."""


class PostgresBench:
    rows_field = "rows_elsewhere"

    def __init__(self, rt: Runtime, second: Runtime, fleet: Fleet) -> None:
        self.rt = rt
        self.fleet = fleet
        self.links: list[PostgresLink] = []
        self.ledger = self.ledger_of(rt)
        self.other = self.ledger_of(second)

    def ledger_of(self, rt: Runtime, login: str = "carrier", home: str = "") -> RunLedger:
        log = rt.services.ledger.log
        link = PostgresLink(self.fleet.url_of(login), home=home or log.origin)
        self.links.append(link)
        return RunLedger(PostgresStore(link, log), rt.services.clock, _no_queue)

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        return self.fleet.execute(sql)

    def table(self, name: str) -> list[dict[str, Any]]:
        return self.fleet.table(name)

    def attack(self, sql: str) -> None:
        self.fleet.execute(sql)


class TestPostgresLedger(LedgerConformance):
    @pytest.fixture
    def bench(self, tmp_path: Path, postgres: Server) -> Iterator[PostgresBench]:
        folder = tmp_path / "project"
        create(folder, RunnerKind.LOCAL, by="user:tester", date="2026-11-19")
        with Runtime.open(folder, pool=False) as rt, Runtime.open(folder, pool=False) as second:
            bench = PostgresBench(rt, second, Fleet(postgres))
            yield bench
            for link in bench.links:
                link.close()

    # The audit log is another database

    def test_every_stored_write_names_its_record(self, bench: PostgresBench) -> None:
        run = claimed(bench)
        bench.ledger.set_status(run, RunStatus.COMPLETE)
        logged = {row["seq"]: row for row in bench.table("run_log")}
        found = bench.rt.database.rows("SELECT seq, record FROM audit ORDER BY seq")
        stored = [(seq, record) for seq, record in found if json.loads(record)["kind"] == "RUN"]
        assert [*logged] == [seq for seq, _ in stored]
        assert len(stored) == 3
        assert {row["log"] for row in logged.values()} == {bench.rt.services.ledger.log.origin}

    def test_a_crash_before_the_commit_leaves_a_record_and_no_row(
        self, bench: PostgresBench
    ) -> None:
        run = made(bench)
        program = """
import json, os, sys
from actum import Runtime
from actum.runs.ledger import postgres_store
from actum.runs.ledger.postgres_link import PostgresLink
from actum.runs.model import RUN_COLUMNS, run_from
from actum.runs.run_ledger import RunLedger
with Runtime.open(sys.argv[1], pool=False) as rt:
    log = rt.services.ledger.log
    link = PostgresLink(sys.argv[2], home=log.origin)
    store = postgres_store.PostgresStore(link, log)
    ledger = RunLedger(store, rt.services.clock, lambda into, ticket: None)
    postgres_store._PostgresTransaction.execute = lambda self, sql, values=(): (
        os._exit(7) if "run_log" in sql else postgres_store.executed(self._connection, sql, values)
    )
    ledger.create(run_from(tuple(json.loads(sys.stdin.read()))), "created")
"""
        row = json.dumps([getattr(run, name) for name in postgres_columns()])
        url = bench.fleet.url_of("carrier")
        project = str(bench.rt.settings.root)
        died = subprocess.run(
            [sys.executable, "-c", program, project, url],
            input=row,
            text=True,
            capture_output=True,
            check=False,
        )
        assert died.returncode == 7, died.stderr
        assert bench.ledger.find(run.run_id) is None
        assert [each["event"] for each in records(bench)] == ["submitted"]
        assert bench.table("run_log") == []
        bench.ledger.create(run, "created")
        assert bench.ledger.find(run.run_id) is not None
        assert [row["seq"] for row in bench.table("run_log")] == [2]
        verified = subprocess.run(
            [str(Path(sys.executable).with_name("actum")), "--home", project, "verify", "--all"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert verified.returncode == 0, verified.stdout + verified.stderr

    def test_a_write_whose_answer_was_lost_is_not_written_again(
        self, bench: PostgresBench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        original = postgres_store._Write.__call__
        lost: list[bool] = []

        def losing(self: Any, connection: Connection) -> Any:
            found = original(self, connection)
            if not lost:
                lost.append(True)
                connection.close()
                raise psycopg.OperationalError("the connection was lost after its COMMIT")
            return found

        monkeypatch.setattr(postgres_store._Write, "__call__", losing)
        run = submitted(bench)
        assert lost
        assert len(bench.table("agent_runs")) == len(records(bench)) == 1
        mine = bench.ledger.claim(run, A)
        assert mine is not None
        bench.ledger.start_step(mine, step_of(mine))

    def test_a_database_that_restarts_is_waited_for(self, bench: PostgresBench) -> None:
        run = claimed(bench)
        bench.fleet.server.restart(away_s=0.5)
        bench.ledger.start_step(run, step_of(run))
        assert len(bench.other.steps(run.run_id)) == 1

    def test_a_database_that_is_away_is_a_fault_with_a_remedy(self, bench: PostgresBench) -> None:
        url = "postgresql://carrier:secret@127.0.0.1:1/fleet"
        link = PostgresLink(url, home="h", patience_s=0.2)
        with pytest.raises(EvidenceUnavailable, match=r"runs\.store") as raised:
            link.rows("SELECT 1")
        assert "secret" not in str(raised.value)
        link.close()

    def test_runs_of_another_project_are_not_here(self, bench: PostgresBench) -> None:
        far = bench.ledger_of(bench.rt, home="actum/elsewhere")
        run = submitted(bench)
        theirs = far.create(made(bench), "created", claim_by=A)
        assert theirs.status is RunStatus.RUNNING, "a folder of another machine is another folder"
        assert bench.ledger.is_here(run.run_id)
        assert not bench.ledger.is_here(theirs.run_id)
        assert bench.ledger.claim(run, A) is not None

    # Rights

    def test_a_submitter_submits_cancels_and_continues_runs_of_its_own(
        self, bench: PostgresBench
    ) -> None:
        alice = bench.ledger_of(bench.rt, "alice")
        run = alice.create(made(bench), "created")
        ended = alice.cancel(run.run_id, "user:alice")
        assert ended is not None
        assert ended.status is RunStatus.CANCELLED
        again = alice.requeue(ended)
        assert again is not None
        bob = bench.ledger_of(bench.rt, "bob")
        assert bob.find(run.run_id) == again
        assert bob.cancel(run.run_id, "user:bob") is None
        assert bench.ledger.find(run.run_id) == again
        taken = bench.ledger.claim(again, A)
        assert taken is not None
        asked = alice.cancel(run.run_id, "user:alice")
        assert asked is not None
        assert asked.cancel_by == "user:alice"

    def test_other_rights_are_missing(self, bench: PostgresBench) -> None:
        bench.ledger_of(bench.rt, "alice").create(made(bench), "created")
        before = bench.table("agent_runs")
        for login, sql in _DENIED:
            assert bench.fleet.execute("SELECT count(*) FROM agent_runs", login) == [(1,)]
            denied = (psycopg.errors.InsufficientPrivilege, psycopg.errors.RaiseException)
            with pytest.raises(denied):
                bench.fleet.execute(sql, login)
            assert bench.table("agent_runs") == before, sql
        allowed = "UPDATE agent_runs SET cancel_by = 'user:alice'"
        bench.fleet.execute(allowed, "alice")  # the control: what its owner may do
        assert bench.table("agent_runs") != before
        bench.fleet.execute("SELECT * FROM actum_engine.procrastinate_jobs", "carrier")

    def test_rows_of_another_submitter_are_not_changed(self, bench: PostgresBench) -> None:
        bench.ledger_of(bench.rt, "alice").create(made(bench), "created")
        before = bench.table("agent_runs")
        bench.fleet.execute("UPDATE agent_runs SET cancel_by = 'user:bob'", "bob")
        assert bench.table("agent_runs") == before
        bench.fleet.execute("UPDATE agent_runs SET cancel_by = 'user:alice'", "alice")
        assert bench.table("agent_runs") != before

    def test_a_login_without_a_role_is_refused_with_a_remedy(self, bench: PostgresBench) -> None:
        bench.fleet.execute("DO $$ BEGIN CREATE ROLE nobody_yet LOGIN; EXCEPTION WHEN"
                            " duplicate_object THEN NULL; END $$")  # fmt: skip
        with pytest.raises(Refused) as raised:
            bench.ledger_of(bench.rt, "nobody_yet").listed()
        assert raised.value.code == "RUNS_STORE_NOT_READY"
        assert "actum_submit" in str(raised.value)
        assert bench.ledger_of(bench.rt, "reader").listed() == ()

    # Migration

    def test_a_database_is_migrated_once_and_only_by_its_command(
        self, bench: PostgresBench
    ) -> None:
        empty = PostgresLink(bench.fleet.server.database(), home="h")
        with pytest.raises(Refused) as raised:
            RunLedger(PostgresStore(empty, bench.rt.services.ledger.log), lambda: None, _no_queue
                      ).listed()  # type: ignore[arg-type]  # fmt: skip
        assert raised.value.code == "RUNS_STORE_NOT_READY"
        found = at_once(*[lambda: migrate(empty, engine_schema())] * 3)
        assert sorted(found) == [0, 0, 1]
        empty.execute("INSERT INTO actum.schema_versions (version) VALUES (99)")
        with pytest.raises(Refused, match="Upgrade Actum") as raised:
            migrate(empty, engine_schema())
        assert raised.value.code == "RUNS_STORE_NEWER"
        empty.close()


def postgres_columns() -> tuple[str, ...]:
    from actum.runs.model import RUN_COLUMNS

    return RUN_COLUMNS
