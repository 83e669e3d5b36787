"""The workers of this machine: a file with a lock for each, and its beat.

The kernel releases the lock when the worker dies, so a file without a lock is a dead worker's, and
a killed worker is noticed at once. A worker that lives and does not run (SIGSTOP, a frozen group)
keeps its lock; its beat gets old.

A beat is the file's time of modification, set to CLOCK_MONOTONIC: that clock stands still while the
machine sleeps, so no beat gets old by that, and no change of the date matters.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Self

from actum.contract.ids import new_id
from actum.evidence.owner import current_owner
from actum.evidence.records.facts import ACTUM_VERSION
from actum.value import value

_FOLDER = "workers"
_BEAT_EVERY_S = 2.0


@value
class LiveWorker:
    pid: int
    owner: str  #: as `agent_runs.worker` has it
    version: str
    queues: tuple[str, ...]
    beat_age_s: float


class WorkerFile:
    """Says that a worker runs, for as long as it does."""

    def __init__(self, home: Path, *, queues: Sequence[str]) -> None:
        self._path = home / _FOLDER / f"{new_id()}.json"
        self._document = {
            "pid": os.getpid(),
            "owner": current_owner(),
            "version": ACTUM_VERSION,
            "queues": list(queues),
        }
        self._file: IO[str] | None = None
        self._over = threading.Event()
        self._beating = threading.Thread(target=self._beat, name="actum-worker-beat", daemon=True)

    def __enter__(self) -> Self:
        self._path.parent.mkdir(mode=0o700, exist_ok=True)
        # Locked before it has its name: a file without a lock is removed by others.
        beginning = self._path.with_suffix(".new")
        self._file = open(beginning, "x", encoding="utf-8")
        fcntl.flock(self._file, fcntl.LOCK_EX)
        json.dump(self._document, self._file)
        self._file.flush()
        self._touch()
        beginning.rename(self._path)
        self._beating.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._over.set()
        self._beating.join()
        self._path.unlink(missing_ok=True)
        if self._file is not None:
            self._file.close()

    def _beat(self) -> None:
        while not self._over.wait(_BEAT_EVERY_S):
            self._touch()

    def _touch(self) -> None:
        assert self._file is not None  # noqa: S101 -- opened on entry
        now = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
        os.utime(self._file.fileno(), ns=(now, now))


def live_workers(home: Path) -> tuple[LiveWorker, ...]:
    """The workers that live now. Removes the files of dead ones."""
    found = []
    for path in sorted((home / _FOLDER).glob("*.json")):
        try:
            file = open(path, encoding="utf-8")  # noqa: SIM115 -- closed below
        except FileNotFoundError:
            continue
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                found.append(_worker(file))
            else:
                path.unlink(missing_ok=True)
    return tuple(found)


def _worker(file: IO[str]) -> LiveWorker:
    document = json.load(file)
    now = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    return LiveWorker(
        pid=document["pid"],
        owner=document["owner"],
        version=document["version"],
        queues=tuple(document["queues"]),
        beat_age_s=(now - os.fstat(file.fileno()).st_mtime_ns) / 1e9,
    )
