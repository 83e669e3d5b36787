"""Which engines there are: one per kind and test run, shared by the workers of the run.

Each engine has a folder in /run/actum-engines, named after the process that owns it: the process
that the tester started, which outlives the workers. A file lock lets one worker start the engine.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from engines import kinds, remains
from engines.engine import Engine

_RECORDS = Path("/run/actum-engines")
_TESTS = Path(__file__).resolve().parent.parent
_STOP_S = 60


def missing_programs(kind: str) -> str:
    """Why this kind cannot be started here; empty if it can."""
    if os.geteuid() != 0:
        return f"{kind}: only root can start an engine"
    if packages := kinds.missing(kind):
        return f"{kind}: as root: apt-get install {' '.join(packages)}"
    return ""


def shared(kind: str) -> Engine:
    """The engine of this test run; started by the first caller."""
    owner = _owner()
    with _alone(f"{remains.identity(owner)}-{kind}"):
        record = _record(owner, kind)
        if record.exists():
            engine = Engine(kind, Path(record.read_text()), _keeper(record))
            if engine.answers():
                return engine
            stop(engine)
        return start(kind, owner=owner, record=record)


def start(kind: str, *, owner: int | None = None, record: Path | None = None) -> Engine:
    """An engine of the caller's own, for tests that harm it. `stop` ends it."""
    reap()
    owner = owner or os.getpid()
    folder = Path(tempfile.mkdtemp(prefix=f"engine-{kind}-", dir="/var/tmp"))
    folder.chmod(0o711)
    kinds.write_settings(folder)
    record = record or _record(owner, f"{kind}-{folder.name}")
    record.write_text(str(folder))
    keeper = subprocess.Popen(
        [sys.executable, "-m", "engines.keeper", kind, str(folder), str(owner)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        cwd="/",
        env={"PATH": kinds.PATH, "PYTHONPATH": str(_TESTS), "PYTHONDONTWRITEBYTECODE": "1"},
        # A Ctrl-C of the terminal reaches the tests, which end their engines themselves.
        start_new_session=True,
    )
    _keeper_file(record).write_text(remains.identity(keeper.pid))
    assert keeper.stdout is not None
    with keeper.stdout:
        said = keeper.stdout.readline().decode().strip()
    keeper.returncode = 0  # nobody waits for it here: `stop` looks whether the process is there
    engine = Engine(kind, folder, keeper.pid)
    if said != "ready":
        stop(engine)
        raise RuntimeError(said or f"{kind}: the keeper ended without a word")
    return engine


def stop(engine: Engine) -> None:
    """End an engine, and wait until nothing of it is left."""
    with contextlib.suppress(ProcessLookupError, ChildProcessError):
        os.kill(engine.keeper, 15)
    until = time.monotonic() + _STOP_S
    while remains.identity(engine.keeper):
        with contextlib.suppress(ChildProcessError):
            os.waitpid(engine.keeper, os.WNOHANG)
        if time.monotonic() > until:
            raise RuntimeError(f"{engine.folder}: its keeper does not end")
        time.sleep(0.01)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(engine.keeper, os.WNOHANG)
    if engine.folder.exists():  # the keeper was killed
        remains.clear(engine.kind, engine.folder)
    for record, folder in _records():
        if folder == engine.folder:
            _forget(record)


def stop_all() -> None:
    """End every engine that this process owns."""
    if not _RECORDS.is_dir() or not os.access(_RECORDS, os.W_OK):
        return
    mine = remains.identity(os.getpid())
    for lock in _RECORDS.glob(f"{mine}-*.lock"):
        lock.unlink()
    for record, folder in _records():
        if record.name.startswith(f"{mine}-"):
            stop(Engine(_kind(record), folder, _keeper(record)))


def reap() -> None:
    """Remove what is left of engines whose owner and keeper were killed."""
    with _alone("reaper"):
        for lock in _RECORDS.glob("*-*.lock"):
            if not _owner_lives(lock):
                lock.unlink(missing_ok=True)
        for record, folder in _records():
            if _owner_lives(record):
                continue
            keeper = _keeper_file(record).read_text() if _keeper_file(record).exists() else ""
            if keeper and remains.identity(int(keeper.split("-")[0])) == keeper:
                continue  # it clears up itself, at this moment
            if folder.exists():
                remains.clear(_kind(record), folder)
            _forget(record)


def _owner_lives(record: Path) -> bool:
    owner = "-".join(record.name.split("-")[:3])
    return remains.identity(int(owner.split("-")[0])) == owner


def _owner() -> int:
    """A worker of xdist is a child of the process that the tester started."""
    return os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()


@contextlib.contextmanager
def _alone(name: str) -> Iterator[None]:
    _RECORDS.mkdir(mode=0o700, exist_ok=True)
    with (_RECORDS / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _record(owner: int, name: str) -> Path:
    _RECORDS.mkdir(mode=0o700, exist_ok=True)
    return _RECORDS / f"{remains.identity(owner)}-{name}.engine"


def _records() -> list[tuple[Path, Path]]:
    """Each record and the folder that it names."""
    found = []
    for record in sorted(_RECORDS.glob("*.engine")):
        with contextlib.suppress(FileNotFoundError):  # another test run is done with it
            found.append((record, Path(record.read_text())))
    return found


def _keeper_file(record: Path) -> Path:
    return record.with_suffix(".keeper")


def _keeper(record: Path) -> int:
    return int(_keeper_file(record).read_text().split("-")[0])


def _kind(record: Path) -> str:
    return next(kind for kind in kinds.KINDS if f"-{kind}" in record.name)


def _forget(record: Path) -> None:
    for suffix in (".keeper", ".engine"):
        record.with_suffix(suffix).unlink(missing_ok=True)
