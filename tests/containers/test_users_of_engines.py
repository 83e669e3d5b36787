"""Whose engine is used, and by whom: users work with root's engine, and with no stranger's."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from actum.errors import Refused
from actum.evidence.owner import current_owner
from actum.project import create
from actum.runners.container import container_runner, leftovers
from actum.runners.container.container_config import OWNER_LABEL, USER_LABEL
from actum.runners.container.container_runner import ContainerRunner
from actum.runners.container.engine_api import Engine as Api
from actum.runners.container.engine_api import EngineError
from engines import Engine, images, kinds
from engines import EngineError as EngineFailure
from engines.proxy import Lie, Proxy

pytestmark = pytest.mark.sandbox
#: A user without an entry anywhere; the engines of tests need root.
_USER = 61_999
_TESTS = Path(__file__).parents[1]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that another user can reach; those of pytest are closed."""
    if os.geteuid() != 0:
        pytest.skip("only root has processes of other users")
    made = Path(tempfile.mkdtemp(prefix="actum-users-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


_LISTENS = """
import os, socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
os.chmod(sys.argv[1], 0o777)
listener.listen(8)
print("ready", flush=True)
said = b""
for _ in range(2):
    connection, _ = listener.accept()
    with connection:
        said += connection.recv(1000)
print(len(said), flush=True)
"""


def test_an_engine_of_another_user_gets_no_request(folder: Path) -> None:
    """At a path that they can make, or through a link that they own."""
    theirs = folder / "theirs"
    theirs.mkdir()
    os.chown(theirs, _USER, _USER)
    socket, link = theirs / "engine.sock", theirs / "docker.sock"
    os.symlink(socket, link)
    os.chown(link, _USER, _USER, follow_symlinks=False)
    argv = [sys.executable, "-c", _LISTENS, str(socket)]
    with subprocess.Popen(argv, user=_USER, group=_USER, stdout=subprocess.PIPE) as stranger:
        try:
            assert stranger.stdout is not None
            assert stranger.stdout.readline() == b"ready\n"
            for path in (socket, link):
                with pytest.raises(EngineError, match=f"user {_USER}") as refused:
                    Api(str(path)).call("GET", "/info")
                assert "[docker]" in refused.value.remedy
            assert stranger.stdout.readline() == b"0\n", "it was told something"
        finally:
            stranger.kill()
    runner = ContainerRunner(host=str(link))
    assert not any(each.enforceable for each in runner.capabilities())
    runner.close()


def test_a_socket_without_permission_is_named_with_the_remedy(folder: Path) -> None:
    path = folder / "engine.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        path.chmod(0o660)
        listener.listen(1)
        argv = [sys.executable, "-c", _DOCTOR, str(path)]
        python = os.pathsep.join(filter(None, sys.path))
        done = subprocess.run(
            argv,
            user=_USER,
            group=_USER,
            extra_groups=[],
            env={"PATH": os.environ["PATH"], "PYTHONPATH": python},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert "Permission denied" in done.stdout
    assert "usermod -aG docker" in done.stdout


def test_the_same_socket_of_root_is_used(folder: Path, docker: Engine) -> None:
    """The positive control, through a link of root's."""
    (folder / "docker.sock").symlink_to(docker.socket)
    assert Api(str(folder / "docker.sock")).info.name == "docker"


_DOCTOR = """
import sys
from actum.runners.container.container_runner import ContainerRunner
runner = ContainerRunner(host=sys.argv[1])
assert not any(each.enforceable for each in runner.capabilities())
print(runner.host.problems)
"""


_ASKS = """
import sys
from pathlib import Path
from actum import Runtime
from actum.contract.model import RunnerKind
from actum.project import create
from common.settings import add_settings
root = Path(sys.argv[1])
create(root, RunnerKind.DOCKER, by="user:t", date="2026-01-01")
add_settings(root, f'\\n[docker]\\nhost = "unix://{sys.argv[2]}"\\n')
for pool in (False, True):
    with Runtime.open(root, pool=pool) as rt:
        for number in range(4):
            script = f"id -u; echo {number} > made; cat made"
            print(*rt.exec("shell", stdin=script, cwd=root).check().result.stdout.split())
        refused = rt.exec("shell", stdin="head -c 1G /dev/zero | tail", cwd=root)
        print(refused.outcome.value, (root / "made").stat().st_uid)
(root / "agents").mkdir()
steps = '[{"tool": "shell", "stdin": "echo x > by-an-item"}]'
(root / "agents/agent-1.yaml").write_text('{"agent_id": "agent-1", "steps": %s}' % steps)
with Runtime.open(root, pool=False) as rt:
    item = {"id": "work-item-1", "agent_id": "agent-1", "description": "d", "dependencies": []}
    print("RUNNER_UNAVAILABLE" in str(rt.work(item)), (root / "by-an-item").exists())
"""


@pytest.mark.parametrize("kind", ["docker", "podman"])
def test_an_ordinary_user_with_access_to_the_socket(
    folder: Path, kind: str, request: pytest.FixtureRequest
) -> None:
    """As a member of its group has it. Tools run as that user, within the same limits."""
    engine: Engine = request.getfixturevalue(kind)
    proxy = Proxy(engine, folder, Lie())  # root answers, and everyone may connect
    home = folder / "home"
    home.mkdir()
    os.chown(home, _USER, _USER)
    path = os.pathsep.join([str(_TESTS), *filter(None, sys.path)])
    environment = {"HOME": str(home), "PATH": os.environ["PATH"], "PYTHONPATH": path}
    try:
        done = subprocess.run(
            [sys.executable, "-c", _ASKS, str(home / "project"), str(proxy.socket)],
            user=_USER,
            group=_USER,
            extra_groups=[],
            cwd=home,
            env=environment | {"TMPDIR": str(home), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        expected = [*(f"{_USER} {number}" for number in range(4)), f"RESOURCE_KILLED {_USER}"]
        assert done.stdout.splitlines() == [*expected * 2, "True False"], "an item was not refused"
        assert {each["Id"] for each in engine.containers()} & {*proxy.made} == set()
    finally:
        proxy.close()
        proxy.remove_what_was_made()


def test_without_an_engine_nothing_is_created(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(container_runner, "usual_socket", lambda: str(folder / "none.sock"))
    with pytest.raises(Refused, match="Nothing was created") as refused:
        create(folder / "project", None, by="user:t", date="2026-01-01")
    assert "--runner local" in refused.value.remedy
    assert not (folder / "project").exists()


@pytest.mark.req("000-187")
@pytest.mark.parametrize("kind", kinds.KINDS)
def test_the_reaper_takes_what_dead_owners_left_and_nothing_else(
    own_engine: Callable[[str], Engine], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Containers that run on without their caller: no init of ours is in them."""
    engine = own_engine(kind)  # the processes of other tests remove what dead owners left, too
    boot, space, pid, start = current_owner().split(" ")
    another = f"{boot} pid:[1] {pid} {start}"  # of a process that is not seen from here
    dead = f"{boot} {space} {pid} {int(start) - 1}"
    labels = {
        "dead": {OWNER_LABEL: dead, USER_LABEL: "0"},
        "dead, another user's": {OWNER_LABEL: dead, USER_LABEL: str(_USER)},
        "alive": {OWNER_LABEL: current_owner(), USER_LABEL: "0"},
        "in another namespace": {OWNER_LABEL: another, USER_LABEL: "0"},
        "of no process": {OWNER_LABEL: "garbage", USER_LABEL: "0"},
        "not ours": {"else": dead},
    }
    image = engine.import_image(images.of_host(), "tests/reaper")
    made = {}
    try:
        for name, label in labels.items():
            asked = {
                "Image": image,
                "Cmd": ["sleep", "600"],
                "HostConfig": {"NetworkMode": "none"},
                "Labels": label,
            }
            made[name] = engine.call("POST", "/containers/create", asked)["Id"]
            engine.call("POST", f"/containers/{made[name]}/start")
        runner = ContainerRunner(host=str(engine.socket))
        monkeypatch.setattr(leftovers.os, "geteuid", lambda: _USER)
        assert _of_these(runner.remove_leftovers(), made) == {"dead, another user's"}
        monkeypatch.undo()
        assert _of_these(runner.remove_leftovers(), made) == {"dead"}
        assert _of_these(runner.remove_leftovers(), made) == set()
        runner.close()
        there = {each["Id"] for each in engine.containers()}
        left = {name for name, each in made.items() if each in there}
        assert left == {"alive", "in another namespace", "of no process", "not ours"}
    finally:
        for each in made.values():
            with contextlib.suppress(EngineFailure):
                engine.call("DELETE", f"/containers/{each}", force=True)


def _of_these(removed: tuple[str, ...], made: dict[str, str]) -> set[str]:
    return {name for name, each in made.items() if each in removed}
