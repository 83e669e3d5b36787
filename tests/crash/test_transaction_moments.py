"""Killed before any system call of a commit or an undo, a transaction is wholly before or after."""

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
from actum.workspace.transaction import Kept

#: Ends itself before its n-th call that changes something. 0: never.
_PROGRAM = """
import os, signal, sys
from pathlib import Path
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
if what == "commit":
    state = changing.commit(lambda changes: ())[1]
else:
    Kept.find(home, "e-1").undo()
    state = "undone"
print(count, state)
"""


def _prepared(folder: Path) -> tuple[Path, Path]:
    """A home with a transaction that waits for its commit, as an overlay leaves it."""
    home, base = folder / "home", folder / "base"
    home.mkdir()
    for name, text in (("changed", "before"), ("gone", "x"), ("d/inner", "y"), ("kept", "k")):
        (base / name).parent.mkdir(exist_ok=True, parents=True)
        (base / name).write_text(text)
    begun = transaction.Transaction.begin(home, "e-1", [str(base)])
    upper = Path(begun.layers[0].folder) / "upper"
    (upper / "changed").write_text("after")
    (upper / "made" / "deep").mkdir(parents=True)
    (upper / "made" / "deep" / "file").write_text("new")
    (upper / "link").symlink_to("changed")
    for name in ("gone", "d"):
        os.mknod(upper / name, 0o600 | 0o020000, 0)  # a whiteout
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


@pytest.mark.parametrize("what", ["commit", "undo"])
def test_killed_at_any_call_it_is_before_or_after(tmp_path: Path, what: str) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can make the whiteouts that a kernel leaves")
    template = tmp_path / "template"
    template.mkdir()
    home, base = _prepared(template)
    before = _tree(base)
    if what == "undo":
        assert _run(home, base, "commit", 0).returncode == 0
        before = _tree(base)
    whole = tmp_path / "whole"
    calls, after = 0, {}
    ends = {"before": 0, "after": 0}
    number = 0
    while True:
        folder = tmp_path / "trial"
        subprocess.run(["cp", "-a", template, folder], check=True)  # whiteouts too
        _at(folder)
        ended = _run(folder / "home", folder / "base", what, number)
        if number == 0:
            assert ended.returncode == 0, ended.stderr
            calls, after = int(ended.stdout.split()[0]), _tree(folder / "base")
            assert after != before
            shutil.move(folder, whole)
        else:
            assert ended.returncode == -signal.SIGKILL, ended.stderr
            transaction.recover(folder / "home")
            found = _tree(folder / "base")
            assert found in (before, after), (number, found)
            ends["after" if found == after else "before"] += 1
            kept = Kept.find(folder / "home", "e-1")
            if found == after:
                assert kept is not None
                assert kept.state == {"commit": "committed", "undo": "undone"}[what]
            elif what == "commit":
                assert kept is None or kept.state == "committed"
            transaction.recover(folder / "home")
            assert _tree(folder / "base") == found
            shutil.rmtree(folder)
        number += 1
        if number > calls:
            break
    assert ends["before"] and ends["after"]


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
