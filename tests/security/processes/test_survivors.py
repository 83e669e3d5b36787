"""Whatever a tool starts, nothing of it is alive on the host when the result is there."""

from __future__ import annotations

import subprocess
from threading import Thread

import pytest

from actum import Outcome
from actum.runners.base import Cancel
from hostile.jail import Jail, alive, appears, marker

pytestmark = pytest.mark.sandbox

LEFT_BEHIND = {
    "a background process": "sleep MARK &",
    "a session of its own": "setsid sleep MARK & sleep 0.05",
    "a double fork": "(setsid sh -c 'sleep MARK & sleep MARK' &) ; sleep 0.05",
    "one that ignores every signal": "sh -c 'trap \"\" TERM INT HUP QUIT; sleep MARK' & sleep 0.05",
    "one that stopped itself": "sh -c 'kill -STOP $$; sleep MARK' & sleep 0.05",
    "one without streams": "setsid sleep MARK </dev/null >/dev/null 2>&1 &",
}


@pytest.mark.req("004-13", "000-187")
@pytest.mark.parametrize("what", LEFT_BEHIND)
def test_a_tool_that_ends_takes_with_it(jail: Jail, what: str) -> None:
    mark = marker()
    script = LEFT_BEHIND[what].replace("MARK", mark)
    with subprocess.Popen(["sleep", mark]) as free:  # what `alive` would find
        while alive(mark) != [free.pid]:
            assert free.poll() is None
        free.kill()
    result = jail.sh(f"{script}\necho done")
    assert result.outcome is Outcome.SUCCEEDED
    assert jail.said(result) == "done"
    assert alive(mark) == []


STUBBORN = {
    "ignores SIGTERM": "trap '' TERM; sleep MARK; sleep MARK",
    "forks twice, in another session, with stdout open": (
        "(trap '' TERM; setsid sh -c 'trap \"\" TERM; sleep MARK; sleep MARK' &); sleep MARK"
    ),
    "stopped itself": "kill -STOP $$; sleep MARK",
    "keeps forking": """exec python3 -c '
import os, time
while True:
    try:
        os.fork()
    except OSError:
        time.sleep(0.01)
' MARK""",
    "closed its streams": "exec >&- 2>&- <&-; sleep MARK",
    "floods both streams": "cat /dev/zero >&2 & exec cat /dev/zero # MARK",
    "a fork bomb": "sh -c 'f() { f | f & }; f' 2>/dev/null; exec sleep MARK",
}


@pytest.mark.req("000-87", "000-179", "004-13", "004-52", "004-60")
@pytest.mark.parametrize("what", STUBBORN)
def test_at_the_deadline_a_tool_is_dead_that(jail: Jail, what: str) -> None:
    mark = marker()
    result = jail.sh("echo said\n" + STUBBORN[what].replace("MARK", mark), timeout="1s")
    assert result.outcome is Outcome.TIMED_OUT
    assert result.result is not None
    assert result.result.status == "timeout"
    assert result.result.exit_code == 143
    assert result.result.stdout.startswith("said\n")
    assert {row.limit: row.tripped for row in result.enforcement}["timeout_ms"]
    assert alive(mark) == []


def test_a_polite_tool_can_say_goodbye_at_the_deadline(jail: Jail) -> None:
    result = jail.sh("trap 'echo bye; exit 0' TERM; while :; do sleep 0.02; done", timeout="1s")
    assert result.outcome is Outcome.TIMED_OUT
    assert jail.said(result) == "bye"
    assert result.result is not None
    assert result.result.exit_code == 143  # it exited with 0, and was late all the same


@pytest.mark.req("000-187")
@pytest.mark.parametrize("what", ["ignores SIGTERM", "stopped itself", "keeps forking"])
def test_a_cancelled_tool_is_dead_that(jail: Jail, what: str) -> None:
    mark, cancel = marker(), Cancel()

    def change_of_mind() -> None:
        appears(jail.told / "started")
        cancel.cancel()

    other = Thread(target=change_of_mind)
    other.start()
    script = "echo said; echo started >&2\n" + STUBBORN[what].replace("MARK", mark)
    result = jail.sh(script, cancel=cancel, on_output=jail.relay)
    other.join()
    cancel.close()
    assert result.outcome is Outcome.CANCELLED
    assert jail.said(result).startswith("said")
    assert alive(mark) == []


def test_a_call_cancelled_before_it_began_ends_cancelled(jail: Jail) -> None:
    cancel, mark = Cancel(), marker()
    cancel.cancel()
    assert jail.sh(f"sleep {mark}", cancel=cancel).outcome is Outcome.CANCELLED
    cancel.close()
    assert alive(mark) == []


@pytest.mark.req("000-85", "000-88", "004-10")
@pytest.mark.parametrize(
    ("script", "code"),
    [
        ("exit 124", 124),
        ("exit 137", 137),
        ("exit 143", 143),
        ("exit 255", 255),
        ("kill -9 $$", 137),
        ("kill -TERM $$", 143),
        ("kill -SEGV $$", 139),
        ("kill -ABRT $$", 134),
    ],
)
def test_a_code_or_signal_of_the_tools_own_is_never_a_limit(
    jail: Jail, script: str, code: int
) -> None:
    result = jail.sh(script)
    assert result.outcome is Outcome.TOOL_ERROR
    assert result.result is not None
    assert (result.result.status, result.result.exit_code) == ("error", code)
    assert not any(row.tripped for row in result.enforcement)
