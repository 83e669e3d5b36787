"""Interpreters that wait where changes are a transaction: each in layers of its own, used once.

An overlay does not notice that another program changes what is below it, once it has looked. So
these tests change everything a program could see between the start of the interpreter that waits
and the request that it serves.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from actum import Result, Runtime
from actum.capture.model import Workspace
from actum.contract.model import RunnerKind
from actum.registry.approval_workflow import approve
from actum.runners import warm
from actum.runners.local import LocalRunner
from actum.runners.warm import Warm
from actum.store.keys import Keyring
from hostile.jail import Jail, until

pytestmark = pytest.mark.sandbox

#: Who waits for its program waits at a pipe; who is started for it finds a file.
_SAY_WHETHER_IT_WAITED = (
    "import os, stat, sys; print(stat.S_ISFIFO(os.fstat(0).st_mode), file=sys.stderr)\n"
)


@pytest.fixture
def jail(tmp_path: Path, probe: Path) -> Iterator[Jail]:
    jail = Jail(tmp_path, probe, pool=True, transactions=True)
    yield jail
    jail.close()


def waiting(runtime: Runtime) -> list[Warm]:
    runner = runtime.services.runners[RunnerKind.LOCAL]
    assert isinstance(runner, LocalRunner) and runner._warm is not None
    with runner._warm._guard:
        return [one for each in runner._warm._waiting.values() for one in each]


def rests(jail: Jail) -> bool:
    """Whether as many wait as are wanted, and nothing is left of those that were used."""
    runner = jail.runtime.services.runners[RunnerKind.LOCAL]
    assert isinstance(runner, LocalRunner) and runner._warm is not None
    wanted = max(runner._warm._wanted.values(), default=2)
    idle = not runner._warm._due and not runner._left
    return idle and len(waiting(jail.runtime)) >= wanted and runner._warm._left.empty()


def folders(jail: Jail) -> list[Path]:
    """Those of layers in which interpreters wait."""
    transactions = jail.root / ".actum" / "transactions"
    return sorted(transactions.glob("waiting-*"))


def ask(jail: Jail, program: str, *, cwd: Path | None = None) -> Result:
    return jail.python(_SAY_WHETHER_IT_WAITED + program, cwd=cwd or jail.work)


def waited(result: Result) -> bool:
    assert result.result is not None, result.violations
    return result.result.stderr.startswith("True")


def workspace(result: Result) -> Workspace:
    assert result.workspace is not None
    return result.workspace


def let_some_wait(jail: Jail, cwd: Path | None = None) -> None:
    """Ask until interpreters wait for the next program in this folder, and nothing more."""
    until(lambda: waited(ask(jail, "pass", cwd=cwd)), "an interpreter that waits")
    until(lambda: rests(jail), "the next ones")
    until(lambda: len(folders(jail)) == len(waiting(jail.runtime)), "the removal of used folders")


def test_what_its_program_changes_is_committed(jail: Jail) -> None:
    (jail.work / "changed").write_text("before")
    (jail.work / "gone").write_text("x")
    let_some_wait(jail)
    result = ask(
        jail,
        "import os; open('changed', 'a').write(' and after'); os.remove('gone')\n"
        "os.mkdir('made'); open('made/file', 'w').write('new')",
    )
    assert waited(result)
    found = workspace(result)
    assert (found.state, found.created, found.modified, found.deleted) == ("committed", 2, 1, 1)
    assert (jail.work / "changed").read_text() == "before and after"
    assert (jail.work / "made" / "file").read_text() == "new"
    assert not (jail.work / "gone").exists()
    for path in jail.work.rglob("*"):
        assert (path.stat().st_uid, path.stat().st_gid) == (os.geteuid(), os.getegid()), path
    jail.runtime.transactions.undo(jail.runtime.transactions.find(result.execution_id))
    assert (jail.work / "changed").read_text() == "before"


def _replace(path: Path, text: str) -> None:
    """As an editor saves."""
    new = path.with_name("new-content")
    new.write_text(text)
    new.rename(path)


def _replace_folder(path: Path) -> None:
    path.rename(path.with_name("moved-away"))
    path.mkdir()
    (path / "file").write_text("in another folder")


HOST: dict[str, Callable[[Path], object]] = {
    "creates a file": lambda work: (work / "new").write_text("new"),
    "creates a folder": lambda work: (work / "a" / "b").mkdir(parents=True),
    "creates in a folder": lambda work: (work / "folder" / "new").write_text("new"),
    "changes a file": lambda work: (work / "file").write_text("changed"),
    "changes a file in a folder": lambda work: (work / "folder" / "file").write_text("changed"),
    "replaces a file": lambda work: _replace(work / "file", "replaced"),
    "replaces a file in a folder": lambda work: _replace(work / "folder" / "file", "replaced"),
    "replaces a folder": lambda work: _replace_folder(work / "folder"),
    "replaces a file by a folder": lambda work: (
        (work / "file").unlink(),
        (work / "file").mkdir(),
    ),
    "replaces a file by a link": lambda work: (
        (work / "file").unlink(),
        (work / "file").symlink_to("folder/file"),
    ),
    "removes a file": lambda work: (work / "file").unlink(),
    "removes a folder": lambda work: shutil.rmtree(work / "folder"),
    "renames a file": lambda work: (work / "file").rename(work / "other-name"),
    "changes a mode": lambda work: (work / "file").chmod(0o604),
    "makes a module": lambda work: (work / "module.py").write_text("found = 'a module'"),
}

_TELL = """
import json, os, stat
seen = {}
for folder, folders, files in os.walk('.'):
    for name in folders + files:
        path = os.path.join(folder, name)
        mode = stat.S_IMODE(os.lstat(path).st_mode)
        seen[path] = [mode, os.readlink(path) if os.path.islink(path)
                      else 'folder' if os.path.isdir(path) else open(path).read()]
try:
    import module
    seen['module'] = module.found
except ImportError:
    pass
print(json.dumps(seen, sort_keys=True))
"""


def _told_outside(jail: Jail) -> object:
    program = [sys.executable, "-B", "-"]
    told = subprocess.run(program, input=_TELL, capture_output=True, text=True, cwd=jail.work)
    return json.loads(told.stdout)


@pytest.mark.parametrize("what", HOST)
def test_what_the_host_does_meanwhile_is_seen_and_is_no_conflict(jail: Jail, what: str) -> None:
    (jail.work / "file").write_text("content")
    (jail.work / "folder").mkdir()
    (jail.work / "folder" / "file").write_text("content")
    let_some_wait(jail)
    before = _told_outside(jail)
    HOST[what](jail.work)
    now = _told_outside(jail)
    assert now != before
    # With -B in mind: the program writes a file of its own, and bytecode of a module.
    result = ask(jail, _TELL)
    assert waited(result)
    assert json.loads(jail.said(result)) == now
    # And what the host has just changed may be changed by a program, which saw it.
    changes = (
        "import os\n"
        "for folder, _folders, files in os.walk('.'):\n"
        "    for name in files:\n"
        "        path = os.path.join(folder, name)\n"
        "        if not os.path.islink(path): open(path, 'a').write('+')\n"
        "open('mine', 'w').write('x')\n"
    )
    until(lambda: rests(jail), "the next ones")
    HOST["creates in a folder"](jail.work) if (jail.work / "folder").is_dir() else None
    result = ask(jail, changes)
    assert waited(result)
    assert (workspace(result).state, workspace(result).why) == ("committed", ())
    assert (jail.work / "mine").read_text() == "x"


def test_what_another_execution_has_committed_meanwhile_is_seen(jail: Jail) -> None:
    (jail.work / "counter").write_text("0")
    let_some_wait(jail)
    served = 0
    for number in range(1, 7):
        if number % 2:
            assert workspace(jail.sh(f"echo {number} > counter")).state == "committed"
        else:
            result = ask(
                jail, "n = int(open('counter').read()); open('counter', 'w').write(f'{n + 1}')"
            )
            assert workspace(result).state == "committed"
            served += waited(result)
        assert int((jail.work / "counter").read_text()) == number
        until(lambda: len(waiting(jail.runtime)) >= 2, "the next ones")
    assert served == 3


def test_a_path_that_the_host_changes_while_the_program_runs_is_a_conflict(jail: Jail) -> None:
    (jail.work / "both").write_text("before")
    let_some_wait(jail)
    up = threading.Event()

    def hear(name: str, _chunk: bytes) -> None:
        if name == "stdout":
            (jail.work / "both").write_text("the host's")
            up.set()

    program = (
        "import time\nopen('both', 'w').write('mine'); open('other', 'w')\n"
        "print('up', flush=True); time.sleep(0.5)"
    )
    result = jail.python(_SAY_WHETHER_IT_WAITED + program, on_output=hear)
    assert up.is_set() and waited(result)
    assert workspace(result).state == "conflict"
    assert workspace(result).why == (str(jail.work / "both"),)
    assert (jail.work / "both").read_text() == "the host's"
    assert not (jail.work / "other").exists()


def _another_folder(folder: Path) -> None:
    """Another folder takes the place of one, with the same files in it."""
    folder.rename(folder.with_name("away"))
    folder.mkdir()
    for each in folder.with_name("away").iterdir():
        each.rename(folder / each.name)


def _anew(folder: Path) -> None:
    for path in (folder / "outer" / "closed", folder / "outer"):
        path.rmdir()
    folder.rmdir()
    (folder / "outer" / "closed").mkdir(parents=True)


WAY: dict[str, Callable[[Path], object]] = {
    "nothing": lambda work: None,
    "another file beside the way": lambda work: (work / "outer" / "beside").write_text("x"),
    "another folder on the way": lambda work: _another_folder(work / "outer"),
    "the mode of a folder on the way": lambda work: (work / "outer").chmod(0o750),
    "another working directory": _anew,
    "the mode of the working directory": lambda work: work.chmod(0o750),
}


def _served(monkeypatch: pytest.MonkeyPatch) -> list[Warm]:
    """The interpreters that serve requests from now on."""
    served: list[Warm] = []
    joins = Warm.joins

    def noted(one: Warm, layers: dict[str, str]) -> bool:
        joined = joins(one, layers)
        if joined:
            served.append(one)
        return joined

    monkeypatch.setattr(Warm, "joins", noted)
    return served


@pytest.mark.parametrize("what", WAY)
def test_one_that_has_looked_up_what_is_no_more_serves_nobody(
    jail: Jail, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its overlay would go on showing what was there when it came. It has looked up its working
    directory, and the way to what is closed to it."""
    served = _served(monkeypatch)
    (jail.work / "outer" / "closed").mkdir(parents=True)
    look = (
        "import json, os, stat\n"
        "told = [[stat.S_IMODE(os.stat(p).st_mode), sorted(os.listdir(p))]"
        " for p in ('.', 'outer', os.getcwd())]\n"
        "try: os.listdir('outer/closed')\n"
        "except PermissionError: told.append('closed')\n"
        "print(json.dumps(told))"
    )

    def ask_so(program: str) -> Result:
        denied = {"sandbox.filesystem.deny": ["outer/closed"]}
        return jail.python(_SAY_WHETHER_IT_WAITED + program, limits=denied)

    until(lambda: waited(ask_so("pass")), "an interpreter that waits")
    until(lambda: rests(jail), "the next ones")
    before = waiting(jail.runtime)
    served.clear()
    WAY[what](jail.work)
    (jail.work / "new").write_text("")
    result = ask_so(look)
    # One that was started after the change may serve: the thread looks again before it starts one.
    is_old = any(one is each for one in served for each in before)
    assert is_old is (what in ("nothing", "another file beside the way"))
    assert workspace(result).state == "unchanged"
    *seen, closed = json.loads(jail.said(result))
    assert closed == "closed"
    for place, (mode, names) in zip((".", "outer", "."), seen, strict=True):
        assert mode == stat.S_IMODE((jail.work / place).stat().st_mode)
        assert names == sorted(os.listdir(jail.work / place))


def test_no_two_requests_share_layers(jail: Jail, monkeypatch: pytest.MonkeyPatch) -> None:
    used: list[str] = []
    joins = Warm.joins

    def noted(one: Warm, layers: dict[str, str]) -> bool:
        joined = joins(one, layers)
        if joined:
            assert one.layers is not None
            used.append(one.layers.folder.name)
        return joined

    monkeypatch.setattr(Warm, "joins", noted)
    let_some_wait(jail)

    def one(number: int) -> Result:
        return ask(jail, f"import time; open('mine-{number}', 'w').write('x'); time.sleep(0.05)")

    with ThreadPoolExecutor(4) as threads:
        results = list(threads.map(one, range(16)))
    assert {workspace(each).state for each in results} == {"committed"}
    assert [workspace(each).created for each in results] == [1] * 16
    assert len(list(jail.work.glob("mine-*"))) == 16
    assert len(used) >= 2 and len(set(used)) == len(used)


def test_the_runtime_leaves_no_folder_of_theirs(jail: Jail) -> None:
    let_some_wait(jail)
    assert folders(jail)
    jail.close()
    assert folders(jail) == []
    assert os.listdir(jail.root / ".actum" / "transactions") in (["lock"], [])


def test_one_that_ends_while_it_waits_leaves_no_folder(
    jail: Jail, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(warm, "_LOOK_S", 0.05)
    let_some_wait(jail)
    doomed = waiting(jail.runtime)
    names = {one.layers.folder for one in doomed if one.layers is not None}
    assert len(names) == len(doomed)
    # By descriptors of our own: the thread that looks after them closes theirs.
    inits = [os.dup(one.sandbox.pidfd) for one in doomed]
    for init in inits:
        signal.pidfd_send_signal(init, signal.SIGKILL)
    for init in inits:
        assert select.select([init], [], [], 60)[0]
        os.close(init)
    # The thread that looks may still wait for the old interval; a request wakes it.
    ask(jail, "pass")
    until(lambda: not any(name.exists() for name in names), "the end of their folders")


def test_one_that_has_waited_too_long_leaves_no_folder(
    jail: Jail, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_some_wait(jail)
    old = {one.layers.folder for one in waiting(jail.runtime) if one.layers is not None}
    monkeypatch.setattr(warm, "_KEEP_S", 0.0)
    # Making those of another folder makes room first.
    other = jail.fresh_work()
    until(lambda: ask(jail, "pass", cwd=other) and not any(each.exists() for each in old), "it")


def test_one_that_could_have_written_already_serves_nobody(
    jail: Jail, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_some_wait(jail)
    joins, asked = Warm.joins, []

    def planted(one: Warm, layers: dict[str, str]) -> bool:
        assert one.layers is not None
        (room,) = one.layers.folders.values()
        (Path(room) / "upper" / "planted").write_text("x")
        asked.append(one.layers.folder)
        return joins(one, layers)

    monkeypatch.setattr(Warm, "joins", planted)
    result = ask(jail, "import os; print(os.listdir())")
    assert asked and not waited(result)
    assert jail.said(result) == "[]"
    assert workspace(result).state == "unchanged"
    assert not any(folder.exists() for folder in asked)


_KILLED = """
import os, signal, sys, time
from pathlib import Path
from actum import Runtime

root, work = sys.argv[1:]
runtime = Runtime.open(Path(root))
folder = Path(root) / ".actum" / "transactions"
until = time.monotonic() + 60
while not list(folder.glob("waiting-*")):
    assert time.monotonic() < until
    runtime.exec("python", stdin="pass", cwd=work).check()
    time.sleep(0.1)
print("up", flush=True)
sys.stdin.read()
"""


def test_killed_it_leaves_folders_that_the_next_one_removes(jail: Jail) -> None:
    jail.close()
    words = [sys.executable, "-c", _KILLED, str(jail.root), str(jail.work)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None and other.stdout.readline() == b"up\n"
        left = folders(jail)
        assert left
        # While their owner lives, they are its own.
        with Runtime.open(jail.root) as runtime:
            runtime.sweep()
            assert set(left) <= set(folders(jail))
        other.send_signal(signal.SIGKILL)
        other.wait()
    assert set(left) <= set(folders(jail))
    until(lambda: not _swept(jail), "the removal")


def _swept(jail: Jail) -> list[Path]:
    """What is left when the next runtime has opened. The dead one's sandboxes may still be going,
    and what they hold is removed all the same."""
    with Runtime.open(jail.root, pool=False):
        return folders(jail)


def test_a_snippet_that_may_write_finds_one_too_unless_it_imports_ahead(jail: Jail) -> None:
    file = jail.root / "tools" / "snippet" / "tool.yaml"
    text = file.read_text().replace("write: []", 'write: ["."]')
    file.write_text(text.replace("data_access: read", "data_access: write"))
    keyring = Keyring.open(jail.root / ".actum")
    approve(jail.root, keyring, "snippet", by="user:other", evidence="e", date="2026-11-15")
    order = json.dumps(
        {
            "code": "import os, module\nprint(sorted(os.listdir()), module.found)\n"
            "open('made', 'a').write('x')",
            "params": {},
            "files": {},
        }
    ).encode()

    def snippet(*modules: str) -> Result:
        return jail.runtime.exec("snippet", *modules, stdin=order, cwd=jail.work)

    (jail.work / "module.py").write_text("found = 0")
    snippet("math").check()
    time.sleep(0.3)
    assert waiting(jail.runtime) == []  # it might have looked for its module here
    snippet().check()
    for number in range(1, 4):
        until(lambda: len(waiting(jail.runtime)) >= 2, "the next ones")
        held = {id(one) for one in waiting(jail.runtime)}
        (jail.work / "module.py").unlink()
        (jail.work / "module.py").write_text(f"found = {10**number}")
        (jail.work / f"file-{number}").write_text("")
        said = jail.said(snippet())
        assert f"'file-{number}'" in said and said.endswith(f" {10**number}")
        assert not held <= {id(one) for one in waiting(jail.runtime)}
        assert (jail.work / "made").read_text() == "x" * (number + 2)
