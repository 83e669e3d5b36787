"""What is special about a tool that works on a copy: bounds, covers, and what a kill leaves."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from actum import Outcome, Result, Runtime
from actum.capture.model import Workspace
from common.settings import add_settings
from hostile.jail import Jail, until

pytestmark = pytest.mark.sandbox


@pytest.fixture
def engine() -> str:
    return "copy"


def _workspace(result: Result) -> Workspace:
    assert result.workspace is not None, result.violations
    return result.workspace


def _predicate(result: Result) -> dict[str, object]:
    envelope = json.loads(Path(result.receipt_path).read_text())
    predicate = json.loads(base64.b64decode(envelope["payload"]))["predicate"]
    assert isinstance(predicate, dict)
    return predicate


def test_result_and_receipt_name_the_engine(own_jail: Jail) -> None:
    result = own_jail.sh("echo x > new")
    assert _workspace(result).engine == "copy"
    workspace = _predicate(result)["workspace"]
    assert isinstance(workspace, dict)
    assert workspace["engine"] == "copy"
    assert all(finding.passed for finding in own_jail.runtime.verifier.verify_all())


@pytest.mark.parametrize("engine", ["auto", "overlay"])
def test_without_a_need_there_is_no_copy(own_jail: Jail) -> None:
    assert _workspace(own_jail.sh("echo x > new")).engine == "overlay"


def test_the_tool_sees_the_folder_as_it_is(own_jail: Jail) -> None:
    work = own_jail.work
    (work / "one").write_text("x")
    os.link(work / "one", work / "two")
    (work / os.fsdecode(b"\xff")).write_text("bytes")
    with (work / "sparse").open("wb") as file:
        file.truncate(64 << 20)
    result = own_jail.sh(
        "stat -c '%h %a' one; stat -c '%b' sparse; cat $(printf '\\377'); echo;"
        " mv one three; echo more >> three; mkdir d; mv d e; echo y > $(printf 'e/\\376')"
    )
    links, blocks, content = own_jail.said(result).splitlines()
    assert links == "2 644"
    assert int(blocks) < 1024
    assert content == "bytes"
    assert _workspace(result).state == "committed"
    assert sorted(os.listdir(os.fsencode(work))) == [b"e", b"sparse", b"three", b"two", b"\xff"]
    assert os.listdir(os.fsencode(work / "e")) == [b"\xfe"]
    # Written through one of its names, a file is changed under both, and stays one file.
    assert (work / "two").read_text() == (work / "three").read_text() == "xmore\n"
    assert (work / "two").stat().st_ino == (work / "three").stat().st_ino
    assert (work / "two").stat().st_uid == os.geteuid()
    assert (work / "sparse").stat().st_blocks < 1024


def test_an_existing_folder_can_be_renamed(own_jail: Jail) -> None:
    (own_jail.work / "old").mkdir()
    (own_jail.work / "old" / "file").write_text("x")
    result = own_jail.python("import os\nos.rename('old', 'new')")
    assert result.outcome is Outcome.SUCCEEDED
    assert _workspace(result).state == "committed"
    assert sorted(str(path.relative_to(own_jail.work)) for path in own_jail.work.rglob("*")) == [
        "new",
        "new/file",
    ]


def test_the_home_and_denied_paths_are_not_in_the_copy(own_jail: Jail) -> None:
    (own_jail.root / "secret").mkdir()
    (own_jail.root / "secret" / "key").write_text("the key")
    (own_jail.root / "open").write_text("the control")
    deny = {"sandbox.filesystem.deny": ["secret"]}
    script = (
        "cat open; ls -A .actum secret; cat secret/key; echo x > secret/new;"
        " mv secret elsewhere; rm -rf secret .actum; echo x > done"
    )
    result = own_jail.sh(script, cwd=own_jail.root, limits=deny)
    assert own_jail.said(result) == "the control"
    assert _workspace(result).state == "committed"
    assert _workspace(result).created == 1
    assert (own_jail.root / "done").exists()
    assert (own_jail.root / "secret" / "key").read_text() == "the key"
    assert os.listdir(own_jail.root / "secret") == ["key"]


def test_a_declared_output_is_read_from_the_copy(own_jail: Jail) -> None:
    (own_jail.work / "old").write_text("old")
    result = own_jail.sh("echo out > out.txt", limits={"outputs.output_files": ["out.txt", "old"]})
    assert result.outcome is Outcome.SUCCEEDED, result.violations
    assert result.result is not None
    assert {(item.name, item.size) for item in result.result.artifacts} == {
        ("out.txt", 4),
        ("old", 3),
    }


@pytest.mark.parametrize("setting", ["copy_max_files = 5", "copy_max_mb = 1"])
def test_beyond_the_bounds_nothing_runs(own_jail: Jail, setting: str) -> None:
    own_jail.close()
    add_settings(own_jail.root, f"[workspace]\n{setting}\n")
    for number in range(6):
        (own_jail.work / f"{number}").write_bytes(bytes(200_000))
    before = sorted(os.listdir(own_jail.work))
    with Runtime.open(own_jail.root) as runtime:
        refused = runtime.exec("shell", stdin="echo x > new", cwd=own_jail.work)
        assert sorted(os.listdir(own_jail.work)) == before
        left = (own_jail.root / ".actum/transactions").iterdir()
        # Those that were made ahead belong to no execution.
        assert [path.name for path in left if "ready-" not in path.name] == []
        small = own_jail.fresh_work()
        control = runtime.exec("shell", stdin="echo x > new", cwd=small)
    assert [violation.code for violation in refused.violations] == ["COPY_TOO_LARGE"]
    assert refused.result is None
    assert _workspace(control).state == "committed"
    assert (small / "new").exists()


_KILLED = """
import sys
from pathlib import Path
from actum import Runtime

with Runtime.open(Path(sys.argv[1])) as runtime:
    script = "echo half > new; rm file; echo up > up; sleep 60"
    runtime.exec("shell", stdin=script, cwd=Path(sys.argv[2]))
"""


def test_a_killed_process_leaves_nothing_behind(own_jail: Jail) -> None:
    (own_jail.work / "file").write_text("before")
    own_jail.close()
    home = own_jail.root / ".actum" / "transactions"
    process = subprocess.Popen([sys.executable, "-c", _KILLED, own_jail.root, own_jail.work])
    try:
        until(lambda: list(home.glob("*/0/copy/up")), "the tool")
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert list(home.glob("*/0/copy"))  # the control: there was something to be left
    assert os.listdir(own_jail.work) == ["file"]
    with Runtime.open(own_jail.root) as runtime:
        assert runtime.transactions.all() == ()
        assert [path.name for path in home.iterdir()] == ["lock"]
    assert os.listdir(own_jail.work) == ["file"]
