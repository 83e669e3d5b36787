"""What a tool changed is in the project when it has ended, exactly, or not at all."""

from __future__ import annotations

import os
import stat
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from actum import Outcome, Result
from actum.capture.model import Workspace
from actum.errors import Refused
from common.settings import add_settings
from hostile.jail import Jail

pytestmark = pytest.mark.sandbox


def _workspace(result: Result) -> Workspace:
    assert result.workspace is not None, result.violations
    return result.workspace


def test_files_folders_links_and_modes_are_as_the_tool_left_them(own_jail: Jail) -> None:
    work = own_jail.work
    (work / "kept").write_text("kept")
    (work / "changed").write_text("before")
    (work / "gone").mkdir()
    (work / "gone" / "inner").write_text("x")
    (work / "again").mkdir()
    (work / "again" / "old").write_text("x")
    result = own_jail.sh(
        "echo after > changed; rm -r gone; rm -r again; mkdir again; echo new > again/new;"
        " mkdir -p made/deep; echo x > made/deep/file; chmod 750 made; chmod 640 made/deep/file;"
        " ln -s changed link; umask 077; echo y > private"
    )
    found = _workspace(result)
    assert found.state == "committed"
    assert (found.created, found.modified, found.deleted) == (6, 1, 3)
    names = sorted(str(path.relative_to(work)) for path in work.rglob("*"))
    assert names == [
        *("again", "again/new", "changed", "kept", "link", "made", "made/deep", "made/deep/file"),
        "private",
    ]
    assert (work / "changed").read_text() == "after\n"
    assert os.readlink(work / "link") == "changed"
    modes = {name: stat.S_IMODE((work / name).stat().st_mode) for name in ("made", "private")}
    assert modes == {"made": 0o750, "private": 0o600}
    assert stat.S_IMODE((work / "made/deep/file").stat().st_mode) == 0o640
    for path in work.rglob("*"):
        assert (path.lstat().st_uid, path.lstat().st_gid) == (os.geteuid(), os.getegid()), path
        assert [
            each for each in os.listxattr(path, follow_symlinks=False) if "overlay" in each
        ] == []


def test_nothing_changed_is_said_and_leaves_nothing(own_jail: Jail) -> None:
    (own_jail.work / "file").write_text("x")
    result = own_jail.sh("cat file; touch -c missing; cp file /tmp/file; : >> file")
    assert _workspace(result).state == "unchanged"
    assert own_jail.runtime.transactions.all() == ()


def test_whatever_the_exit_code_says_what_was_done_is_committed(own_jail: Jail) -> None:
    result = own_jail.sh("echo half > done; exit 3")
    assert result.outcome is Outcome.TOOL_ERROR
    assert _workspace(result).state == "committed"
    assert (own_jail.work / "done").read_text() == "half\n"


ENDED = {
    "at the deadline": ("sleep 60", {"timeout": "1s"}),
    "for its memory": (
        "x=xxxxxxxx; while :; do x=$x$x; done",
        {"limits": {"sandbox.memory_mb": 64}},
    ),
    "for a violation": ("mount -t tmpfs none /tmp", {}),
}


@pytest.mark.parametrize("why", ENDED)
def test_what_a_tool_did_that_was_ended_is_dropped(own_jail: Jail, why: str) -> None:
    script, asked = ENDED[why]
    result = own_jail.sh(f"echo half > done; {script}", **asked)
    assert result.outcome is not Outcome.SUCCEEDED
    assert _workspace(result).state == "discarded"
    assert os.listdir(own_jail.work) == []


def test_a_project_may_want_that_too(own_jail: Jail) -> None:
    own_jail.close()
    add_settings(own_jail.root, '[workspace]\non_stop = "commit"\n')
    with own_jail.runtime.open(own_jail.root) as runtime:
        result = runtime.exec(
            "shell", stdin="echo half > done; sleep 60", cwd=own_jail.work, timeout="1s"
        )
    assert _workspace(result).state == "committed"
    assert (own_jail.work / "done").read_text() == "half\n"


@pytest.mark.parametrize("wanted", ["hold", "discard"])
def test_a_caller_may_look_first_or_drop_it(own_jail: Jail, wanted: str) -> None:
    result = own_jail.sh("echo x > new", changes=wanted)
    assert _workspace(result).state == {"hold": "held", "discard": "discarded"}[wanted]
    assert os.listdir(own_jail.work) == []
    transactions = own_jail.runtime.transactions
    if wanted == "hold":
        kept = transactions.find(result.execution_id)
        assert transactions.decide(kept, commit=True) == "committed"
        assert (own_jail.work / "new").read_text() == "x\n"
    else:
        assert transactions.all() == ()


def test_a_path_that_the_host_changed_meanwhile_is_not_overwritten(own_jail: Jail) -> None:
    file = own_jail.work / "both"
    file.write_text("before")
    up = threading.Event()

    def hear(_name: str, _chunk: bytes) -> None:
        file.write_text("the host's")
        up.set()

    script = "echo tool > both; echo tool > other; echo up; sleep 1"
    result = own_jail.sh(script, on_output=hear)
    assert up.is_set()
    found = _workspace(result)
    assert found.state == "conflict"
    assert found.why == (str(file),)
    assert file.read_text() == "the host's"
    assert not (own_jail.work / "other").exists()
    transactions = own_jail.runtime.transactions
    kept = transactions.find(result.execution_id)
    assert transactions.decide(kept, commit=True) == "conflict"
    assert transactions.decide(transactions.find(result.execution_id), commit=True, over=True) == (
        "committed"
    )
    assert file.read_text() == "tool\n"


REMOVED = {
    "a file": ("echo tool >> there/file", "there/file"),
    "a file that the tool closed": ("echo tool >> there/file; chmod 0 there/file", "there/file"),
    "a folder that the tool has filled": ("echo tool > there/new", "there"),
}


@pytest.mark.parametrize("what", REMOVED)
def test_what_the_host_removed_meanwhile_does_not_come_back(own_jail: Jail, what: str) -> None:
    script, path = REMOVED[what]
    there = own_jail.work / "there"
    there.mkdir()
    (there / "file").write_text("before\n")

    def hear(_name: str, _chunk: bytes) -> None:
        (there / "file").unlink()
        if path == "there":
            there.rmdir()

    result = own_jail.sh(f"{script}; echo up; sleep 1", on_output=hear)
    found = _workspace(result)
    assert found.state == "conflict", found
    assert found.why[0] == str(own_jail.work / path)
    assert not (own_jail.work / path).exists()
    kept = own_jail.runtime.transactions.find(result.execution_id)
    assert own_jail.runtime.transactions.decide(kept, commit=True, over=True) == "committed"
    assert (own_jail.work / path).exists()


@pytest.mark.parametrize("where", [".", "folder"])
@pytest.mark.parametrize("mark", ["user.overlay.opaque", "trusted.overlay.opaque"])
def test_a_tool_removes_nothing_by_marks_of_an_overlay(
    own_jail: Jail, where: str, mark: str
) -> None:
    """Not what it sees, and not what is denied to it."""
    folder = own_jail.work / where
    folder.mkdir(exist_ok=True)
    (folder / "seen").touch()
    (folder / "hidden").mkdir()
    (folder / "hidden" / "key").touch()
    program = f"""
import os
assert not os.path.exists({f"{where}/hidden/key"!r})
open({f"{where}/new"!r}, "w").close()
try:
    os.setxattr({where!r}, {mark!r}, b"y")
except OSError:
    print("refused")
"""
    result = own_jail.python(program, limits={"sandbox.filesystem.deny": [f"{where}/hidden"]})
    # Before Linux 6.7 an ordinary user's overlay refuses its own mark too.
    assert own_jail.said(result) == "refused" or mark.startswith("user")
    found = _workspace(result)
    assert (found.state, found.created, found.deleted) == ("committed", 1, 0)
    assert sorted(os.listdir(folder / "hidden")) == ["key"]
    assert (folder / "seen").exists()


RENAMED = {
    "": "mv file renamed",
    "into a new folder, and changed": "mkdir new; mv file new/renamed; echo more >> new/renamed",
    "and changed, while nothing else happens there": "mv d/file d/other; echo more >> d/other",
    "over another one": "mv file d/file",
}


@pytest.mark.parametrize("how", RENAMED)
def test_what_the_tool_renamed_was_not_removed_by_the_host(own_jail: Jail, how: str) -> None:
    folder = own_jail.work / "d"
    folder.mkdir()
    for file in (own_jail.work / "file", folder / "file"):
        file.write_text(f"before in {file.parent.name}\n")

    def hear(_name: str, _chunk: bytes) -> None:
        (own_jail.work / "by the host").touch()

    result = own_jail.sh(f"{RENAMED[how]}; echo up; sleep 1", on_output=hear)
    assert _workspace(result).state == "committed"
    assert (own_jail.work / "by the host").exists()


def test_twenty_at_once_commit_what_is_apart_and_lose_nothing_in_silence(own_jail: Jail) -> None:
    results: dict[int, Result] = {}

    def one(number: int) -> None:
        script = f"echo {number} > own-{number}; echo {number} >> shared; sleep 0.5"
        apart = own_jail.sh(f"echo {number} > apart-{number}")
        assert _workspace(apart).state == "committed", apart.workspace
        results[number] = own_jail.sh(script)

    (own_jail.work / "shared").write_text("")
    threads = [threading.Thread(target=one, args=(number,)) for number in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 20
    committed = [n for n, each in results.items() if _workspace(each).state == "committed"]
    conflicts = [n for n, each in results.items() if _workspace(each).state == "conflict"]
    assert sorted(committed + conflicts) == list(range(20))
    assert committed
    assert sorted(map(int, (own_jail.work / "shared").read_text().split())) == sorted(committed)
    for number in range(20):
        assert (own_jail.work / f"apart-{number}").exists()
        assert (own_jail.work / f"own-{number}").exists() == (number in committed)


def test_an_undo_brings_everything_back_unless_it_was_changed_since(own_jail: Jail) -> None:
    work = own_jail.work
    (work / "a").write_text("one")
    (work / "d").mkdir()
    (work / "d" / "b").write_text("two")
    before = _tree(work)
    result = own_jail.sh("echo x > a; rm -r d; mkdir new; echo y > new/file; chmod 600 a")
    after = _tree(work)
    assert after != before
    transactions = own_jail.runtime.transactions
    (work / "new" / "file").write_text("mine")
    with pytest.raises(Refused, match="was changed after this execution"):
        transactions.undo(transactions.find(result.execution_id))
    (work / "new" / "file").write_text("y\n")
    transactions.undo(transactions.find(result.execution_id))
    assert _tree(work) == before
    with pytest.raises(Refused, match="nothing to undo"):
        transactions.undo(transactions.find(result.execution_id))


def test_neither_set_id_bits_nor_pipes_are_taken_over(own_jail: Jail) -> None:
    result = own_jail.sh("cp /bin/true t; chmod 6755 t 2>/dev/null; mkfifo pipe; echo x > file")
    found = _workspace(result)
    assert found.state == "committed"
    assert found.left_out == (str(own_jail.work / "pipe"),)
    assert sorted(os.listdir(own_jail.work)) == ["file", "t"]
    assert stat.S_IMODE((own_jail.work / "t").stat().st_mode) & 0o7000 == 0


def test_files_that_are_closed_to_their_owner_come_out_closed(own_jail: Jail) -> None:
    result = own_jail.sh("echo x > file; mkdir d; echo y > d/f; chmod 000 file d/f; chmod 500 d")
    assert _workspace(result).state == "committed"
    work = own_jail.work
    modes = {name: stat.S_IMODE(os.lstat(work / name).st_mode) for name in ("file", "d", "d/f")}
    os.chmod(work / "d", 0o700)  # so that the folder can be removed
    assert modes == {"file": 0, "d": 0o500, "d/f": 0}


@pytest.mark.parametrize("count", [3_000])
def test_many_files_are_committed(own_jail: Jail, count: int) -> None:
    result = own_jail.python(
        f"import os\nfor n in range({count}): open('f%d' % n, 'w').write(str(n))", timeout="2m"
    )
    assert _workspace(result).created == count
    assert len(os.listdir(own_jail.work)) == count


def test_very_deep_folders_end_in_a_clear_state(own_jail: Jail) -> None:
    program = "import os\nfor _ in range(1_500): os.mkdir('d'); os.chdir('d')"
    found = _workspace(own_jail.python(program, timeout="1m"))
    # Python's own removal of folders, with which pytest cleans up, calls itself for each level.
    subprocess.run(["rm", "-rf", own_jail.work / "d"], check=True)
    assert found.state == "committed"
    assert found.created == 1_500


def test_what_was_committed_verifies_and_is_in_the_receipt(own_jail: Jail) -> None:
    result = own_jail.sh("echo x > new")
    assert all(finding.passed for finding in own_jail.runtime.verifier.verify_all())
    text = Path(result.receipt_path).read_text()
    import base64
    import json

    predicate = json.loads(base64.b64decode(json.loads(text)["payload"]))["predicate"]
    assert predicate["workspace"]["state"] == "committed"
    assert predicate["workspace"]["diff_sha256"] == _workspace(result).diff_sha256


def _tree(folder: Path) -> dict[str, tuple[int, bytes]]:
    def walk() -> Iterator[tuple[str, tuple[int, bytes]]]:
        for path in sorted(folder.rglob("*")):
            content = path.read_bytes() if path.is_file() else b""
            yield str(path.relative_to(folder)), (path.lstat().st_mode, content)

    return dict(walk())
