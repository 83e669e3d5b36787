"""Another version of Actum has written here: said in words, and nothing is changed."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from actum import Runtime
from actum.errors import EvidenceUnavailable
from actum.registry.lock import PAYLOAD_TYPE, _to_document, read_lock
from actum.store import dsse
from actum.store.keys import Keyring
from actum.store.migrations import MIGRATIONS

from .terminal import Terminal

pytestmark = pytest.mark.sandbox

#: Opens a home as a version with one more migration does.
_NEWER = """
import sys
from actum.store import database
database.MIGRATIONS = (*database.MIGRATIONS, ("CREATE TABLE later (a);",))
database.Database.open(sys.argv[1]).close()
"""


def convert(project: Terminal) -> None:
    home = str(project.folder / ".actum")
    subprocess.run([sys.executable, "-c", _NEWER, home], check=True)


@pytest.mark.parametrize(
    "words",
    [
        ("exec", "shell", "--stdin", "-"),
        ("verify",),
        ("receipts", "list"),
        ("init",),
        ("gc",),
    ],
    ids=" ".join,
)
def test_a_home_of_a_newer_version_is_refused_and_left_as_it_is(
    fresh: Terminal, words: tuple[str, ...]
) -> None:
    convert(fresh)
    answer = fresh.json(*words, stdin=b"touch ran")
    assert answer.code == 3
    error = answer.json["error"]
    assert error["code"] == "HOME_NEWER"
    assert f"schema {len(MIGRATIONS) + 1}" in error["message"]
    assert "Upgrade Actum" in error["remedy"]
    assert not (fresh.folder / "ran").exists()
    connection = sqlite3.connect(fresh.folder / ".actum/actum.db")
    assert connection.execute("SELECT count(*) FROM later").fetchone() == (0,)
    assert connection.execute("SELECT count(*) FROM audit").fetchone() == (0,)
    connection.close()


@pytest.mark.parametrize("pool", [False, True])
def test_a_process_that_was_running_during_an_upgrade_starts_nothing_more(
    fresh: Terminal, pool: bool
) -> None:
    with Runtime.open(fresh.folder, pool=pool) as runtime:
        first = runtime.exec("shell", stdin="echo one", cwd=fresh.folder).check()
        convert(fresh)
        with pytest.raises(EvidenceUnavailable, match=r"newer Actum.*Start this process again"):
            runtime.exec("shell", stdin="touch ran", cwd=fresh.folder)
    assert not (fresh.folder / "ran").exists()
    # The newer version, played by taking its one step back, has everything until then.
    connection = sqlite3.connect(fresh.folder / ".actum/actum.db")
    connection.executescript(f"DROP TABLE later; PRAGMA user_version = {len(MIGRATIONS)};")
    connection.close()
    assert first.receipt_id is not None
    assert fresh.actum("verify", first.receipt_id).code == 0
    assert fresh.actum("verify", "--all").code == 0


def test_a_lock_of_a_newer_version_is_refused_as_one(fresh: Terminal) -> None:
    keyring = Keyring.open(fresh.folder / ".actum")
    document = {**_to_document(read_lock(fresh.folder, keyring.approving)), "version": 3}
    payload = json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    envelope = dsse.sign(payload.encode(), PAYLOAD_TYPE, keyring.signer)
    write(fresh.folder / "tools.lock", document, envelope["signatures"])
    answer = fresh.shell("touch ran")
    assert (answer.code, answer.violations) == (3, [("LOCK_NEWER", "")])
    message = answer.json["violations"][0]["message"]
    assert "version 3" in message and "newer Actum" in message and "Upgrade" in message
    assert not (fresh.folder / "ran").exists()


def write(file: Path, document: dict[str, object], signatures: object) -> None:
    file.write_text(json.dumps({**document, "signatures": signatures}))
