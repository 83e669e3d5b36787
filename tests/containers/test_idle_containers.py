"""Containers that wait: used once each, by requests that differ in their call only."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from actum import Outcome, Result
from actum.contract.model import RunnerKind
from actum.evidence.owner import current_owner, owner_of
from actum.evidence.traces import Traces
from actum.runners.container import idle_containers
from actum.runners.container.container_config import OWNER_LABEL
from actum.runners.container.container_runner import ContainerRunner
from engines import Engine
from hostile.jail import Jail

pytestmark = pytest.mark.sandbox
_DENY = {"sandbox.filesystem.deny": ["secret", "hidden"]}


@pytest.fixture
def jail(tmp_path: Path, engine: Engine) -> Iterator[Jail]:
    jail = Jail(tmp_path, Path("/bin/true"), pool=True, containers=engine.socket)
    yield jail
    jail.close()
    engine.require_none(f"{OWNER_LABEL}={current_owner()}")
    assert [*(jail.root / ".actum/transactions").glob("waiting-*")] == []


def _runner(jail: Jail) -> ContainerRunner:
    runner = jail.runtime.services.runners[RunnerKind.DOCKER]
    assert isinstance(runner, ContainerRunner)
    return runner


def _waiting(jail: Jail) -> list[str]:
    """The ids of the containers that wait now."""
    idle = _runner(jail)._idle
    assert idle is not None
    with idle._guard:
        return [each.started.container_id for row in idle._waiting.values() for each in row]


def _until(condition: Callable[[], object], what: str) -> None:
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until, what
        time.sleep(0.02)


def _warmed(jail: Jail, **asked: Any) -> list[str]:
    """Ask twice, so that a third request like these finds a container."""
    for _ in range(2):
        jail.said(jail.sh("true", **asked))
    _until(lambda: len(_waiting(jail)) == idle_containers.PER_FORM, "none is made ahead")
    return _waiting(jail)


def _container(jail: Jail, result: Result) -> str:
    events = Traces(jail.runtime.database).of_execution(result.execution_id)
    (found,) = {event["container_id"] for event in events if event["container_id"]}
    return str(found)


@pytest.mark.req("004-17", "004-19", "004-24")
def test_a_request_with_another_script_gets_a_container_that_waited(jail: Jail) -> None:
    (jail.work / "old").write_text("old\n")
    first, second = _warmed(jail)
    (jail.work / "new").write_text("new\n")
    os.mkdir(jail.work / "folder", 0o750)
    os.symlink("new", jail.work / "link")
    (jail.work / "old").chmod(0o640)
    script = "cat old new link; stat -c '%a %n' folder old; rm old; echo x > folder/made; echo $1"
    result = jail.sh(script, "1 2")
    assert jail.said(result).split("\n") == [
        *("old", "new", "new", "750 folder", "640 old", "1 2"),
    ]
    assert _container(jail, result) == first
    assert sorted(os.listdir(jail.work)) == ["folder", "link", "new"]
    assert (jail.work / "folder" / "made").read_text() == "x\n"
    # Of the folder itself: mode and time are those of a copy that was made for the request.
    jail.work.chmod(0o700)
    again = jail.sh("stat -c %a .; ls; cat folder/made; exit 3")
    assert jail.said(again).split() == ["700", "folder", "link", "new", "x"]
    assert again.result is not None
    assert again.result.exit_code == 3
    assert _container(jail, again) == second
    assert again.outcome is Outcome.TOOL_ERROR


def test_covers_hold_in_a_container_that_waited(jail: Jail) -> None:
    (jail.work / "secret").write_text("SECRET")
    (jail.work / "hidden").mkdir()
    (jail.work / "hidden" / "file").write_text("SECRET")
    waited = _warmed(jail, limits=_DENY)
    # An editor replaces a file when it saves: the kernel would detach a cover on that name.
    (jail.work / "secret.new").write_text("SECRET, second edition")
    os.replace(jail.work / "secret.new", jail.work / "secret")
    (jail.work / "hidden" / "second").write_text("SECRET")
    script = "cat secret hidden/*; ls hidden; echo x > hidden/made; echo x > secret; ls; true"
    assert "SECRET" in jail.outside("cat secret hidden/*; true")
    result = jail.sh(script, limits=_DENY)
    assert jail.said(result).split() == ["hidden", "secret"]
    assert _container(jail, result) in waited
    assert (jail.work / "secret").read_text() == "SECRET, second edition"
    assert sorted(os.listdir(jail.work / "hidden")) == ["file", "second"]


@pytest.mark.parametrize("change", ["kind", "gone"])
def test_a_container_with_other_covers_serves_no_request(jail: Jail, change: str) -> None:
    (jail.work / "secret").write_text("SECRET")
    waited = _warmed(jail, limits=_DENY)
    os.unlink(jail.work / "secret")
    if change == "kind":
        (jail.work / "secret").mkdir()
        (jail.work / "secret" / "file").write_text("SECRET")
    result = jail.sh("cat secret/file; ls secret; true", limits=_DENY)
    assert jail.said(result) == ""
    assert _container(jail, result) not in waited


@pytest.mark.req("004-3", "004-50")
def test_another_limit_or_directory_gets_a_container_of_its_own(jail: Jail) -> None:
    waited = _warmed(jail)
    seen = jail.sh("cat /proc/self/status > /dev/null", limits={"sandbox.memory_mb": 77})
    elsewhere = jail.root / "other"
    elsewhere.mkdir()
    there = jail.sh("pwd", cwd=elsewhere)
    assert jail.said(there) == str(elsewhere)
    assert not {_container(jail, each) for each in (seen, there)} & set(waited)
    # A folder that replaced the one that is mounted.
    readable = jail.root / "readable"
    readable.mkdir()
    (readable / "file").write_text("first")
    lists = {"sandbox.filesystem.read": [".", str(readable)]}
    waited = [*waited, *_warmed_again(jail, limits=lists)]
    readable.rename(jail.root / "away")
    readable.mkdir()
    (readable / "file").write_text("second")
    result = jail.sh(f"cat {readable}/file", limits=lists)
    assert jail.said(result) == "second"
    assert _container(jail, result) not in waited


def _warmed_again(jail: Jail, **asked: Any) -> list[str]:
    before = _waiting(jail)
    for _ in range(2):
        jail.said(jail.sh("true", **asked))
    _until(lambda: len({*_waiting(jail)} - {*before}) == 2, "none is made ahead")
    return _waiting(jail)


@pytest.mark.req("004-50")
def test_a_container_that_the_engine_removed_or_changed_serves_no_request(
    jail: Jail, engine: Engine
) -> None:
    gone, changed = _warmed(jail)
    engine.call("DELETE", f"/containers/{gone}", force=True)
    pid = engine.inspect(changed)["State"]["Pid"]
    limit = _limit_file(pid)
    limit.write_text(str(777 << 20))  # as an engine does it, or root
    result = jail.sh("echo ran")
    assert jail.said(result) == "ran"
    assert _container(jail, result) not in (gone, changed)


def _limit_file(pid: int) -> Path:
    """Where the memory of a process is limited, with swap if that is counted."""
    rows = [line.split(":", 2) for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines()]
    for _, names, path in rows:
        if "memory" in names.split(","):
            folder = Path(f"/sys/fs/cgroup/memory{path}")
            swap = folder / "memory.memsw.limit_in_bytes"
            return swap if swap.exists() else folder / "memory.limit_in_bytes"
    return Path(f"/sys/fs/cgroup{rows[0][2]}/memory.max")


def test_a_waiting_container_whose_init_is_killed_serves_no_request(
    jail: Jail, engine: Engine
) -> None:
    waited = _warmed(jail)
    for each in waited:
        os.kill(engine.inspect(each)["State"]["Pid"], signal.SIGKILL)
    result = jail.sh("echo ran")
    assert jail.said(result) == "ran"
    assert _container(jail, result) not in waited


def test_no_more_wait_than_the_ceiling_says(jail: Jail, engine: Engine) -> None:
    for memory in (64, 65, 66, 67):
        for _ in range(2):
            jail.said(jail.sh("true", limits={"sandbox.memory_mb": memory}))
        newest = len(_waiting(jail))
        assert newest <= idle_containers.IN_ALL
    _until(lambda: len(_waiting(jail)) == idle_containers.IN_ALL, "none is made ahead")
    own = f"{OWNER_LABEL}={current_owner()}"
    _until(
        lambda: {each["Id"] for each in engine.containers(own)} == {*_waiting(jail)},
        "others are left",
    )


def test_one_that_waited_too_long_is_removed(
    jail: Jail, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(idle_containers, "_LOOK_S", 0.2)
    _warmed(jail)
    monkeypatch.setattr(idle_containers, "KEEP_S", 0.0)
    own = f"{OWNER_LABEL}={current_owner()}"
    _until(lambda: engine.containers(own) == [], "old ones stay")
    assert _waiting(jail) == []


_WAITS = """
import sys, time
from pathlib import Path
from actum import Runtime
from actum.contract.model import RunnerKind
with Runtime.open(Path(sys.argv[1])) as rt:
    idle = rt.services.runners[RunnerKind.DOCKER]._idle
    for _ in range(2):
        rt.exec("shell", stdin="true", cwd=sys.argv[1]).check()
    until = time.monotonic() + 60
    while idle.count() < 2 and time.monotonic() < until:
        time.sleep(0.02)
    print(idle.count(), flush=True)
    time.sleep(600)
"""


@pytest.mark.req("000-187")
def test_they_go_with_a_killed_caller_and_no_other_process_takes_them(
    jail: Jail, engine: Engine
) -> None:
    argv = [sys.executable, "-c", _WAITS, str(jail.root)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as caller:
        try:
            assert caller.stdout is not None
            assert caller.stdout.readline() == b"2\n"
            own = f"{OWNER_LABEL}={owner_of(caller.pid)}"
            there = {each["Id"] for each in engine.containers(own)}
            assert len(there) == 2
            # Another process of the same project reaps: what has a living owner stays.
            assert not there & {*_runner(jail).remove_leftovers()}
            jail.said(jail.sh("true"))
            assert {each["Id"] for each in engine.containers(own)} == there
        finally:
            os.kill(caller.pid, signal.SIGKILL)
    _until(lambda: engine.containers(own) == [], "containers of a killed caller are there")
    # Its folders are in the project; the next runtime recovers them.
    jail.runtime.close()
    jail.runtime = type(jail.runtime).open(jail.root)
    jail.said(jail.sh("true"))


def test_a_cover_of_a_readable_file_is_that_of_the_file_now(jail: Jail) -> None:
    """A cover outside of the copies is on the host's own name, and goes when that is replaced."""
    readable = jail.root / "readable"
    readable.mkdir()
    (readable / "secret").write_text("SECRET")
    (readable / "open").write_text("open")
    lists = {
        "sandbox.filesystem.read": [".", str(readable)],
        "sandbox.filesystem.deny": [str(readable / "secret")],
    }
    waited = _warmed(jail, limits=lists)
    first = jail.sh(f"cat {readable}/*; true", limits=lists)
    assert jail.said(first) == "open"
    assert _container(jail, first) in waited
    _until(lambda: len(_waiting(jail)) == idle_containers.PER_FORM, "none is made ahead")
    waited = _waiting(jail)
    os.unlink(readable / "secret")
    (readable / "secret").write_text("SECRET, second edition")
    second = jail.sh(f"cat {readable}/*; true", limits=lists)
    assert jail.said(second) == "open"
    assert _container(jail, second) not in waited
