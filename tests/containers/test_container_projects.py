"""Projects whose tools run in containers, through the library and the command line."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from actum import Runtime
from actum.contract.model import RunnerKind
from actum.contract.os_user import os_user
from actum.contract.outcome import Outcome
from actum.evidence.owner import current_owner, owner_of
from actum.project import create
from actum.registry.approval_workflow import approve
from actum.registry.pinned_settings import approve_settings
from actum.runners.container.container_config import OWNER_LABEL
from actum.store.keys import Keyring
from engines import Engine

pytestmark = pytest.mark.sandbox
_RUNNER = "    runner: docker\n"


@pytest.fixture
def project(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "project"
    create(root, RunnerKind.DOCKER, by="user:tests", date="2026-01-01")
    with (root / "actum.toml").open("a") as file:
        file.write(f'\n[docker]\nhost = "unix://{engine.socket}"\n')
    approve_settings(root, root / ".actum", by="user:tests", user=os_user(), date="2026-01-01")
    monkeypatch.chdir(root)
    return root


@pytest.fixture
def rt(project: Path) -> Iterator[Runtime]:
    with Runtime.open(project) as runtime:
        yield runtime


@pytest.mark.req("004-19")
def test_a_tool_without_a_runner_runs_in_a_container(engine: Engine, project: Path) -> None:
    file = project / "tools" / "shell" / "tool.yaml"
    assert _RUNNER in file.read_text()
    file.write_text(file.read_text().replace(_RUNNER, ""))
    keyring = Keyring.open(project / ".actum")
    approve(project, keyring, "shell", by="b", evidence="e", date="2026-01-01")
    with Runtime.open(project) as runtime:
        result = runtime.exec("shell", stdin="cat /proc/1/comm; echo x > made; exit 3")
        assert result.runner_type == "docker"
        assert result.result is not None
        assert (result.result.exit_code, result.result.stdout) == (3, "init\n")
        assert (project / "made").read_text() == "x\n", "its changes were committed"
    engine.require_none(f"{OWNER_LABEL}={current_owner()}")


def test_a_stopped_tool_changes_nothing(rt: Runtime, project: Path) -> None:
    (project / "kept").write_text("before\n")
    script = "echo after > kept; sleep 60"
    result = rt.exec("shell", stdin=script, set={"sandbox.timeout_ms": 1_000})
    assert result.outcome is Outcome.TIMED_OUT
    assert (project / "kept").read_text() == "before\n"
    assert rt.exec("shell", stdin="echo after > kept").outcome is Outcome.SUCCEEDED
    assert (project / "kept").read_text() == "after\n"


def test_the_shipped_interpreters_run(rt: Runtime) -> None:
    result = rt.exec("python", stdin="import hashlib, threading; print(6 * 7)")
    assert result.result is not None
    assert result.result.stdout == "42\n", result.result.stderr


def test_a_tool_sees_no_home_and_no_network(rt: Runtime, project: Path) -> None:
    script = (
        f"ls -A {project}/.actum; cat {project}/.actum/actum.db; ls /home /root /var;"
        " cat /proc/net/dev | grep -c :"
    )
    result = rt.exec("shell", stdin=script)
    assert result.result is not None
    assert result.result.stdout.split() != []
    assert "actum.db" not in result.result.stdout
    assert (project / ".actum" / "actum.db").exists()  # there is something to see


_ASLEEP = """
import sys
from pathlib import Path
from actum import Runtime
with Runtime.open(Path(sys.argv[1])) as rt:
    rt.exec("shell", stdin="echo ready; sleep 600",
            on_output=lambda name, chunk: print("ready", flush=True))
"""


def test_a_killed_caller_leaves_no_container(engine: Engine, project: Path) -> None:
    argv = [sys.executable, "-c", _ASLEEP, str(project)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as caller:
        assert caller.stdout is not None
        assert caller.stdout.readline() == b"ready\n"
        own = f"{OWNER_LABEL}={owner_of(caller.pid)}"
        (there,) = engine.containers(own)
        pid = engine.inspect(there["Id"])["State"]["Pid"]
        os.kill(caller.pid, signal.SIGKILL)
    until = time.monotonic() + 60
    while engine.containers(own) or Path(f"/proc/{pid}").exists():
        assert time.monotonic() < until, "the container of a killed caller is still there"
        time.sleep(0.05)
    with Runtime.open(project) as runtime:  # closes what the dead caller left open
        open_left = runtime.database.row(
            "SELECT count(*) FROM executions WHERE outcome IS NULL OR outcome = 'PENDING'"
        )
    assert open_left is not None
    assert open_left[0] == 0
