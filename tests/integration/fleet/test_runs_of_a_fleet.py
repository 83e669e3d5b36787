"""Durable runs in PostgreSQL by the command line: submit, carry out, cancel, take over."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from work.shop import add_agent, item, make_project

from acceptance.terminal import COMMAND
from common.settings import add_settings
from hostile.jail import sleeps, wake
from postgres import Server
from postgres.fleet import Fleet

pytestmark = pytest.mark.sandbox


@pytest.fixture
def fleet(postgres: Server) -> Fleet:
    return Fleet(postgres)


class Place:
    """A project whose runs are in a fleet's database."""

    def __init__(self, folder: Path, fleet: Fleet, login: str = "carrier", more: str = "") -> None:
        self.root = make_project(folder)
        self.fleet = fleet
        add_settings(self.root, f'\n[runs]\nstore = "{fleet.url_of(login)}"\n{more}')
        self.file = self.root / "work.yaml"
        self.write(item())

    def write(self, *items: dict[str, Any]) -> None:
        self.file.write_text(yaml.safe_dump({"items": [*items]}))

    def actum(self, *words: str, code: int = 0, **environ: str) -> str:
        done = subprocess.run(
            [*COMMAND, *words],
            cwd=self.root,
            capture_output=True,
            text=True,
            env={**os.environ, **environ},
            timeout=120,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + (done.stderr if code else "")

    def submit(self) -> str:
        return self.actum("runs", "submit", "work.yaml", "--profile", "ci").strip()

    def status(self, run_id: str) -> dict[str, Any]:
        done = subprocess.run(
            [*COMMAND, "runs", "status", run_id, "--json"],
            cwd=self.root,
            capture_output=True,
            text=True,
            check=False,
        )
        found = json.loads(done.stdout)
        assert "runId" in found, done.stdout
        return dict(found)

    @contextmanager
    def worker(self) -> Iterator[subprocess.Popen[str]]:
        process = subprocess.Popen(
            [*COMMAND, "worker"], cwd=self.root, stderr=subprocess.PIPE, text=True
        )
        try:
            yield process
        finally:
            process.kill()
            process.communicate()


def until(found: Callable[[], bool], most_s: float = 90.0) -> None:
    deadline = time.monotonic() + most_s
    while not found():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_run_is_submitted_carried_out_and_shown(tmp_path: Path, fleet: Fleet) -> None:
    place = Place(tmp_path / "p", fleet)
    add_agent(place.root, "echo done > done.txt")
    run_id = place.submit()
    assert not (place.root / "done.txt").exists()
    place.actum("worker", "--once")
    assert (place.root / "done.txt").read_text() == "done\n"
    found = place.status(run_id[:8])
    assert (found["runId"], found["status"]) == (run_id, "complete")
    assert found["executionContract"]["verified"] == "OK"
    assert [step["status"] for step in found["steps"]] == ["success"]
    assert run_id in place.actum("runs", "list", "--status", "complete")
    assert "complete" in place.actum("runs", "watch", run_id)
    assert fleet.execute("SELECT status FROM agent_runs") == [("complete",)]
    assert "CONTRACT_MISMATCH" not in place.actum("verify", "--all")
    assert "RUN_COMPLETE" in place.actum("runs", "continue", run_id, code=3)
    assert f"run receipt {found['receiptId']}" in place.actum("verify", "--run", run_id)
    assert run_id in place.actum("receipts", "show", found["receiptId"])
    fleet.execute("UPDATE agent_runs SET current_state = repeat('0', 64)")
    assert "states" in place.actum("verify", "--run", run_id, code=1)


def test_the_foreground_and_the_continuation_use_the_same_ledger(
    tmp_path: Path, fleet: Fleet
) -> None:
    place = Place(tmp_path / "p", fleet)
    add_agent(place.root, "exit 1")
    place.actum("work", "work.yaml", code=1)
    ((run_id, status),) = fleet.execute("SELECT run_id, status FROM agent_runs")
    assert status == "failed"
    add_agent(place.root, "echo done > done.txt")
    place.actum("runs", "continue", run_id, "--wait")
    assert place.status(run_id)["status"] == "complete"
    assert fleet.execute("SELECT count(*) FROM run_receipts") == [(2,)]
    assert (place.root / "done.txt").exists()


def test_a_submitter_submits_and_cancels_and_is_no_worker(tmp_path: Path, fleet: Fleet) -> None:
    place = Place(tmp_path / "p", fleet, login="alice")
    add_agent(place.root, "echo done > done.txt")
    run_id = place.submit()
    assert "RUNS_STORE_DENIED" in place.actum("worker", "--once", code=3)
    assert not (place.root / "done.txt").exists()
    assert place.status(run_id)["status"] == "queued"
    place.actum("runs", "cancel", run_id)
    assert place.status(run_id)["status"] == "cancelled"
    place.actum("runs", "continue", run_id)
    assert place.status(run_id)["status"] == "queued"


def test_a_run_of_another_folder_is_shown_and_not_carried_out(tmp_path: Path, fleet: Fleet) -> None:
    here, there = Place(tmp_path / "here", fleet), Place(tmp_path / "there", fleet)
    for place in (here, there):
        add_agent(place.root, "echo done > done.txt")
    run_id = there.submit()
    here.actum("worker", "--once")
    assert run_id in here.actum("runs", "list")
    refused = here.actum("runs", "gate", run_id, code=3)
    assert "RUN_FOLDER_ELSEWHERE" in refused
    assert str(there.root) in refused
    assert "RUN_FOLDER_ELSEWHERE" in here.actum("runs", "continue", run_id, code=3)
    assert "RUN_FOLDER_ELSEWHERE" in here.actum("verify", "--run", run_id, code=3)
    assert there.status(run_id)["status"] == "queued"
    there.actum("worker", "--once")
    assert there.status(run_id)["status"] == "complete"
    assert not (here.root / "done.txt").exists()


def test_a_killed_worker_is_followed_by_another(tmp_path: Path, fleet: Fleet) -> None:
    place = Place(tmp_path / "p", fleet)
    nap = f"86{os.getpid()}"
    add_agent(place.root, f"sleep {nap}; echo done >> done.txt", number=1)
    add_agent(place.root, "echo two >> two.txt", number=2)
    place.write(item(id="zero", agent_id="agent-2"), item(id="one", dependencies=["zero"]))
    run_id = place.submit()
    with place.worker() as first:
        sleeps(nap)
        first.send_signal(signal.SIGKILL)
        first.wait()
    add_agent(place.root, "echo done >> done.txt", number=1)
    with place.worker():
        until(lambda: place.status(run_id)["status"] == "complete")
    steps = [(step["itemId"], step["status"]) for step in place.status(run_id)["steps"]]
    assert steps == [("zero", "success"), ("one", "interrupted"), ("one", "success")]
    assert (place.root / "two.txt").read_text() == "two\n"
    assert (place.root / "done.txt").read_text() == "done\n"
    assert fleet.execute("SELECT epoch, fence FROM agent_runs") == [(2, 2)]


def test_a_stopped_worker_loses_its_run_and_writes_nothing(tmp_path: Path, fleet: Fleet) -> None:
    place = Place(tmp_path / "p", fleet, more="dead_after_s = 8\n")
    nap = f"87{os.getpid()}"
    add_agent(place.root, f"sleep {nap}; echo done >> done.txt")
    run_id = place.submit()
    with place.worker() as zombie:
        sleeps(nap)
        zombie.send_signal(signal.SIGSTOP)
        with place.worker():
            until(lambda: fleet.execute("SELECT fence FROM agent_runs") == [(2,)])
            zombie.send_signal(signal.SIGCONT)
            until(lambda: place.status(run_id)["steps"][-1]["attempt"] == 2)
            sleeps(nap)
            wake(nap)
            until(lambda: place.status(run_id)["status"] == "complete")
    steps = [step["status"] for step in place.status(run_id)["steps"]]
    assert steps == ["interrupted", "success"]
    assert (place.root / "done.txt").read_text() == "done\n"


def test_a_password_is_a_secret_and_never_in_the_file(tmp_path: Path, fleet: Fleet) -> None:
    fleet.execute(
        "DO $$ BEGIN CREATE ROLE locked LOGIN PASSWORD 'open sesame';"
        " GRANT actum_submit TO locked; END $$"
    )
    more = 'password = "LEDGER"\n\n[secrets]\nLEDGER = { env = "LEDGER_PASSWORD" }\n'
    place = Place(tmp_path / "p", fleet, login="locked", more=more)
    place.actum("runs", "list", LEDGER_PASSWORD="open sesame")
    wrong = place.actum("runs", "list", LEDGER_PASSWORD="shut", code=3)
    assert "RUNS_STORE_DENIED" in wrong
    assert "runs.store" in wrong
    assert "shut" not in wrong
    assert "runs.password" in place.actum("runs", "list", code=3)
    with_password = fleet.url_of("locked:hunter2")
    settings = place.root / "actum.toml"
    settings.write_text(settings.read_text().replace(fleet.url_of("locked"), with_password))
    refused = place.actum("runs", "list", code=2)
    assert "runs.store" in refused
    assert "hunter2" not in refused


def test_a_store_that_was_not_approved_is_not_used(tmp_path: Path, fleet: Fleet) -> None:
    place = Place(tmp_path / "p", fleet)
    place.actum("runs", "list")
    settings = place.root / "actum.toml"
    settings.write_text(settings.read_text().replace("carrier@", "alice@"))
    assert "runs.store" in place.actum("runs", "list", code=3)


def test_the_owner_migrates_the_database(tmp_path: Path, postgres: Server) -> None:
    url = postgres.database()
    command = [sys.executable, "-m", "actum.doors.cli.main", "fleet", "migrate", "--store", url]
    for applied in (1, 0):
        done = subprocess.run(
            [*command, "--json"], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout) == {"version": 1, "applied": applied}
    with_password = url.replace("admin@", "admin:hunter2@")
    done = subprocess.run(
        [*command[:-1], with_password], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "hunter2" not in done.stdout + done.stderr


def test_a_database_that_does_not_answer_is_named_as_that(tmp_path: Path) -> None:
    with socket.socket() as bound:  # nothing listens there, and no other program can
        bound.bind(("127.0.0.1", 0))
        url = f"postgresql://owner@127.0.0.1:{bound.getsockname()[1]}/fleet"
        command = [*COMMAND, "fleet", "migrate", "--store", url]
        done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, timeout=120)
    assert done.returncode == 70
    assert "RUNS_STORE_UNREACHABLE" in done.stderr
    assert url.removeprefix("postgresql://owner@") in done.stderr
