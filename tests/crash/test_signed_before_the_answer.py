"""A result that was handed out has a signed receipt on the disk; the public key proves it."""

from __future__ import annotations

import json
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from actum import Runtime
from actum.contract.model import RunnerKind
from actum.project import create
from actum.store import dsse
from actum.store.frames import unpacked
from actum.store.journal import FILE_NAME
from actum.store.keys import PublicKey
from common.journals import HEAD, places

pytestmark = pytest.mark.sandbox

#: Has a result, says which, and is killed before it can do anything else.
ANSWERED_AND_KILLED = """
import json, os, signal, sys
from actum import Runtime
rt = Runtime.open(sys.argv[1], pool=sys.argv[2] == "pool")
result = rt.exec("shell", stdin=sys.argv[3], cwd=sys.argv[1])
os.write(1, json.dumps([result.execution_id, result.receipt_id, result.outcome]).encode())
os.kill(os.getpid(), signal.SIGKILL)
"""


def _signed_in_the_journal(home: Path) -> dict[str, dict[str, Any]]:
    """Statements by receipt, read with the public key alone: no MAC, no database."""
    pems = [file.read_text() for file in (home / "keys").glob("*.pub")]
    keys = [PublicKey.from_pem(pem, where="a public key") for pem in pems]
    trusted = {key.keyid: key for key in keys}
    journal = (home / FILE_NAME).read_bytes()
    found = {}
    for begin, end in places(home):
        for row in unpacked(journal[begin + HEAD : end]).ended:
            envelope = json.loads(row["envelope"])
            found[row["receipt_id"]] = json.loads(dsse.verify(envelope, trusted))
    return found


@pytest.mark.parametrize("pool", ["pool", "no pool"])
@pytest.mark.parametrize(("script", "outcome"), [("echo x", "SUCCEEDED"), ("exit 3", "TOOL_ERROR")])
def test_a_process_that_is_killed_when_it_has_its_result_leaves_the_signed_receipt(
    tmp_path: Path, pool: str, script: str, outcome: str
) -> None:
    tmp_path.chmod(0o755)
    project = tmp_path / "project"
    project.mkdir()
    create(project, RunnerKind.LOCAL, by="user:maker", date="2026-11-17")
    program = [sys.executable, "-c", ANSWERED_AND_KILLED, str(project), pool, script]
    killed = subprocess.run(program, stdout=subprocess.PIPE, timeout=60, check=False)
    assert killed.returncode == -signal.SIGKILL
    execution_id, receipt_id, told = json.loads(killed.stdout)
    assert told == outcome
    home = project / ".actum"
    connection = sqlite3.connect(f"file:{home}/actum.db?mode=ro", uri=True)
    assert connection.execute("SELECT count(*) FROM receipts").fetchone() == (0,)
    connection.close()
    statement = _signed_in_the_journal(home)[receipt_id]
    assert statement["predicate"]["execution_id"] == execution_id
    assert statement["predicate"]["outcome"] == outcome
    # Writing it out moves the very bytes.
    with Runtime.open(project, pool=False) as rt:
        kept = rt.services.receipts.find(receipt_id)
        assert json.loads(dsse.verify(kept.envelope, rt.keyring.trusted)) == statement
        assert [found for found in rt.verifier.verify_all() if not found.passed] == []
