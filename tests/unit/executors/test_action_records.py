"""A record that cannot be written stops the action; one left open is closed at the next start."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from pure_house import PureHouse

from actum.contract.outcome import ActionStatus
from actum.executors.plane import Executors, close_orphans
from actum.executors.pool import Child, Pool, Reply
from common.journals import no_room, read_only


class WatchedPool(Pool):
    """A real pool that counts its calls, and may do something right after one."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.afterwards: Any = None

    def call(self, *words: Any, **more: Any) -> tuple[Child, Reply]:
        self.calls += 1
        answer = super().call(*words, **more)
        if self.afterwards is not None:
            self.afterwards()
        return answer


@pytest.fixture
def watched(own_house: PureHouse) -> Iterator[tuple[PureHouse, WatchedPool]]:
    pool = WatchedPool()
    own_house.plane.close()
    own_house.plane = Executors(
        root=own_house.root,
        database=own_house.database,
        log=own_house.log,
        trusted=own_house.keyring.trusted,
        pool=pool,
    )
    assert own_house.act("noop").status is ActionStatus.SUCCESS  # compiled and warm
    pool.calls = 0
    yield own_house, pool


def _count(house: PureHouse) -> int:
    return int(house.database.rows("SELECT count(*) FROM audit")[0][0])


@pytest.mark.req("001-51")
@pytest.mark.parametrize("broken", [read_only, lambda _database: no_room()], ids=["mount", "disk"])
def test_nothing_runs_when_its_pending_record_cannot_be_written(
    watched: tuple[PureHouse, WatchedPool], broken: Any
) -> None:
    house, pool = watched
    house.database.write_out()
    with broken(house.database):
        _nothing_runs(house, pool)
    assert house.act("noop").status is ActionStatus.SUCCESS


def _nothing_runs(house: PureHouse, pool: WatchedPool) -> None:
    before, pool.calls = _count(house), 0
    result = house.act("text_process", {"text": "a"})
    assert (result.status, result.reason_codes, result.output_digest) == (
        ActionStatus.BLOCKED,
        ("AUDIT_LOG_FAILED",),
        None,
    )
    assert pool.calls == 0  # not even the code was looked at
    assert _count(house) == before
    descriptors = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        assert house.act("noop").reason_codes == ("AUDIT_LOG_FAILED",)  # its code is known by now
    assert pool.calls == 0
    # Each child that waited is let go; one more may be in stock now, with two descriptors.
    assert len(os.listdir("/proc/self/fd")) <= descriptors + 2


@pytest.mark.req("001-51")
def test_a_result_whose_final_record_cannot_be_written_is_withheld(
    watched: tuple[PureHouse, WatchedPool],
) -> None:
    house, pool = watched
    house.act("text_process", {"text": "warm"})
    with ExitStack() as broken:
        pool.afterwards = lambda: broken.enter_context(read_only(house.database))
        result = house.act("text_process", {"text": "a"})
    assert (result.status, result.reason_codes, result.output_digest) == (
        ActionStatus.BLOCKED,
        ("AUDIT_LOG_FAILED",),
        None,
    )
    pool.afterwards = None
    open_now = house.database.rows("SELECT pending_seq FROM open_actions")
    assert len(open_now) == 1  # found at the next start, once this process is gone


def test_a_refusal_that_cannot_be_recorded_says_so(watched: tuple[PureHouse, WatchedPool]) -> None:
    house, _pool = watched
    with read_only(house.database):
        assert house.act("unknown").reason_codes == ("ACTION_UNKNOWN", "AUDIT_LOG_FAILED")


def test_an_interrupted_caller_leaves_a_closed_record(
    watched: tuple[PureHouse, WatchedPool], monkeypatch: pytest.MonkeyPatch
) -> None:
    house, pool = watched

    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(pool, "call", interrupted)
    with pytest.raises(KeyboardInterrupt):
        house.act("noop")
    last = json.loads(house.database.rows("SELECT record FROM audit ORDER BY seq DESC")[0][0])
    assert (last["status"], last["reason_codes"]) == ("BLOCKED", ["CANCELLED"])
    assert house.database.rows("SELECT * FROM open_actions") == []


def test_a_zygote_that_cannot_start_is_a_fault_and_on_record(
    own_house: PureHouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    from actum.errors import SandboxUnavailable

    monkeypatch.setattr("actum.executors.pool._COMMAND", ("/bin/false",))
    with pytest.raises(SandboxUnavailable):
        own_house.act("noop")
    last = json.loads(own_house.database.rows("SELECT record FROM audit ORDER BY seq DESC")[0][0])
    assert (last["status"], last["reason_codes"]) == ("FAILED", ["SANDBOX_UNAVAILABLE"])
    assert own_house.database.rows("SELECT * FROM open_actions") == []


VICTIM = """
import sys
from pathlib import Path
sys.path.insert(0, {helper!r})
from pure_house import PureHouse, wrapped
from actum.executors.model import Limits
house = PureHouse(Path({root!r}))
limits = Limits(timeout_ms=600_000, max_payload_bytes=100, max_depth=3, max_list_items=4)
body = "def execute(req):\\n    while True: pass\\n"
house.put("endless", wrapped("endless", body, limits), limits)
house.reopen()
house.act("noop")
print("ready", flush=True)
house.act("endless")
"""


def test_an_action_whose_process_died_is_closed_at_the_next_start(tmp_path: Path) -> None:
    root = tmp_path / "victim"
    root.mkdir()
    helper = str(Path(__file__).parents[2] / "security" / "executors")
    program = VICTIM.format(helper=helper, root=str(root))
    victim = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
    assert victim.stdout is not None
    assert victim.stdout.readline() == b"ready\n"
    with PureHouse(root) as house:
        while not house.database.rows("SELECT 1 FROM open_actions"):
            time.sleep(0.01)
        ((pending, _owner),) = house.database.rows("SELECT * FROM open_actions")
        assert close_orphans(house.database, house.log) == ()  # its process still lives
        zygotes = _children(victim.pid)
        victim.send_signal(signal.SIGKILL)
        victim.wait()
        victim.stdout.close()
        assert close_orphans(house.database, house.log) == (pending,)
        assert close_orphans(house.database, house.log) == ()
        records = [json.loads(row[0]) for row in house.database.rows("SELECT record FROM audit")]
        opened, closed = (
            each for each in records if each.get("executor_id") == "endless" and "status" in each
        )
        assert (opened["status"], closed["status"]) == ("PENDING", "FAILED")
        assert closed["reason_codes"] == ["INTERRUPTED"]
        assert closed["pending_seq"] == pending
        assert closed["trace_id"] == opened["trace_id"]
        assert closed["input_digest"] == opened["input_digest"]
        deadline = time.monotonic() + 30
        while any(Path(f"/proc/{pid}").exists() for pid in zygotes):  # they die with their host
            assert time.monotonic() < deadline
            time.sleep(0.01)


def _children(parent: int) -> list[int]:
    found, wanted = [], [parent]
    for pid in sorted(int(each) for each in os.listdir("/proc") if each.isdigit()):
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            continue
        if int(stat.rpartition(")")[2].split()[1]) in wanted:
            wanted.append(pid)
            found.append(pid)
    return found


def test_a_runtime_closes_what_another_left_open(tmp_path: Path) -> None:
    from actum import Runtime
    from actum.contract.model import RunnerKind
    from actum.project import create

    root = tmp_path / "project"
    root.mkdir()
    create(root, RunnerKind.LOCAL, by="user:test", date="2026-01-01")
    program = (
        "from actum import Runtime; import os\n"
        f"rt = Runtime.open({str(root)!r})\n"
        "journal = rt.executors.pipeline._journal\n"
        "real = journal.close\n"
        "journal.close = lambda *_: os._exit(9)\n"  # dies between the answer and its record
        "rt.act({'action': 'noop'})\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], check=False)
    assert ended.returncode == 9
    with Runtime.open(root) as runtime:
        assert runtime.database.rows("SELECT * FROM open_actions") == []
        last = runtime.database.rows("SELECT record FROM audit ORDER BY seq DESC LIMIT 1")[0][0]
        assert json.loads(last)["reason_codes"] == ["INTERRUPTED"]
        result = runtime.act({"action": "process", "payload": {"text": "on we go"}})
        assert runtime.act_value(result) == "ON WE GO"


def test_the_plane_is_not_loaded_until_it_is_asked_for(tmp_path: Path) -> None:
    program = (
        "import sys, actum.runtime\n"
        "print([name for name in sys.modules if name.startswith('actum.executors')])"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert said.stdout.strip() == b"[]"
