"""The engines that tests start: real, private, and gone afterwards."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engines import Engine, images, kinds, registry, remains

Start = Callable[[str], Engine]

#: Starts an engine and a container as a test run does, says where, and dies.
_RUN_THAT_DIES = """
import os, sys
from engines import images, registry
engine = registry.shared(sys.argv[1])
image = engine.import_image(images.of_host(), "tests/dies")
made = engine.call("POST", "/containers/create", {"Image": image, "Cmd": ["sleep", "600"]
    , "HostConfig": {"NetworkMode": "none"}})["Id"]
engine.call("POST", f"/containers/{made}/start")
print(engine.folder, engine.keeper, engine.inspect(made)["State"]["Pid"], flush=True)
for pid in [*map(int, sys.argv[2:]), *([engine.keeper] if "keeper" in os.environ else [])]:
    os.kill(pid, 9)
os.kill(os.getpid(), 9)
"""


def _container(engine: Engine, *argv: str, **host: Any) -> str:
    image = engine.import_image(images.of_host(), "tests/engines")
    asked = {"Image": image, "Cmd": [*argv], "HostConfig": {"NetworkMode": "none", **host}}
    made: str = engine.call("POST", "/containers/create", asked)["Id"]
    return made


def _until(condition: Callable[[], object], what: str) -> None:
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until, what
        time.sleep(0.02)


def test_a_container_of_a_local_image_runs_under_its_limits(engine: Engine) -> None:
    made = _container(engine, "sh", "-c", "exit 7", Memory=64 << 20, MemorySwap=64 << 20)
    try:
        engine.call("POST", f"/containers/{made}/start")
        assert engine.call("POST", f"/containers/{made}/wait")["StatusCode"] == 7
        assert engine.inspect(made)["HostConfig"]["Memory"] == 64 << 20
    finally:
        engine.call("DELETE", f"/containers/{made}", force=True)


def test_an_image_without_a_file_is_one(engine: Engine) -> None:
    image = engine.import_image(images.empty(), "tests/empty")
    assert engine.call("GET", f"/images/{image}/json")["Id"].endswith(image[-64:])


def test_an_engine_has_a_network_and_a_run_folder_of_its_own(engine: Engine) -> None:
    for space in ("net", "mnt"):
        theirs = os.readlink(f"/proc/{engine.daemon}/ns/{space}")
        assert theirs != os.readlink(f"/proc/self/ns/{space}")
    interfaces = Path(f"/proc/{engine.daemon}/net/dev").read_text().splitlines()[2:]
    names = {line.partition(":")[0].strip() for line in interfaces}
    assert "lo" in names
    assert not names & {"eth0", "ens3"}, "it reaches the network of the host"
    seen = Path(f"/proc/{engine.daemon}/root/run/{remains.MARKER}").read_text()
    assert seen == str(engine.folder)


@pytest.mark.parametrize("kind", kinds.KINDS)
def test_an_engine_that_is_stopped_leaves_nothing(own_engine: Start, kind: str) -> None:
    engine = own_engine(kind)
    made = _container(engine, "sleep", "600")
    engine.call("POST", f"/containers/{made}/start")
    assert engine.groups()
    assert engine.inspect(made)["State"]["Pid"] in engine.processes()
    registry.stop(engine)
    assert remains.processes(kind, engine.folder) == set()
    assert remains.groups(kind, engine.folder, {made}) == []
    assert not engine.folder.exists()


@pytest.mark.parametrize("kind", kinds.KINDS)
def test_an_engine_that_was_killed_starts_again(own_engine: Start, kind: str) -> None:
    engine = own_engine(kind)
    made = _container(engine, "true")
    engine.kill()
    assert not engine.answers()
    engine.restart()
    assert [each["Id"] for each in engine.containers()] == [made]


@pytest.mark.parametrize("kind", kinds.KINDS)
@pytest.mark.parametrize("killed", ["the run", "the run and the keeper"])
def test_an_engine_ends_with_the_run_that_started_it(kind: str, killed: str) -> None:
    if why := registry.missing_programs(kind):
        pytest.skip(why)
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(Path(__file__).parent.parent)}
    if killed != "the run":
        environment["keeper"] = "yes"
    done = subprocess.run(
        [sys.executable, "-c", _RUN_THAT_DIES, kind],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr
    place, keeper, inside = done.stdout.split()
    folder = Path(place)
    if killed != "the run":
        _until(lambda: not remains.identity(int(keeper)), "the keeper is there")
        assert remains.identity(int(inside)), "its container ended by itself: nothing to reap"
        registry.reap()
    _until(lambda: not folder.exists(), "its folder is still there")
    assert remains.processes(kind, folder) == set()
    assert not remains.identity(int(inside))
    assert not list(Path("/sys/fs/cgroup").glob(f"*/actum-{folder.name}"))
