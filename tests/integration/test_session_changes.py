"""What the calls of a Python session change is one transaction, settled when the session ends."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from actum import Outcome, Result, Runtime
from actum.capture.model import Workspace
from actum.contract.model import RunnerKind
from actum.evidence.records.audit import Decision
from actum.execution.python_session import PythonSession
from actum.project import create
from actum.registry.approval_workflow import approve
from actum.runners.base import Cancel
from actum.store.keys import Keyring
from common.settings import add_settings
from hostile.jail import until

pytestmark = pytest.mark.sandbox


def project(root: Path, settings: str) -> Path:
    """A project whose snippets may write; the work is done in `root`/work."""
    create(root, RunnerKind.LOCAL, by="user:test", date="2026-11-15")
    file = root / "tools" / "snippet" / "tool.yaml"
    text = file.read_text().replace("write: []", 'write: ["."]')
    file.write_text(text.replace("data_access: read", "data_access: write"))
    keyring = Keyring.open(root / ".actum")
    approve(root, keyring, "snippet", by="user:other", evidence="e", date="2026-11-15")
    add_settings(root, f"\n[workspace]\n{settings}\n")
    (root / "work").mkdir()
    return root


@pytest.fixture
def rt(tmp_path: Path) -> Iterator[Runtime]:
    with Runtime.open(project(tmp_path / "project", 'changes = "transaction"')) as runtime:
        yield runtime


def work(rt: Runtime) -> Path:
    return rt.settings.root / "work"


def session(rt: Runtime, **words: Any) -> PythonSession:
    return rt.python_session(set={"inputs.working_directory": str(work(rt))}, **words)


def write(name: str, text: str) -> str:
    return f"open({name!r}, 'w').write({text!r})"


def workspace(result: Result) -> Workspace:
    assert result.workspace is not None
    return result.workspace


def predicate(rt: Runtime, receipt_id: str) -> dict[str, Any]:
    envelope = json.loads(rt.services.receipts.export(receipt_id).read_bytes())
    return dict(json.loads(base64.b64decode(envelope["payload"]))["predicate"])


def test_all_calls_are_one_transaction_and_the_session_says_what_became_of_it(
    rt: Runtime,
) -> None:
    (work(rt) / "old").write_text("before")
    with session(rt) as s:
        calls = [s.run(write("one", "1")), s.run("import os; os.mkdir('two')")]
        calls.append(s.run(f"{write('old', 'after')}; os.remove('one')\nsorted(os.listdir())"))
        assert calls[-1].output == ["old", "two"]
        assert os.listdir(work(rt)) == ["old"]
        assert (work(rt) / "old").read_text() == "before"
    whole = s.close()
    assert [each.workspace for each in calls] == [None] * 3
    found = workspace(whole)
    assert (found.state, found.created, found.modified) == ("committed", 1, 1)
    assert sorted(os.listdir(work(rt))) == ["old", "two"]
    assert (work(rt) / "old").read_text() == "after"
    assert predicate(rt, whole.receipt_id)["workspace"]["diff_sha256"] == found.diff_sha256
    for each in calls:
        assert "workspace" not in predicate(rt, each.receipt_id)
    assert all(finding.passed for finding in rt.verifier.verify_all())
    rt.transactions.undo(rt.transactions.find(whole.execution_id))
    assert os.listdir(work(rt)) == ["old"]
    assert (work(rt) / "old").read_text() == "before"


def test_a_session_that_changes_nothing_leaves_nothing(rt: Runtime) -> None:
    with session(rt) as s:
        assert s.run("1").output == 1
    assert workspace(s.close()).state == "unchanged"
    assert rt.transactions.all() == ()
    assert os.listdir(rt.settings.home / "transactions") in (["lock"], [])


@pytest.mark.parametrize("wanted", ["hold", "discard"])
def test_a_caller_may_look_first_or_drop_it(rt: Runtime, wanted: str) -> None:
    with session(rt, changes=wanted) as s:
        s.run(write("file", "x"))
    whole = s.close()
    assert workspace(whole).state == {"hold": "held", "discard": "discarded"}[wanted]
    assert os.listdir(work(rt)) == []
    if wanted == "hold":
        kept = rt.transactions.find(whole.execution_id)
        assert rt.transactions.decide(kept, commit=True) == "committed"
        assert os.listdir(work(rt)) == ["file"]


def _late(s: PythonSession) -> Result:
    return s.run(f"{write('half', 'x')}\nwhile True: pass", timeout="2s")


def _cancelled(s: PythonSession) -> Result:
    cancel, timer = Cancel(), threading.Timer(0.5, lambda: cancel.cancel())
    timer.start()
    try:
        return s.run(f"{write('half', 'x')}\nimport time\ntime.sleep(60)", cancel=cancel)
    finally:
        timer.join()
        cancel.close()


def _greedy(s: PythonSession) -> Result:
    return s.run(f"{write('half', 'x')}\ny = bytearray(900 << 20)")


def _hostile(s: PythonSession) -> Result:
    code = "import ctypes\nctypes.CDLL(None).mount(b'none', b'/tmp', b'tmpfs', 0, 0)"
    return s.run(f"{write('half', 'x')}\n{code}")


STOPPED = {"late": _late, "cancelled": _cancelled, "greedy": _greedy, "hostile": _hostile}


@pytest.mark.parametrize("how", STOPPED)
def test_a_call_that_is_stopped_drops_what_all_calls_have_changed(rt: Runtime, how: str) -> None:
    with session(rt, memory="128M") as s:
        assert s.run(write("before", "x")).ok
        assert not STOPPED[how](s).ok
    assert workspace(s.close()).state == "discarded"
    assert os.listdir(work(rt)) == []
    assert rt.transactions.all() == ()


def test_a_project_may_want_that_too(tmp_path: Path) -> None:
    settings = 'changes = "transaction"\non_stop = "commit"'
    with Runtime.open(project(tmp_path / "project", settings)) as rt:
        with session(rt) as s:
            _late(s)
        assert workspace(s.close()).state == "committed"
        assert os.listdir(work(rt)) == ["half"]


@pytest.mark.parametrize(
    "code", ["import os\nos._exit(9)", "import os\nos.kill(os.getpid(), 9)", "1 / 0"]
)
def test_how_a_call_ends_by_itself_stands_in_no_commits_way(rt: Runtime, code: str) -> None:
    with session(rt) as s:
        assert s.run(f"{write('done', 'x')}\n{code}").outcome is Outcome.TOOL_ERROR
    assert workspace(s.close()).state == "committed"
    assert os.listdir(work(rt)) == ["done"]


@pytest.mark.parametrize(
    ("words", "outcome"),
    [
        ({"idle_s": 0.3}, Outcome.SUCCEEDED),
        ({"lifetime": "2s", "timeout": "1s"}, Outcome.TIMED_OUT),
    ],
    ids=["idle", "old"],
)
def test_a_session_that_ends_between_two_calls_is_committed(
    rt: Runtime, words: dict[str, Any], outcome: Outcome
) -> None:
    s = session(rt, **words)
    assert s.run(write("done", "x")).ok
    until(lambda: s.ended, "its end")
    whole = s.close()
    assert (whole.outcome, workspace(whole).state) == (outcome, "committed")
    assert os.listdir(work(rt)) == ["done"]


def test_a_session_whose_time_is_over_in_a_call_is_dropped(rt: Runtime) -> None:
    s = session(rt, lifetime="2s", timeout="30s")
    s.run(write("done", "x"))
    assert not s.run("import time\ntime.sleep(60)").ok
    assert workspace(s.close()).state == "discarded"
    assert os.listdir(work(rt)) == []


def test_what_the_host_changed_since_the_start_is_a_conflict(rt: Runtime) -> None:
    (work(rt) / "both").write_text("before")
    with session(rt) as s:
        s.run(write("both", "the session's"))
        (work(rt) / "both").write_text("the host's")
        (work(rt) / "hosts").write_text("beside")
    found = workspace(s.close())
    assert (found.state, found.why) == ("conflict", (str(work(rt) / "both"),))
    assert (work(rt) / "both").read_text() == "the host's"


def test_of_two_sessions_that_change_the_same_path_the_second_is_a_conflict(rt: Runtime) -> None:
    (work(rt) / "both").write_text("before")
    one, two = session(rt), session(rt)
    for each, name in ((one, "one"), (two, "two")):
        each.run(f"{write('both', name)}; {write(name, name)}")
    assert one.run("import os; sorted(os.listdir())").output == ["both", "one"]
    assert workspace(one.close()).state == "committed"
    assert workspace(two.close()).state == "conflict"
    assert (work(rt) / "both").read_text() == "one"


def test_a_name_that_governs_is_held_until_it_is_approved(rt: Runtime) -> None:
    with session(rt) as s:
        s.run(write(".envrc", "x"))
        s.run(write("file", "x"))
    found = workspace(s.close())
    assert (found.state, found.why) == ("held", (str(work(rt) / ".envrc"),))
    assert os.listdir(work(rt)) == []
    request = rt.approvals.decide(found.request_id, Decision.ALLOW, by="user:other", why="known")
    assert rt.transactions.approved(request) == "committed"
    assert sorted(os.listdir(work(rt))) == [".envrc", "file"]


def test_where_changes_are_direct_others_see_them_at_once(tmp_path: Path) -> None:
    with Runtime.open(project(tmp_path / "project", 'changes = "direct"')) as rt:
        with session(rt) as s:
            s.run(write("file", "x"))
            assert os.listdir(work(rt)) == ["file"]
        assert workspace(s.close()).mode == "direct"


_KILLED = """
import sys
from pathlib import Path
from actum import Runtime

work = sys.argv[1]
runtime = Runtime.open(Path(work).parent)
session = runtime.python_session(set={"inputs.working_directory": work})
session.run("open('half', 'w').write('x')").check()
print("up", flush=True)
sys.stdin.read()
"""


def test_killed_in_the_middle_it_has_changed_nothing(rt: Runtime) -> None:
    transactions = rt.settings.home / "transactions"
    words = [sys.executable, "-c", _KILLED, str(work(rt))]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None and other.stdout.readline() == b"up\n"
        (folder,) = [each for each in transactions.iterdir() if each.name != "lock"]
        rt.sweep()
        assert folder.exists()  # its process lives
        other.send_signal(signal.SIGKILL)
        other.wait()
    until(lambda: rt.sweep() or not folder.exists(), "the removal")
    assert os.listdir(work(rt)) == []
    assert rt.transactions.all() == ()
