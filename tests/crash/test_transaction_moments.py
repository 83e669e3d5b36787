"""Killed before any system call of a commit or an undo, a transaction is wholly before or after.

Killed while a folder is copied, it leaves nothing."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from actum.workspace import transaction
from actum.workspace.copies import Bounds
from actum.workspace.transaction import Kept

#: Ends itself before its n-th call that changes something. 0: never.
_PROGRAM = """
import os, signal, sys
from pathlib import Path
from actum.workspace.copies import Bounds
from actum.workspace.transaction import Kept, Layer, Transaction

home, base, what, last = Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
count = 0

def before(call):
    def counted(*words, **named):
        global count
        count += 1
        if count == last:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*words, **named)
    return counted

folder = home / "transactions" / "e-1"
changing = Transaction(folder, (Layer(grant=base, folder=str(folder / "0")),), 2**62)
for name in ("rename", "replace", "link", "unlink", "mkdir", "rmdir", "chmod", "fchmod", "chown",
             "symlink", "ftruncate", "removexattr", "write"):
    setattr(os, name, before(getattr(os, name)))
if what == "copy":
    begun = Transaction.begin(home, "e-2", [base])
    begun.copy(begun.layers[0], (base + "/d",), Bounds())
    state = "copied"
elif what == "commit":
    state = changing.commit(lambda changes: ())[1]
elif what == "hold":
    state = changing.commit(lambda changes: ("changed",))[1]
elif what == "decide":
    state = Kept.find(home, "e-1").decide(commit_it=True, over=True)
else:
    Kept.find(home, "e-1").undo()
    state = "undone"
print(count, state)
"""


def _prepared(folder: Path, engine: str) -> tuple[Path, Path]:
    """A home with a transaction that waits for its commit, as an engine leaves it."""
    home, base = folder / "home", folder / "base"
    home.mkdir()
    for name, text in (("changed", "before"), ("gone", "x"), ("d/inner", "y"), ("kept", "k")):
        (base / name).parent.mkdir(exist_ok=True, parents=True)
        (base / name).write_text(text)
    begun = transaction.Transaction.begin(home, "e-1", [str(base)])
    if engine == "copy":
        begun.copy(begun.layers[0], (), Bounds())
        begun.wait()
    written = Path(begun.layers[0].tree)
    (written / "changed").write_text("after")
    (written / "made" / "deep").mkdir(parents=True)
    (written / "made" / "deep" / "file").write_text("new")
    (written / "link").symlink_to("changed")
    if engine == "copy":
        (written / "gone").unlink()
        (written / "d" / "inner").unlink()
        (written / "d").rmdir()
        # What the process that made the copy knows of it, for those that commit it here.
        begun.hold(begun.look(), "held", ())
    else:
        for name in ("gone", "d"):
            os.mknod(written / name, 0o600 | 0o020000, 0)  # a whiteout
    # Its process is gone when recovery looks.
    (begun.folder / "owner").unlink()
    return home, base


def _tree(base: Path) -> dict[str, str]:
    return {
        str(path.relative_to(base)): os.readlink(path)
        if path.is_symlink()
        else path.read_text()
        if path.is_file()
        else "/"
        for path in sorted(base.rglob("*"))
    }


def _run(home: Path, base: Path, what: str, last: int) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-c", _PROGRAM, str(home), str(base), what, str(last)]
    return subprocess.run(words, capture_output=True, text=True, check=False)


#: What has to happen before, and the states of the transaction before and after.
CASES: dict[str, tuple[str, str | None, str]] = {
    "commit": ("", None, "committed"),
    "hold": ("", None, "held"),
    "decide": ("hold", "held", "committed"),
    "undo": ("commit", "committed", "undone"),
}
#: The list of what was copied is written with the first hold. So here a copy is always held.
COPY_CASES = ("decide", "undo")


@pytest.mark.parametrize(
    ("what", "engine"),
    [*((what, "overlay") for what in CASES), *((what, "copy") for what in COPY_CASES)],
)
def test_killed_at_any_call_it_is_before_or_after(tmp_path: Path, what: str, engine: str) -> None:
    if engine == "overlay" and os.geteuid() != 0:
        pytest.skip("only root can make the whiteouts that a kernel leaves")
    earlier, state_before, state_after = CASES[what]
    template = tmp_path / "template"
    template.mkdir()
    home, base = _prepared(template, engine)
    if earlier:
        assert _run(home, base, earlier, 0).returncode == 0
    before = _tree(base)
    trial = _copied(template, tmp_path / "unharmed")
    ended = _run(*trial, what, 0)
    assert ended.returncode == 0, ended.stderr
    calls, after = int(ended.stdout.split()[0]), _tree(trial[1])
    assert (after == before) == (what == "hold")
    ends = {"before": 0, "after": 0}
    for number in range(1, calls + 1):
        folder = tmp_path / "trial"
        trial = _copied(template, folder)
        ended = _run(*trial, what, number)
        assert ended.returncode == -signal.SIGKILL, ended.stderr
        transaction.recover(trial[0])
        found, kept = _tree(trial[1]), Kept.find(trial[0], "e-1")
        assert found in (before, after), (number, found)
        state = None if kept is None else kept.state
        if found == after and state == state_after:
            ends["after"] += 1
        else:
            ends["before"] += 1
            assert (found, state) == (before, state_before), number
        _require_nothing_left(trial[0], state, engine)
        transaction.recover(trial[0])
        assert _tree(trial[1]) == found
        if state == state_before and state is not None:
            # It is as if nobody had tried: the next one succeeds.
            again = _run(*trial, what, 0)
            assert again.returncode == 0, (number, again.stderr)
            assert _tree(trial[1]) == after
        shutil.rmtree(folder)
    # A record is all that a hold writes: its last call is the one that names it.
    assert ends["before"] and (ends["after"] or what == "hold")


def _copied(template: Path, folder: Path) -> tuple[Path, Path]:
    subprocess.run(["cp", "-a", template, folder], check=True)  # whiteouts too
    _at(folder)
    return folder / "home", folder / "base"


def _require_nothing_left(home: Path, state: str | None, engine: str) -> None:
    """No stage, no intent; layers only of what waits; no folder at all of what was dropped."""
    folder = home / "transactions" / "e-1"
    assert folder.exists() == (state is not None)
    for name in ("intent.json", "0/new"):
        assert not (folder / name).exists(), name
    for name in ("lower", "upper", "work", *(["copy", "copied.json"] if engine == "copy" else [])):
        assert (folder / "0" / name).exists() == (state == "held"), name


def test_killed_at_any_call_of_copying_it_leaves_nothing(tmp_path: Path) -> None:
    home, base = tmp_path / "home", tmp_path / "base"
    home.mkdir()
    for name in ("a", "d/inner", "e/f/g"):
        (base / name).parent.mkdir(exist_ok=True, parents=True)
        (base / name).write_text(name)
    (base / "link").symlink_to("a")
    os.link(base / "a", base / "e" / "twin")
    before = _tree(base)
    ended = _run(home, base, "copy", 0)
    assert ended.returncode == 0, ended.stderr
    calls, killed_within = int(ended.stdout.split()[0]), 0
    for number in range(1, calls + 1):
        assert _run(home, base, "copy", number).returncode == -signal.SIGKILL
        killed_within += any((home / "transactions").glob("e-2/0/copy/*"))
        transaction.recover(home)
        assert sorted(path.name for path in (home / "transactions").iterdir()) == ["lock"]
        assert _tree(base) == before
    assert killed_within


def _at(folder: Path) -> None:
    """Let a copied transaction speak of the copied base."""
    for name in ("record.json", "intent.json"):
        file = folder / "home" / "transactions" / "e-1" / name
        if file.exists():
            record = json.loads(file.read_text())
            record["layers"] = [[str(folder / "base"), room] for _grant, room in record["layers"]]
            for each in record["changes"]:
                each["grant"] = str(folder / "base")
            file.write_text(json.dumps(record))
