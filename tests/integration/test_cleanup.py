"""After every ending nothing of an execution is left: process, mount, cgroup, file, descriptor."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Thread

import pytest

from actum import Outcome, Result
from actum.runners.base import Cancel
from hostile.jail import (
    Jail,
    alive,
    marker,
    mounts_below,
    own_cgroups,
    own_children,
    tools_in,
)

pytestmark = pytest.mark.sandbox

#: The spawner, its opener, and one sandbox of two processes that may just be leaving.
AT_MOST = 2 + 2


def _cancelled(jail: Jail, mark: str) -> Result:
    cancel = Cancel()
    script = f"touch changed; echo up; sleep {mark}"
    result = jail.sh(script, cancel=cancel, on_output=lambda _stream, _chunk: cancel.cancel())
    cancel.close()
    return result


#: Each leaves files in every scratch place and a stubborn grandchild first.
_MESS = (
    "echo x > /tmp/a; echo x > /dev/shm/b; echo x > /artifacts/c;"
    "(trap '' TERM; setsid sleep MARK &); echo x > changed; mkdir folder; echo x > folder/file;"
)
ENDINGS: dict[Outcome, Callable[[Jail, str], Result]] = {
    Outcome.SUCCEEDED: lambda jail, mark: jail.sh(_MESS.replace("MARK", mark)),
    Outcome.TOOL_ERROR: lambda jail, mark: jail.sh(_MESS.replace("MARK", mark) + "exit 3"),
    Outcome.TIMED_OUT: lambda jail, mark: jail.sh(
        _MESS.replace("MARK", mark) + f"sleep {mark}", timeout="1s"
    ),
    Outcome.RESOURCE_KILLED: lambda jail, mark: jail.sh(
        _MESS.replace("MARK", mark) + "x=xxxxxxxx; while :; do x=$x$x; done",
        limits={"sandbox.memory_mb": 64},
    ),
    Outcome.POLICY_VIOLATION: lambda jail, mark: jail.sh(
        _MESS.replace("MARK", mark) + "mount -t tmpfs none /tmp"
    ),
    Outcome.CANCELLED: _cancelled,
    Outcome.REJECTED: lambda jail, mark: jail.sh("true", cwd=jail.root / "missing"),
}


@pytest.fixture
def strangers() -> set[int]:
    """Processes below this one that are none of the jail's, but of tests before."""
    return own_children()


@pytest.fixture
def plain_jail(strangers: set[int], tmp_path: Path, probe: Path) -> Iterator[Jail]:
    """Nothing is prepared in advance, so that everything there is belongs to an execution."""
    jail = Jail(tmp_path, probe, pool=False)
    yield jail
    jail.close()


def _world(jail: Jail) -> dict[str, object]:
    """What an execution could leave on this host, as far as this process can see it."""
    return {
        "mounts": mounts_below(jail.root),
        "cgroups": own_cgroups(),
        "temporary": set(os.listdir(tempfile.gettempdir())),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "layers": [
            str(path)
            for name in ("lower", "upper", "work", "new", "intent.json")
            for path in (jail.root / ".actum" / "transactions").rglob(name)
        ],
    }


@pytest.mark.req("000-187")
@pytest.mark.parametrize("outcome", ENDINGS)
def test_nothing_is_left_after(
    plain_jail: Jail,
    strangers: set[int],
    outcome: Outcome,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # other processes use the common one
    plain_jail.sh("true").check()  # the spawner stays for the next one
    before = _world(plain_jail)
    mark = marker()
    result = ENDINGS[outcome](plain_jail, mark)
    assert result.outcome is outcome
    after = _world(plain_jail)
    after["temporary"] = after["temporary"] & before["temporary"]  # type: ignore[operator]
    assert after == before
    assert alive(mark) == []
    assert len(own_children() - strangers) <= AT_MOST


@pytest.mark.req("000-187")
def test_nothing_is_left_after_the_runtime_is_closed(tmp_path: Path, probe: Path) -> None:
    living = own_children()
    jail = Jail(tmp_path, probe)
    jail.sh("echo x > /tmp/a").check()
    assert own_children() > living
    jail.close()
    assert own_children() == living
    assert own_cgroups() == set()


@pytest.mark.req("004-24")
def test_a_hundred_in_a_row_leave_no_trace(plain_jail: Jail, strangers: set[int]) -> None:
    plain_jail.sh("true").check()
    before = _world(plain_jail)
    for _ in range(100):
        plain_jail.sh("true").check()
    after = _world(plain_jail)
    assert (after["mounts"], after["cgroups"]) == (before["mounts"], before["cgroups"])
    assert after["descriptors"] == before["descriptors"]
    assert len(own_children() - strangers) <= AT_MOST


def test_many_at_once_do_not_mix(own_jail: Jail) -> None:
    said: dict[int, str] = {}

    def one(number: int) -> None:
        said[number] = own_jail.said(own_jail.sh(f"echo {number} > /tmp/x; sleep 0.05; cat /tmp/x"))

    threads = [Thread(target=one, args=(number,)) for number in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert said == {number: str(number) for number in range(24)}
    # What is left are sandboxes that wait, with nothing of a tool in them; and these go too.
    assert [tools_in(Path(group)) for group in own_cgroups() if tools_in(Path(group))] == []
    own_jail.close()
    assert own_cgroups() == set()
