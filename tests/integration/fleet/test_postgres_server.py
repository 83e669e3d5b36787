"""The server that the tests of the fleet use: a real one, for one run of tests."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psycopg
import pytest

from postgres import Server

_STARTED = """
from postgres import Server
server = Server()
print(server.folder, server._process.pid, flush=True)
input()
"""


def test_a_crash_of_the_server_keeps_what_was_committed(postgres: Server):
    url = postgres.database()
    with psycopg.connect(url) as connection:
        connection.execute("CREATE TABLE kept (number int)")
        connection.execute("INSERT INTO kept VALUES (1)")
        connection.commit()
        connection.execute("INSERT INTO kept VALUES (2)")
        postgres.restart()
        with pytest.raises(psycopg.OperationalError):
            connection.execute("SELECT 1")
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT number FROM kept").fetchall() == [(1,)]


def test_it_runs_as_an_ordinary_user_in_a_folder_of_its_own(postgres: Server):
    assert postgres.data.stat().st_uid != 0
    assert "actum-postgres-" in str(postgres.data)


def test_it_dies_with_the_process_that_started_it():
    paths = os.pathsep.join([str(Path(__file__).resolve().parents[2])])
    process = subprocess.Popen(
        [sys.executable, "-c", _STARTED],
        env={**os.environ, "PYTHONPATH": paths},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    folder, pid = process.stdout.readline().split()
    status = Path(f"/proc/{pid}/cmdline")
    assert "postgres" in status.read_text()
    process.kill()
    process.communicate()
    deadline = time.monotonic() + 30
    while status.exists() and status.read_bytes():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    subprocess.run(["rm", "-rf", folder], check=True)
