"""SIGKILL of Actum, of the engine and of the init at every step of one execution: nothing is left,
and every record that was opened is closed.

The proxy before the engine's socket kills when a request comes, or after the engine carried it out.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from actum import Runtime
from actum.evidence.owner import owner_of
from actum.runners.container.container_config import OWNER_LABEL
from actum.workspace.transaction_record import RECORD
from engines import Engine
from engines.proxy import Answer, Lie, Proxy, Request

from .lab import RAN, Lab, lab

pytestmark = pytest.mark.sandbox

SOAK = os.environ.get("ACTUM_SOAK") == "1"
#: In the order of one execution in a new project.
STEPS = (
    "GET /version",
    "GET /info",
    "GET /images/*/json",
    "POST /containers/create",
    "POST /containers/*/start",
    "GET /containers/*/json",
    "DELETE /containers/*",
)
MOMENTS = [(step, after) for step in STEPS for after in (False, True)]
_IDS = [f"{'after' if after else 'before'} {step}" for step, after in MOMENTS]
_RUNNING = ("while it runs", False)

_ASKS = """
import sys
from pathlib import Path
from actum import Runtime
with Runtime.open(Path(sys.argv[1]), pool=False) as rt:
    rt.exec("shell", stdin=sys.argv[2], cwd=sys.argv[1],
            on_output=lambda name, chunk: print("ready", flush=True))
"""


class Strikes(Lie):
    """Calls `act` once, at one step."""

    def __init__(self, step: str, act: Callable[[Request], None], *, after: bool) -> None:
        self.step, self._act, self._after = step, act, after
        self.done = False

    def request(self, request: Request, proxy: Proxy) -> None:
        if not self._after:
            self._strike(request)

    def answer(self, request: Request, answer: Answer, proxy: Proxy) -> None:
        if self._after:
            self._strike(request)

    def _strike(self, request: Request) -> None:
        if not self.done and request.step == self.step:
            self.done = True
            self._act(request)


def _is_closed(root: Path) -> None:
    """A later command closes what was open, and everything verifies."""
    with Runtime.open(root, pool=False) as again:
        row = again.database.row(
            "SELECT count(*) FROM executions WHERE outcome IS NULL OR outcome = 'PENDING'"
        )
        assert row is not None
        assert row[0] == 0
        assert [each for each in again.verifier.verify_all() if not each.passed] == []
    transactions = root / ".actum" / "transactions"
    owned = (each.parent for each in transactions.glob("*/owner"))
    left = [each.name for each in owned if not (each / RECORD).exists()]
    assert left == [], "layers of a dead process are left"


def _homes_of(pid: int) -> list[Path]:
    """Throwaway folders of a process."""
    folder = Path(tempfile.gettempdir()) / f"actum-{os.geteuid()}"
    return [each for each in folder.glob("*") if f"-{pid}-" in each.name]


def _until(condition: Callable[[], object], what: str) -> None:
    until = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < until, what
        time.sleep(0.02)


@pytest.mark.req("000-187", "004-13")
@pytest.mark.parametrize(("step", "after"), [*MOMENTS, _RUNNING], ids=[*_IDS, "while it runs"])
def test_actum_is_killed(tmp_path: Path, docker: Engine, step: str, after: bool) -> None:
    with lab(tmp_path, docker) as found:
        found.jail.runtime.close()
        script = f"echo ready; sleep {found.mark}" if step == _RUNNING[0] else "true"
        argv = [sys.executable, "-c", _ASKS, str(found.jail.root), script]
        callers: list[subprocess.Popen[bytes]] = []
        lie = Strikes(step, lambda _: os.kill(callers[0].pid, signal.SIGKILL), after=after)
        found.proxy.lie = lie
        with subprocess.Popen(argv, stdout=subprocess.PIPE) as caller:
            callers.append(caller)
            owner = owner_of(caller.pid)
            assert caller.stdout is not None
            said = caller.stdout.readline()
            if step == _RUNNING[0]:
                assert said == b"ready\n"
                assert found.left()["processes"]
                caller.kill()
        assert caller.returncode == -signal.SIGKILL, "it was not killed there"
        found.proxy.lie = Lie()
        # An engine may still make what it was asked for; then the reaper removes it.
        _until(lambda: not _reaped(found, owner), "its container is left")
        found.until_nothing_is_left()
        _is_closed(found.jail.root)
        assert _homes_of(caller.pid) == []


def _reaped(found: Lab, owner: str) -> list[Any]:
    with Runtime.open(found.jail.root, pool=False) as runtime:
        runtime.exec("shell", stdin="true", cwd=found.jail.root)
    return found.engine.containers(f"{OWNER_LABEL}={owner}")


@pytest.mark.soak
@pytest.mark.req("000-187")
@pytest.mark.parametrize("kind", ["docker", "podman"])
def test_the_engine_is_killed(
    tmp_path: Path, own_engine: Callable[[str], Engine], kind: str
) -> None:
    """At every step of a project of its own, on one engine, which is started again after each.

    `make test` kills Docker and Podman by turns: one before a step, the other after it.
    """
    engine = own_engine(kind)
    for number, (step, after) in enumerate(MOMENTS):
        if not SOAK and after != (number // 2 % 2 == (kind == "podman")):
            continue
        folder = tmp_path / str(number)
        folder.mkdir()
        lie = Strikes(step, lambda _: engine.kill(), after=after)
        with lab(folder, engine, lie) as found:
            answer = found.ask("echo x > made")
            assert lie.done, f"{step} is not asked"
            if Lab.ran(answer):
                assert Lab.said(answer) == f"{RAN}\n", (step, after)
            else:
                assert not (found.jail.work / "made").exists(), (step, after)
            engine.restart()
            assert Lab.said(found.ask("true")) == f"{RAN}\n", (step, after)
            found.jail.close()
            found.until_nothing_is_left()
            _is_closed(found.jail.root)


@pytest.mark.req("000-187", "004-13")
@pytest.mark.parametrize(
    ("step", "after"),
    [
        ("POST /containers/*/start", True),
        ("GET /containers/*/json", False),
        ("GET /containers/*/json", True),
        ("DELETE /containers/*", False),
        _RUNNING,
    ],
    ids=lambda value: str(value),
)
def test_the_init_is_killed(tmp_path: Path, engine: Engine, step: str, after: bool) -> None:
    with lab(tmp_path, engine) as found:

        def kill(_request: object = None) -> None:
            for each in found.proxy.made:
                pid = engine.inspect(each)["State"]["Pid"] if each in _ids(engine) else 0
                if pid:
                    os.kill(pid, signal.SIGKILL)

        running = step == _RUNNING[0]
        if not running:
            found.proxy.lie = Strikes(step, kill, after=after)
        script = "echo x > made; trap '' TERM; (setsid sleep @MARK@ &); sleep @MARK@"
        killed = []

        def hear(_name: str, _chunk: bytes) -> None:
            if running and not killed:
                killed.append(True)
                kill()

        answer = found.ask(
            script if running else "echo x > made",
            on_output=hear,
            limits={"sandbox.timeout_ms": 20_000},
        )
        assert found.took_s < 20 + 20, "the caller waits for a dead init"
        if step != "DELETE /containers/*":
            assert not Lab.ran(answer) or answer.outcome.name != "SUCCEEDED"  # type: ignore[union-attr]
            assert not (found.jail.work / "made").exists(), "changes without a proven ending"
        found.until_nothing_is_left()
        found.proxy.lie = Lie()
        assert Lab.said(found.ask("true")) == f"{RAN}\n"
        found.jail.close()
        found.until_nothing_is_left()
        _is_closed(found.jail.root)


def _ids(engine: Engine) -> set[str]:
    return {each["Id"] for each in engine.containers()}
