"""What a tool finds at the path of a sealed input, and what becomes of its changes to it."""

from __future__ import annotations

import json
import os
import stat
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from actum import Result, Runtime
from actum.capture.model import Workspace
from actum.contract.call import bound
from actum.errors import Refused
from actum.value import replace
from hostile.sealed_project import Sealed, digest_for, opened, signed_input_digest

pytestmark = pytest.mark.sandbox


def _workspace(result: Result) -> Workspace:
    assert result.workspace is not None, (result.violations, result.result)
    return result.workspace


def _after_planning(jail: Sealed, monkeypatch: pytest.MonkeyPatch, act: Callable[[], Any]) -> None:
    """Do something between the moment the inputs are sealed and the start of the tool."""
    runner = next(iter(jail.runtime.services.runners.values()))
    run = runner.run

    def acting(*words: Any, **named: Any) -> Any:
        act()
        return run(*words, **named)

    monkeypatch.setattr(runner, "run", acting)


def test_mode_time_and_owner_are_those_of_the_file(any_mode: Sealed) -> None:
    folder = any_mode.work / "a" / "b"
    folder.mkdir(parents=True)
    folder.chmod(0o751)
    file = folder / "program"
    file.write_text("#!/bin/sh\necho ran\n")
    file.chmod(0o754)
    os.utime(file, (1_500_000_000, 1_600_000_000))
    look = "./a/b/program; stat -c '%a %Y %s' a/b/program; stat -c %a a/b a; stat -c %U a/b/program"
    # The positive control: the same without an input file.
    plain = any_mode.said(any_mode.with_input(look))
    assert plain.split()[:4] == ["ran", "754", "1600000000", str(file.stat().st_size)]
    assert any_mode.said(any_mode.with_input(look, file)) == plain


def test_a_change_after_planning_is_not_seen(
    any_mode: Sealed, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = any_mode.work / "input"
    file.write_text("first")
    _after_planning(any_mode, monkeypatch, lambda: file.write_text("second"))
    contract = any_mode.asked("cat input; cat twin", file)
    os.link(file, any_mode.work / "twin")
    result = any_mode.runtime.execute(contract)
    # At its path the file is sealed. A hard link shows the live bytes.
    assert any_mode.said(result) == "firstsecond"
    assert signed_input_digest(result) == digest_for(contract, b"first")
    assert file.read_text() == "second"
    assert any_mode.copies() == []


def test_an_input_that_is_gone_at_the_start(
    any_mode: Sealed, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = any_mode.work / "folder"
    folder.mkdir()
    file = folder / "input"
    file.write_text("first")

    def gone() -> None:
        file.unlink()
        folder.rmdir()

    _after_planning(any_mode, monkeypatch, gone)
    result = any_mode.with_input("cat folder/input", file)
    if any_mode.mode == "transaction":
        assert any_mode.said(result) == "first"
        assert _workspace(result).state == "unchanged"
        assert not folder.exists()
    else:
        # There is no name any more that the copy could be mounted over.
        assert result.reason_codes == ("PATH_CHANGED",)
    assert any_mode.copies() == []


@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_another_kind_of_thing_at_the_start(
    any_mode: Sealed, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    file = any_mode.work / "input"
    file.write_text("first")
    secret = any_mode.root / "secret"
    secret.write_text("secret")

    def replaced() -> None:
        file.unlink()
        make = {"link": lambda: file.symlink_to(secret), "folder": file.mkdir}
        make.get(kind, lambda: os.mkfifo(file))()

    _after_planning(any_mode, monkeypatch, replaced)
    result = any_mode.with_input("cat input", file)
    if any_mode.mode == "transaction" or (kind == "pipe" and result.result is not None):
        # A file can be mounted over a pipe: what is there shows no more than a file would.
        assert any_mode.said(result) == "first"
    else:
        assert result.reason_codes == ("PATH_CHANGED",)


def test_in_a_transaction_a_tool_may_change_its_input(transaction: Sealed) -> None:
    work = transaction.work
    (work / "deep").mkdir()
    for name in ("written", "replaced", "removed", "deep/appended", "kept", "same"):
        (work / name).write_text(f"{name}\n")
    files = [path for path in sorted(work.rglob("*")) if path.is_file()]
    script = (
        "echo new > written; sed -i s/replaced/other/ replaced; rm removed; echo more >>"
        " deep/appended; cat kept; cp same copy; cat copy > same; rm copy; echo x > deep/new"
    )
    result = transaction.with_input(script, *files)
    found = _workspace(result)
    assert found.state == "committed", (found, result.result)
    assert (found.created, found.modified, found.deleted) == (1, 3, 1)
    assert (work / "written").read_text() == "new\n"
    assert (work / "replaced").read_text() == "other\n"
    assert not (work / "removed").exists()
    assert (work / "deep" / "appended").read_text() == "deep/appended\nmore\n"
    assert (work / "kept").read_text() == "kept\n"
    transactions = transaction.runtime.transactions
    transactions.undo(transactions.find(result.execution_id))
    assert (work / "removed").read_text() == "removed\n"
    assert (work / "written").read_text() == "written\n"


CHANGES = {
    "written": "echo tool >> input",
    "replaced": "echo tool > new; mv new input",
    "removed": "rm input",
    "in its folder": "rm -r folder",
}


@pytest.mark.parametrize("how", CHANGES)
def test_a_change_over_a_change_of_the_host_is_a_conflict(
    transaction: Sealed, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """Also if the host changed it before the tool started, but after it was sealed."""
    folder = transaction.work / "folder"
    folder.mkdir()
    file = folder / "input" if how == "in its folder" else transaction.work / "input"
    file.write_text("first\n")
    _after_planning(transaction, monkeypatch, lambda: file.write_text("the host's\n"))
    result = transaction.with_input(CHANGES[how], file)
    found = _workspace(result)
    assert (found.state, found.why) == ("conflict", (str(file),))
    assert file.read_text() == "the host's\n"
    transactions = transaction.runtime.transactions
    kept = transactions.find(result.execution_id)
    assert transactions.decide(kept, commit=True, over=True) == "committed"
    expected = {"written": "first\ntool\n", "replaced": "tool\n"}.get(how)
    assert (file.read_text() if file.exists() else None) == expected


def test_changes_that_wait_hold_nothing_that_the_tool_left_alone(
    transaction: Sealed, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = transaction.work / "folder"
    folder.mkdir()
    read, changed = folder / "read", transaction.work / "changed"
    for file in (read, changed):
        file.write_text("first\n")
    _after_planning(transaction, monkeypatch, lambda: read.write_text("the host's\n"))
    contract = transaction.asked("cat folder/read; echo tool > changed", read, changed)
    result = transaction.runtime.execute(contract, changes="hold")
    assert transaction.said(result) == "first"
    found = _workspace(result)
    assert (found.state, found.modified, found.created) == ("held", 1, 0)
    transactions = transaction.runtime.transactions
    kept = transactions.find(result.execution_id)
    assert transactions.decide(kept, commit=True) == "committed"
    assert (read.read_text(), changed.read_text()) == ("the host's\n", "tool\n")


@pytest.mark.parametrize("script", ["echo x > input", "rm input", "echo x > y; mv y input"])
@pytest.mark.parametrize("mode", ["read-only", "direct"])
def test_elsewhere_a_sealed_input_cannot_be_written(
    tmp_path: Path, probe: Path, mode: str, script: str
) -> None:
    jail = opened(tmp_path, probe, mode)
    file = jail.work / "input"
    file.write_text("first")
    result = jail.with_input(f"( {script} ) 2>/dev/null; cat input", file)
    assert jail.said(result) == "first"
    assert file.read_text() == "first"
    if mode == "direct":  # the control: a file that is no input
        jail.with_input(script)
        assert not file.exists() or file.read_text() == "x\n"
    jail.close()


def test_other_files_of_the_folder_are_as_they_are(any_mode: Sealed) -> None:
    work = any_mode.work
    (work / "input").write_text("sealed")
    (work / "other").write_text("other")
    (work / "folder").mkdir()
    (work / "folder" / "deep").write_text("deep")
    said = any_mode.said(any_mode.with_input("cat input other folder/deep; ls", work / "input"))
    assert said.split() == ["sealedotherdeepfolder", "input", "other"]
    if any_mode.mode != "read-only":
        any_mode.with_input("echo made > made; echo x > other", work / "input").check()
        assert (work / "made").read_text() == "made\n"
        assert (work / "other").read_text() == "x\n"


def test_a_granted_file_is_its_copy(read_only: Sealed, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its mount point is in the sandbox's own root: not even its removal on the host matters."""
    file = read_only.root / "alone"
    file.write_text("first")

    def replaced() -> None:
        other = read_only.root / "other"
        other.write_text("second")
        os.replace(other, file)

    contract = read_only.asked(
        f"cat {file}",
        file,
        limits={
            "sandbox.filesystem.level": "standard",
            "sandbox.filesystem.read": [str(read_only.work), str(file)],
            "sandbox.filesystem.write": [],
        },
    )
    _after_planning(read_only, monkeypatch, replaced)
    assert read_only.said(read_only.runtime.execute(contract)) == "first"


def test_a_hundred_inputs(any_mode: Sealed) -> None:
    files = []
    for number in range(100):
        file = any_mode.work / f"d{number % 7}" / f"in-{number}"
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"{number}\n")
        files.append(file)
    contract = any_mode.asked("cat d*/in-* | sort -n", *files)
    result = any_mode.runtime.execute(contract)
    assert any_mode.said(result).split() == [str(number) for number in range(100)]
    contents = [f"{number}\n".encode() for number in range(100)]
    assert signed_input_digest(result) == digest_for(contract, *contents)
    assert any_mode.copies() == []


def test_nothing_of_the_copies_can_be_seen_or_reached(any_mode: Sealed) -> None:
    file = any_mode.work / "input"
    file.write_text("first")
    script = f"ls {any_mode.root}/.actum/inputs 2>/dev/null; cat /proc/self/mountinfo | wc -l"
    assert len(any_mode.said(any_mode.with_input(script, file)).split()) == 1
    assert stat.S_IMODE((any_mode.root / ".actum" / "inputs").stat().st_mode) == 0o700


def test_what_was_recorded_verifies(any_mode: Sealed) -> None:
    file = any_mode.work / "input"
    file.write_text("first")
    any_mode.with_input("cat input", file).check()
    findings = list(any_mode.runtime.verifier.verify_all())
    assert [finding for finding in findings if not finding.passed] == []


def test_a_session_takes_no_input_files(read_only: Sealed) -> None:
    """Its calls are answered before its end, at which a lost seal is found."""
    file = read_only.work / "input"
    file.write_text("first")
    fields = {"inputs.input_files": [str(file)]}
    with pytest.raises(Refused) as refused:
        read_only.runtime.python_session(set=fields, cwd=str(read_only.work))
    assert refused.value.code == "INPUT_NOT_SEALED"
    with read_only.runtime.python_session(cwd=str(read_only.work)) as session:
        assert session.run("1 + 1").ok


@pytest.mark.parametrize("engine", ["overlay", "copy"])
def test_a_tool_of_a_work_item_reads_sealed_inputs(direct: Sealed, engine: str) -> None:
    """What it writes goes to the view of the work item, but not over its input."""
    (direct.root / "input").write_text("first\n")
    steps = [
        {
            "tool": "shell",
            "stdin": "cat input > copy; echo x > input || echo kept",
            "files": ["input"],
        },
        {"tool": "shell", "stdin": "echo second > input"},
    ]
    (direct.root / "agents").mkdir(exist_ok=True)
    agent = {"agent_id": "agent-1", "steps": steps}
    (direct.root / "agents" / "agent-1.yaml").write_text(json.dumps(agent))
    work_item = {
        "id": "work-item-1",
        "agent_id": "agent-1",
        "description": "reads and writes",
        "dependencies": [],
    }
    with Runtime.open(direct.root, pool=False) as runtime:
        result = runtime.work_items.run(work_item, engine=engine)
    assert result.status == "success", result.error
    assert (direct.root / "copy").read_text() == "first\n"
    assert (direct.root / "input").read_text() == "second\n"
    assert direct.copies() == []


def test_the_folder_of_the_program_keeps_its_identity_check(
    read_only: Sealed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No overlay there: a seal that is lost is found instead."""
    file = read_only.work / "input"
    file.write_text("first")
    views: list[Any] = []
    runner = next(iter(read_only.runtime.services.runners.values()))
    run = runner.run

    def in_plain_mounts(plan: Any, *words: Any, **named: Any) -> Any:
        views.append(plan.views)
        return run(bound(replace(plan, views={})), *words, **named)

    def replaced(_name: str, _chunk: bytes) -> None:
        (read_only.work / "other").write_text("second")
        os.replace(read_only.work / "other", file)

    monkeypatch.setattr(runner, "run", in_plain_mounts)
    script = "cat input; until ! grep -q first input; do :; done; cat input"
    contract = read_only.asked(script, file)
    result = read_only.runtime.execute(contract, on_output=replaced)
    assert views == [{str(read_only.work): views[0][str(read_only.work)]}]
    assert result.reason_codes == ("EXECUTOR_EXCEPTION", "INPUT_SEAL_LOST")
    assert read_only.said(result) == "firstsecond"  # the control: it did read other bytes


@pytest.mark.parametrize("what", ["its folder", "the working directory"])
def test_a_folder_that_the_host_moves_away_is_found(transaction: Sealed, what: str) -> None:
    """The upper layer holds a folder on the way. The granted folder itself is a name in a bind
    mount of the project, and can be moved."""
    folder = transaction.work / "folder"
    folder.mkdir()
    file = folder / "input"
    file.write_text("first")
    moved = folder if what == "its folder" else transaction.work

    def replaced(_name: str, _chunk: bytes) -> None:
        os.rename(moved, f"{moved}-away")
        file.parent.mkdir(parents=True)
        file.write_text("second")
        go.touch()

    go = transaction.root / "go"
    script = f"cat {file}; until [ -e {go} ]; do sleep 0.01; done; cat {file}"
    contract = transaction.asked(script, file)
    result = transaction.runtime.execute(contract, on_output=_once(replaced))
    if what == "its folder":
        assert transaction.said(result) == "firstfirst"
        assert _workspace(result).state == "unchanged"
        assert file.read_text() == "second"
    else:
        assert result.reason_codes == ("EXECUTOR_EXCEPTION", "INPUT_SEAL_LOST")


def _once(act: Callable[[str, bytes], None]) -> Callable[[str, bytes], None]:
    heard: list[bytes] = []

    def hear(name: str, chunk: bytes) -> None:
        if not heard:
            act(name, chunk)
        heard.append(chunk)

    return hear


def test_what_is_mounted_in_a_read_only_folder_stays_visible(read_only: Sealed) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can mount")
    file = read_only.work / "input"
    file.write_text("first")
    inner = read_only.work / "mounted"
    inner.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "none", str(inner)], check=True)
    try:
        (inner / "file").write_text("of the mount")
        result = read_only.with_input("cat input mounted/file", file)
        assert read_only.said(result) == "firstof the mount"
    finally:
        subprocess.run(["umount", str(inner)], check=True)
