"""Twenty executions at once in one folder, of one process and of twenty: each result has its state.

All of them have started before the first one is let go on, so none can see what another one has
committed. A tool says on its standard output that it is up. It goes on when a file appears in a
part of the project that it can only read, where it sees the host's files themselves.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from actum import Runtime
from actum.contract.model import RunnerKind
from actum.project import create
from actum.workspace.transaction_record import Kept
from common.settings import add_settings
from hostile.jail import mounts_below, until

pytestmark = pytest.mark.sandbox

COUNT = 20
_WAIT = "echo up; until [ -e ../go ]; do sleep 0.05; done; "
#: One execution in a process of its own.
_PROGRAM = """
import json, sys
from actum import Runtime

root, folder, script = sys.argv[1:]
with Runtime.open(root, pool=False) as runtime:
    hear = lambda _stream, _chunk: print("up", flush=True)
    result = runtime.exec("shell", stdin=script, cwd=folder, on_output=hear, timeout="300s")
    workspace = result.workspace
    print(json.dumps([result.ok, workspace.state, workspace.why, result.execution_id]))
"""

#: (whether the tool succeeded, state, why, execution)
Ended = tuple[bool, str, tuple[str, ...], str]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    tmp_path.chmod(0o755)
    root = tmp_path / "project"
    create(root, RunnerKind.LOCAL, by="user:test", date="2026-11-18")
    add_settings(root, f"\n[limits]\nmax_concurrent = {COUNT}\n")
    (root / "work").mkdir()
    return root


def _in_one_runtime(root: Path, scripts: list[str]) -> list[Ended]:
    ended: dict[int, Ended] = {}
    up: set[int] = set()
    with Runtime.open(root) as runtime:

        def one(number: int) -> None:
            result = runtime.exec(
                "shell",
                stdin=scripts[number],
                cwd=root / "work",
                timeout="300s",
                on_output=lambda _stream, _chunk: up.add(number),
            )
            assert result.workspace is not None, result.violations
            found = result.workspace
            ended[number] = (result.ok, found.state, found.why, result.execution_id)

        threads = [threading.Thread(target=one, args=(number,)) for number in range(len(scripts))]
        for thread in threads:
            thread.start()
        until(lambda: len(up) == len(scripts), "the start of all tools")
        (root / "go").touch()
        for thread in threads:
            thread.join()
    return [ended[number] for number in range(len(scripts))]


def _in_many_processes(root: Path, scripts: list[str]) -> list[Ended]:
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, str(root), str(root / "work"), script],
            stdout=subprocess.PIPE,
            text=True,
        )
        for script in scripts
    ]
    try:
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "up\n"
        (root / "go").touch()
        answers: list[Any] = [process.communicate()[0].splitlines() for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    found = [json.loads(lines[-1]) for lines in answers]
    return [(ok, state, tuple(why), execution) for ok, state, why, execution in found]


AT_ONCE = {"one runtime": _in_one_runtime, "many processes": _in_many_processes}


@pytest.fixture(params=AT_ONCE)
def at_once(request: pytest.FixtureRequest, project: Path) -> Iterator[Callable[..., list[Ended]]]:
    yield lambda scripts: AT_ONCE[request.param](project, [_WAIT + each for each in scripts])
    home = project / ".actum"
    states = {kept.folder: kept.state for kept in Kept.all(home)}
    assert {path for path in (home / "transactions").iterdir() if path.is_dir()} == states.keys()
    for folder, state in states.items():
        for name in (
            "intent.json",
            "0/new",
            *(("0/upper", "0/work") if state != "conflict" else ()),
        ):
            assert not (folder / name).exists(), (state, name)
    assert mounts_below(project) == []


def test_changes_that_are_apart_are_all_committed(
    project: Path, at_once: Callable[[list[str]], list[Ended]]
) -> None:
    work = project / "work"
    (work / "folder").mkdir()
    for number in range(COUNT):
        (work / f"old-{number}").write_text("old")
    script = (
        "echo {0} > own-{0}; echo {0} > folder/{0}; mkdir -p made; echo {0} > made/{0};"
        " echo {0} >> old-{0}"
    )
    ended = at_once([script.format(number) for number in range(COUNT)])
    assert [(ok, state) for ok, state, _why, _id in ended] == [(True, "committed")] * COUNT
    for number in range(COUNT):
        for name in (f"own-{number}", f"folder/{number}", f"made/{number}"):
            assert (work / name).read_text() == f"{number}\n"
        assert (work / f"old-{number}").read_text() == f"old{number}\n"


def test_of_changes_to_one_file_one_is_committed_and_all_others_are_conflicts(
    project: Path, at_once: Callable[[list[str]], list[Ended]]
) -> None:
    work = project / "work"
    shared = work / "shared"
    shared.write_text("")
    script = "echo {0} >> shared; echo {0} > own-{0}"
    ended = at_once([script.format(number) for number in range(COUNT)])
    states = {number: state for number, (_ok, state, _why, _id) in enumerate(ended)}
    (winner,) = [number for number, state in states.items() if state == "committed"]
    assert sorted(states.values()) == ["committed"] + ["conflict"] * (COUNT - 1)
    assert shared.read_text() == f"{winner}\n"
    # A transaction is committed as a whole or not at all.
    assert [path.name for path in work.glob("own-*")] == [f"own-{winner}"]
    losers = [each for number, each in enumerate(ended) if number != winner]
    assert {why for _ok, _state, why, _id in losers} == {(str(shared),)}
    # None of the others is lost: each waits for a person, with its content.
    with Runtime.open(project, pool=False) as runtime:
        for number, (_ok, _state, _why, execution) in enumerate(ended):
            if number == winner:
                continue
            kept = runtime.transactions.find(execution)
            assert runtime.transactions.decide(kept, commit=True, over=True) == "committed"
            # Its own line comes last, perhaps below that of the winner, which it has seen.
            assert shared.read_text() in (f"{number}\n", f"{winner}\n{number}\n")
        assert sorted(path.name for path in work.glob("own-*")) == sorted(
            f"own-{number}" for number in range(COUNT)
        )
        assert [found for found in runtime.verifier.verify_all() if not found.passed] == []


def test_the_same_new_file_is_a_conflict_unless_it_is_the_same_to_the_byte(
    project: Path, at_once: Callable[[list[str]], list[Ended]]
) -> None:
    scripts = ["echo same > new", "echo same > new", "echo other > new"]
    ended = at_once(scripts)
    text = (project / "work" / "new").read_text()
    for (_ok, state, _why, _id), script in zip(ended, scripts, strict=True):
        wrote = script.split()[1] + "\n"
        assert state == "conflict" if wrote != text else state in ("committed", "unchanged")
