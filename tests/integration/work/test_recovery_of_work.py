"""After a crash: what was frozen is compared with what is there, and nothing else is signed."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from actum.evidence.verify.work_findings import read_work_receipt
from actum.work.item_process import Stop
from actum.workspace import commit
from hostile.jail import alive, marker, until

from .shop import add_agent, item, make_project, opened

pytestmark = pytest.mark.sandbox

_ACTUM = (sys.executable, "-m", "actum.doors.cli.main")
_FILES = {"a": "1", "b": "2", "deep/c": "3", "deep/er/d": "4"}


def _actum(project: Path, *words: str) -> tuple[int, str]:
    done = subprocess.run([*_ACTUM, *words], cwd=project, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def _started(project: Path, nap: str) -> subprocess.Popen[bytes]:
    """`actum item run`, whose agent is at work."""
    add_agent(project, f"printf x > new; rm a; sleep {nap}")
    (project / "item.yaml").write_text(yaml.safe_dump(item()))
    process = subprocess.Popen(
        [*_ACTUM, "item", "run", "item.yaml"],
        cwd=project,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        # Under nohup the suite ignores SIGHUP, and its children would inherit that.
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
    )
    until(lambda: alive(nap))
    return process


def _crash(project: Path) -> None:
    nap = marker()
    process = _started(project, nap)
    process.kill()
    process.communicate()
    until(lambda: not alive(nap))


def _last_receipt(project: Path) -> Mapping[str, Any]:
    with opened(project) as rt:
        (row,) = rt.database.rows("SELECT envelope FROM work_receipts ORDER BY final_seq DESC")[:1]
        return read_work_receipt(json.loads(row[0]), rt.keyring.trusted)


@pytest.fixture
def project(tmp_path: Path) -> Path:
    return make_project(tmp_path / "p", _FILES)


@pytest.mark.req("002-36", "002-47")
def test_the_frozen_hash_is_on_record_before_the_agent_works(project: Path) -> None:
    nap = marker()
    process = _started(project, nap)
    with opened(project) as rt:
        rows = rt.database.rows("SELECT state, before_hash FROM work_runs")
        assert rows == [("OPEN", rt.state_hash())]
    process.kill()
    process.communicate()


def test_a_crash_alone_is_no_damage(project: Path) -> None:
    _crash(project)
    assert _actum(project, "verify", "--all")[0] == 0
    assert _actum(project, "doctor")[0] == 0
    said = _last_receipt(project)
    assert said["status"] == "failure"
    assert said["damage"] is None
    assert said["before_hash"] == said["after_hash"]


def test_a_file_that_people_add_after_a_crash_is_no_damage(project: Path) -> None:
    _crash(project)
    (project / "mine").write_text("mine")
    assert _actum(project, "verify", "--all")[0] == 0
    said = _last_receipt(project)
    assert said["damage"] is None
    assert said["before_hash"] != said["after_hash"]


@pytest.mark.req("002-49")
def test_what_is_missing_after_a_crash_is_named_and_never_signed_as_the_state_before(
    project: Path,
) -> None:
    with opened(project) as rt:
        before = rt.state_hash()
    _crash(project)
    before = _frozen(project)
    (project / "b").unlink()
    (project / "deep/er/d").unlink()
    (project / "deep/c").write_text("other")
    wanted = "DAMAGED: 2 missing: b, deep/er/d; 1 changed: deep/c"
    # `verify` writes nothing: it looks, and says what the next command will put on record.
    code, said = _actum(project, "verify", "--all")
    assert (code, wanted in said) == (1, True), said
    code, said = _actum(project, "doctor")
    assert (code, wanted in said) == (1, True), said
    receipt = _last_receipt(project)
    assert receipt["before_hash"] == before != receipt["after_hash"]
    damage = receipt["damage"]
    assert (damage["missing_paths"], damage["changed_paths"]) == (["b", "deep/er/d"], ["deep/c"])
    code, said = _actum(project, "verify", "--all")
    assert (code, wanted in said) == (1, True), said
    # A person looks, and takes it as it is; then the project is sound again.
    code, said = _actum(project, "item", "accept", receipt["receipt_id"])
    assert (code, "Accepted as it is" in said) == (0, True), said
    assert _actum(project, "verify", "--all")[0] == 0
    assert _actum(project, "doctor")[0] == 0
    code, said = _actum(project, "item", "accept", receipt["receipt_id"])
    assert (code, "no damage" in said) == (3, True), said
    with opened(project) as rt:
        add_agent(project, "printf next > next")
        assert rt.work(item(id="next")).status == "success"


def _frozen(project: Path) -> str:
    """What the crashed run has on record; read without opening the project, which recovers."""
    with sqlite3.connect(f"file:{project}/.actum/actum.db?mode=ro", uri=True) as database:
        (row,) = database.execute("SELECT before_hash FROM work_runs WHERE state = 'OPEN'")
    return str(row[0])


def test_several_crashes_on_one_state_all_name_what_is_missing(project: Path) -> None:
    add_agent(project, "printf x > new")
    with opened(project) as rt:
        database, state = rt.database, rt.state_hash()
        rt.work(item())
        state = rt.state_hash()
        for number in range(2):
            database.rows(
                "INSERT INTO work_runs (run_id, item_id, item, agent_sha256, workspace, state,"
                " before_hash, started_at, owner) SELECT 'lost-' || ?, item_id, item,"
                " agent_sha256, workspace, 'OPEN', ?, started_at, 'other pid:[1] 1 1'"
                " FROM work_runs LIMIT 1",
                (number, state),
            )
        (project / "b").unlink()
        rt.work_items.recover()
        found = rt.work_items.records.damaged()
    assert [text for _run, _receipt, text in found] == ["DAMAGED: 1 missing: b"] * 2


def test_a_project_that_is_gone_is_damaged(project: Path) -> None:
    with opened(project) as rt:
        rt.state_hash()
    _crash(project)
    home = project.with_name("home")
    (project / ".actum").rename(home)
    for name in ("a", "b", "deep/c", "deep/er/d", "agents/agent-1.yaml", "item.yaml"):
        (project / name).unlink()
    home.rename(project / ".actum")
    code, said = _actum(project, "verify", "--all")
    assert code == 1
    assert "6 missing" in said


def test_damage_beside_a_commit_that_is_carried_through_is_reported(project: Path) -> None:
    """The receipt of the commit was signed before the crash; what recovery sees is another one."""
    killed = (
        "import os, signal, sys\n"
        "from actum.workspace import commit\n"
        "commit.apply = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    hooks = project.parent / "hooks"
    hooks.mkdir()
    (hooks / "sitecustomize.py").write_text(
        "import sys\nif any('actum.doors.work_item_process' in word for word in sys.orig_argv):\n"
        + "".join(f"    {line}\n" for line in killed.splitlines())
    )
    add_agent(project, "printf x > new")
    (project / "item.yaml").write_text(yaml.safe_dump(item()))
    environment = {**os.environ, "PYTHONPATH": str(hooks)}
    process = subprocess.Popen(
        [sys.executable, "-c", _ASK_ONLY, str(project)], env=environment, stdout=subprocess.PIPE
    )
    said, _ = process.communicate()
    assert b"died" in said
    space = next((project / ".actum/work").iterdir())
    assert commit.pending_intent(space) is not None
    (project / "b").unlink()
    code, said_text = _actum(project, "doctor")
    assert (project / "new").read_text() == "x", "it was carried through"
    assert (code, "DAMAGED: 1 missing: b" in said_text) == (1, True), said_text
    assert _actum(project, "verify", "--all")[0] == 1


#: Asks for a work item and dies with its process, before anybody recovers.
_ASK_ONLY = """
import os, sys
from pathlib import Path
from actum import Runtime
from actum.work import item_process as process
ask = process.ask
def once(*arguments):
    try:
        return ask(*arguments)
    except process.Died:
        print("died", flush=True)
        os._exit(0)
process.ask = once
with Runtime.open(sys.argv[1], pool=False) as rt:
    rt.work(Path(sys.argv[1], "item.yaml"))
"""


# -- a killed child is a result -------------------------------------------------------------------


def _children() -> list[int]:
    """Processes of work items that this process has started."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                said = Path("/proc", name, "comm").read_text()
                parent = Path("/proc", name, "stat").read_bytes().rpartition(b")")[2].split()[1]
            except OSError:
                continue
            if said == "actum-item\n" and int(parent) == os.getpid():
                found.append(int(name))
    return found


@pytest.mark.req("002-34", "002-47")
@pytest.mark.parametrize("at", ["frozen", "called", "ready"])
def test_a_killed_child_is_a_failure_with_a_receipt(project: Path, at: str) -> None:
    add_agent(project, "printf x > new; rm a")
    with opened(project) as rt:
        before = rt.state_hash()

        def hear(said: Mapping[str, Any]) -> None:
            if said["at"] == at:
                (child,) = _children()
                os.kill(child, signal.SIGKILL)

        result = rt.work_items.run(item(), hear=hear)
        assert result.status == "failure"
        assert result.error is not None and "ended before the commit" in result.error
        assert result.output_hash == rt.state_hash() == before
        assert Path(result.receipt_path).is_file()
        assert all(finding.passed for finding in rt.verifier.verify_all())
        assert rt.work(item()).status == "success"


@pytest.mark.req("002-34")
def test_a_child_killed_before_it_began_is_a_failure_with_a_receipt(project: Path) -> None:
    add_agent(project, "printf x > new")
    stop = Stop()
    stop.stop()
    with opened(project) as rt:
        result = rt.work_items.run(item(), stop=stop)
        assert result.status == "failure"
        assert result.error is not None and "killed before it began" in result.error
        assert read_work_receipt(
            json.loads(Path(result.receipt_path).read_bytes()), rt.keyring.trusted
        )
        assert all(finding.passed for finding in rt.verifier.verify_all())
        assert not (project / "new").exists()


# -- Ctrl-C ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_item_commits_nothing_and_is_closed_at_once(
    project: Path, number: int
) -> None:
    nap = marker()
    process = _started(project, nap)
    process.send_signal(number)
    said, _ = process.communicate()
    assert process.returncode == 130, said
    assert b"Work item failed" in said
    assert not alive(nap)
    assert (project / "a").exists()
    assert not (project / "new").exists()
    with sqlite3.connect(f"file:{project}/.actum/actum.db?mode=ro", uri=True) as database:
        rows = database.execute("SELECT state, status FROM work_runs").fetchall()
    assert rows == [("FINAL", "failure")]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_graph_begins_and_commits_nothing_more(project: Path, number: int) -> None:
    nap = marker()
    add_agent(project, "printf x > first")
    add_agent(project, f"printf x > second; sleep {nap}", number=2)
    add_agent(project, "printf x > third", number=3)
    items = [
        item(id="first"),
        item(id="second", agent_id="agent-2", dependencies=["first"]),
        item(id="third", agent_id="agent-3", dependencies=["second"]),
    ]
    (project / "work.yaml").write_text(yaml.safe_dump({"items": items}))
    process = subprocess.Popen(
        [*_ACTUM, "work", "work.yaml"],
        cwd=project,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    until(lambda: alive(nap))
    process.send_signal(number)
    said, _ = process.communicate()
    assert process.returncode == 130, said
    assert "Cancelled: 1 of 3 work items committed" in said
    assert not alive(nap)
    assert [(project / name).exists() for name in ("first", "second", "third")] == [
        True,
        False,
        False,
    ]
    code, said = _actum(project, "verify", "--all")
    assert code == 0, said


@pytest.mark.parametrize("name", ["agents/agent-1.yaml", "actum.toml"])
def test_an_edit_of_what_governs_the_project_after_a_crash_is_no_damage(
    project: Path, name: str
) -> None:
    """It is how people fix the cause. A missing file is damage."""
    _crash(project)
    edited = project / name
    text = edited.read_text()
    edited.write_text(f"{text}# edited\n")
    code, said = _actum(project, "verify", "--all")
    assert (code, "DAMAGED" in said) == (0, False), said
    edited.unlink()
    if name.startswith("agents"):
        code, said = _actum(project, "verify", "--all")
        assert (code, f"DAMAGED: 1 missing: {name}" in said) == (1, True), said
    edited.write_text(f"{text}# edited\n")
    (project / "b").write_text("other")
    code, said = _actum(project, "verify", "--all")
    assert (code, "DAMAGED: 1 changed: b" in said) == (1, True), said
    (project / "b").write_text(_FILES["b"])
    receipt = _last_receipt(project)
    assert (receipt["status"], receipt["damage"]) == ("failure", None)
    assert receipt["before_hash"] != receipt["after_hash"]
    assert _actum(project, "verify", "--all")[0] == 0


def test_an_agent_edited_after_its_run_was_killed_works_in_the_continued_run(
    project: Path,
) -> None:
    nap = marker()
    add_agent(project, f"echo half > half.txt; sleep {nap}")
    (project / "work.yaml").write_text(yaml.safe_dump({"items": [item()]}))
    process = subprocess.Popen(
        [*_ACTUM, "work", "work.yaml"],
        cwd=project,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    until(lambda: alive(nap))
    process.kill()
    process.wait()
    until(lambda: not alive(nap))
    add_agent(project, "echo whole > whole.txt")
    code, said = _actum(project, "work", "work.yaml")
    assert code == 0, said
    assert (project / "whole.txt").read_text() == "whole\n"
    assert not (project / "half.txt").exists()
    code, said = _actum(project, "verify", "--all")
    assert (code, "DAMAGED" in said) == (0, False), said
    with opened(project) as rt:
        (run,) = rt.runs.list()
        ends = [str(step.status) for step in rt.runs.ledger.steps(run.run_id)]
    assert (run.status.value, ends) == ("complete", ["interrupted", "success"])
