"""Killed before any system call, a transaction is wholly before or after, and so is its record.

Killed while a folder is copied, it leaves nothing.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from actum.workspace.copies import Bounds
from actum.workspace.kept_changes import decide, undo
from actum.workspace.retention import recover
from actum.workspace.transaction import Transaction
from actum.workspace.transaction_record import Kept

#: Ends itself before its n-th call that changes something. 0: never.
_PROGRAM = """
import os, signal, sys
from pathlib import Path
from actum.workspace.copies import Bounds
from actum.workspace.grant_layer import Layer
from actum.workspace.kept_changes import decide, undo
from actum.workspace.retention import Keep, recover
from actum.workspace.transaction import Transaction
from actum.workspace.transaction_record import Kept

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

def tell(kept):
    line = f"{kept.state} {kept.is_retired} {kept.record_sha256}\\n".encode()
    log = os.open(home / "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(log, line)
    os.close(log)

if what == "copy":
    begun = Transaction.begin(home, "e-2", [base])
    begun.copy(begun.layers[0], (base + "/d",), Bounds())
elif what == "commit":
    changing.commit(lambda changes: ())
elif what == "hold":
    changing.commit(lambda changes: ("a name",))
elif what == "undo":
    undo(Kept.find(home, "e-1"), tell)
elif what == "prune":
    recover(home, Keep(count=0, size_bytes=0), tell)
else:
    decide(Kept.find(home, "e-1"), commit_it=what == "decide", over=True, tell=tell)
print(count)
"""


def _prepared(folder: Path, engine: str) -> tuple[Path, Path]:
    """A home with a transaction that waits for its commit, as an engine leaves it."""
    home, base = folder / "home", folder / "base"
    home.mkdir()
    for name, text in (("changed", "before"), ("gone", "x"), ("d/inner", "y"), ("kept", "k")):
        (base / name).parent.mkdir(exist_ok=True, parents=True)
        (base / name).write_text(text)
    begun = Transaction.begin(home, "e-1", [str(base)])
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
        begun.commit(lambda changes: ("a name",))
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


#: What is done to a transaction before, and the state in which it is found when it was not.
FIRST = {
    "commit": (None, None),
    "hold": (None, None),
    "undo": ("commit", "committed"),
    "decide": ("hold", "held"),
    "discard": ("hold", "held"),
    "prune": ("commit", "committed"),
}
#: What is recorded of it when it was done: the state, and whether it is kept no longer.
RECORDED = {
    "undo": "undone False",
    "decide": "committed False",
    "discard": "held True",
    "prune": "committed True",
}
#: The list of what was copied is written with the first hold. So here a copy is always held.
COPY_CASES = ("decide", "discard", "undo")


@pytest.mark.parametrize(
    ("what", "engine"),
    [*((what, "overlay") for what in FIRST), *((what, "copy") for what in COPY_CASES)],
)
def test_killed_at_any_call_it_is_before_or_after(tmp_path: Path, what: str, engine: str) -> None:
    if engine == "overlay" and os.geteuid() != 0:
        pytest.skip("only root can make the whiteouts that a kernel leaves")
    template = tmp_path / "template"
    template.mkdir()
    home, base = _prepared(template, engine)
    first, waiting = FIRST[what]
    if first:
        assert _run(home, base, first, 0).returncode == 0
    before = _tree(base)
    folder = tmp_path / "trial"
    calls, after = 0, {}
    ends = {"before": 0, "after": 0}
    number = 0
    while number <= calls:
        subprocess.run(["cp", "-a", template, folder], check=True)  # whiteouts too
        _at(folder)
        ended = _run(folder / "home", folder / "base", what, number)
        if number == 0:
            assert ended.returncode == 0, ended.stderr
            calls, after = int(ended.stdout), _tree(folder / "base")
            assert (after == before) == (what in ("discard", "prune", "hold"))
        else:
            assert ended.returncode == -signal.SIGKILL, ended.stderr
            told: list[str] = []
            _recover(folder / "home", told)
            found = _tree(folder / "base")
            assert found in (before, after), (number, found)
            kept = Kept.find(folder / "home", "e-1")
            done = found == after if after != before else (kept is None) == (what != "hold")
            ends["after" if done else "before"] += 1
            _require_nothing_left(folder / "home", kept, engine)
            if done:
                _require_recorded(folder / "home", what, kept, told)
            elif waiting is None:
                assert kept is None
            else:
                assert kept is not None
                assert kept.state == waiting
                _require_usable(folder, kept, what, before)
            _recover(folder / "home", told)  # once more: there is nothing left to do
        shutil.rmtree(folder)
        number += 1
    assert ends["before"]
    # A record is all that a hold writes: its last call is the one that names it.
    assert ends["after"] or what == "hold"


def _recover(home: Path, told: list[str]) -> None:
    recover(
        home, tell=lambda kept: told.append(f"{kept.state} {kept.is_retired} {kept.record_sha256}")
    )


def _require_recorded(home: Path, what: str, kept: Kept | None, told: list[str]) -> None:
    log = home / "log"
    lines = [*(log.read_text().splitlines() if log.exists() else ()), *told]
    if what in ("commit", "hold"):
        assert kept is not None
        assert kept.state == {"commit": "committed", "hold": "held"}[what]
        return  # its receipt records it
    assert lines
    assert lines[-1].startswith(RECORDED[what])
    if kept is not None:
        assert lines[-1].endswith(kept.record_sha256)


def _require_usable(folder: Path, kept: Kept, what: str, before: dict[str, str]) -> None:
    """Changes that still wait can be committed, and those that are committed can be undone."""
    if kept.waits:
        assert decide(kept, commit_it=True, over=True) == "committed"
        kept = Kept.find(folder / "home", "e-1") or kept
        assert (folder / "base" / "changed").read_text() == "after"
    undo(kept)
    assert (folder / "base" / "changed").read_text() == "before"
    if what == "decide":
        assert _tree(folder / "base") == before


def _require_nothing_left(home: Path, kept: Kept | None, engine: str) -> None:
    """No intent; layers only of what waits; no folder at all of what was dropped."""
    folder = home / "transactions" / "e-1"
    assert folder.exists() == (kept is not None)
    assert not (folder / "intent.json").exists()
    waits = kept is not None and kept.waits
    assert waits or not (folder / "0" / "new").exists()
    for name in ("lower", "upper", "work", *(["copy", "copied.json"] if engine == "copy" else [])):
        assert (folder / "0" / name).exists() == waits, name


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
        recover(home)
        assert sorted(path.name for path in (home / "transactions").iterdir()) == ["lock"]
        assert _tree(base) == before
    assert killed_within


def _at(folder: Path) -> None:
    """Let a copied transaction speak of the copied base."""
    for name in ("record.json", "intent.json"):
        file = folder / "home" / "transactions" / "e-1" / name
        if file.exists():
            record = json.loads(file.read_text())
            record["home"] = str(folder / "home")
            record["layers"] = [[str(folder / "base"), room] for _grant, room in record["layers"]]
            for each in record["changes"]:
                each["grant"] = str(folder / "base")
            file.write_text(json.dumps(record))
