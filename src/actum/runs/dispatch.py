"""How a worker on this machine learns of work, and which workers there are.

The queue is the ledger itself: queued runs. SQLite says when the file has changed, so a waiting
worker needs no message. Each worker keeps a file with an exclusive lock; the kernel releases the
lock when the worker dies, so a file without a lock is a dead worker's.
"""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Self

from actum.contract.ids import new_id
from actum.evidence.records.facts import ACTUM_VERSION
from actum.store.database import FILE_NAME
from actum.value import value

_FOLDER = "workers"
_LOOK_EVERY_S = 0.005


class Changes:
    """Waits until another connection has written to the database."""

    def __init__(self, home: Path) -> None:
        uri = f"{(home / FILE_NAME).absolute().as_uri()}?mode=ro"
        self._connection = sqlite3.connect(uri, uri=True, check_same_thread=False)
        self._seen = self._version()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._connection.close()

    def wait(self, most_s: float) -> None:
        """Return after a change, or after `most_s` seconds."""
        until = time.monotonic() + most_s
        while time.monotonic() < until:
            version = self._version()
            if version != self._seen:
                self._seen = version
                return
            time.sleep(_LOOK_EVERY_S)

    def _version(self) -> int:
        return int(self._connection.execute("PRAGMA data_version").fetchone()[0])


@value
class LiveWorker:
    pid: int
    version: str
    queues: tuple[str, ...]


class WorkerFile:
    """Says that a worker runs, for as long as it does."""

    def __init__(self, home: Path, *, queues: Sequence[str]) -> None:
        self._path = home / _FOLDER / f"{new_id()}.json"
        self._document = {"pid": os.getpid(), "version": ACTUM_VERSION, "queues": list(queues)}
        self._file: IO[str] | None = None

    def __enter__(self) -> Self:
        self._path.parent.mkdir(mode=0o700, exist_ok=True)
        # Locked before it has its name: a file without a lock is removed by others.
        beginning = self._path.with_suffix(".new")
        self._file = open(beginning, "x", encoding="utf-8")
        fcntl.flock(self._file, fcntl.LOCK_EX)
        json.dump(self._document, self._file)
        self._file.flush()
        beginning.rename(self._path)
        return self

    def __exit__(self, *_error: object) -> None:
        self._path.unlink(missing_ok=True)
        if self._file is not None:
            self._file.close()


def live_workers(home: Path) -> tuple[LiveWorker, ...]:
    """The workers that run now. Removes the files of dead ones."""
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
                document = json.load(file)
                found.append(
                    LiveWorker(
                        pid=document["pid"],
                        version=document["version"],
                        queues=tuple(document["queues"]),
                    )
                )
            else:
                path.unlink(missing_ok=True)
    return tuple(found)
