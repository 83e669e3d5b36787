"""Waits until another connection has written to the database.

SQLite says when the file has changed, so a waiting worker needs no message and no second process.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from pathlib import Path
from typing import Self

from actum.store.database import FILE_NAME

_LOOK_EVERY_S = 0.005


class DatabaseChanges:
    """Implements `port.Changes`; `woken` ends a wait early."""

    def __init__(self, home: Path, woken: threading.Event | None = None) -> None:
        uri = f"{(home / FILE_NAME).absolute().as_uri()}?mode=ro"
        self._connection = sqlite3.connect(uri, uri=True, check_same_thread=False)
        self._woken = woken or threading.Event()
        self._seen = self._version()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._connection.close()

    def wait(self, most_s: float) -> None:
        until = time.monotonic() + most_s
        while time.monotonic() < until:
            version = self._version()
            if version != self._seen:
                self._seen = version
                return
            if self._woken.wait(_LOOK_EVERY_S):
                self._woken.clear()
                return

    def _version(self) -> int:
        return int(self._connection.execute("PRAGMA data_version").fetchone()[0])
