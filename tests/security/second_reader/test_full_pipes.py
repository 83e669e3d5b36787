"""The kernel makes pipes small for a uid whose pipes hold much. A secret comes in by a pipe."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from actum.sandbox.spawner_client import Spawner
from actum.secrets.providers import MOST_BYTES
from hostile.member import asked, carried_out, spawner

pytestmark = pytest.mark.sandbox

#: Large ones until it is refused, and then so many that every later one is small.
_FILLS = """
import fcntl, os, time
held = []
try:
    while True:
        held.append(os.pipe())
        fcntl.fcntl(held[-1][0], fcntl.F_SETPIPE_SZ, 1 << 20)
except OSError: pass
for _ in range(100): held.append(os.pipe())
print(fcntl.fcntl(held[-1][0], fcntl.F_GETPIPE_SZ), flush=True)
time.sleep(600)
"""
_OWNER = (os.getuid(), os.getgid())


@pytest.fixture
def started() -> Iterator[Spawner]:
    """Beside a tool that has filled the pipes of its uid."""
    python = os.path.realpath("/usr/bin/python3")
    found = os.stat(python)
    fills = asked(
        "",
        argv=["python3", "-c", _FILLS],
        executable=python,
        executable_device=found.st_dev,
        executable_inode=found.st_ino,
    )
    with spawner() as started:
        sandbox, cgroup = started.launch(fills, _OWNER, b"")
        try:
            sandbox.go()
            os.set_blocking(sandbox.stdout, True)
            assert int(os.read(sandbox.stdout, 100)) < MOST_BYTES  # the control
            yield started
        finally:
            sandbox.discard()
            cgroup.remove()


@pytest.mark.req("004-55")
def test_the_longest_secret_comes_in_or_is_refused_and_never_waits(started: Spawner) -> None:
    report, said = carried_out(started, asked("wc -c <&3", secrets=["x" * MOST_BYTES]))
    if os.getuid() == 0:
        assert (report["kind"], said.strip()) == ("ended", str(MOST_BYTES))
    else:
        assert report["kind"] == "failed"
        assert "No buffer space" in report["message"]


def test_a_short_one_comes_in_for_everybody_and_can_be_opened_by_name(started: Spawner) -> None:
    report, said = carried_out(started, asked("cat /dev/fd/3", secrets=["x" * 4_000]))
    assert (report["kind"], len(said)) == ("ended", 4_000)
