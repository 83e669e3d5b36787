"""A project whose tools run in containers of an engine behind a proxy, and what is left of them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from actum import Result
from actum.errors import Fault
from engines import Engine
from engines.proxy import Lie, Proxy
from hostile.jail import Jail, alive, marker

#: Said by a tool that started.
RAN = "the tool ran"


class Lab:
    """`ask` runs a shell script; `left` is everything that should be gone."""

    def __init__(self, folder: Path, engine: Engine, lie: Lie | None, *, pool: bool) -> None:
        self.engine = engine
        self.proxy = Proxy(engine, folder, lie or Lie())
        self.mark = marker()
        self.jail = Jail(folder, Path("/bin/true"), pool=pool, containers=self.proxy.socket)
        self.took_s = 0.0

    def ask(self, script: str, **asked: Any) -> Result | Fault:
        """The result, or the fault that was raised."""
        began = time.monotonic()
        try:
            return self.jail.sh(f"echo {RAN}; {script.replace('@MARK@', self.mark)}", **asked)
        except Fault as fault:
            return fault
        finally:
            self.took_s = time.monotonic() - began

    @staticmethod
    def ran(answer: Result | Fault) -> bool:
        return not isinstance(answer, Fault) and answer.result is not None

    @staticmethod
    def said(answer: Result | Fault) -> str:
        """What the tool said; otherwise why it did not start."""
        if isinstance(answer, Fault):
            return f"fault: {answer}"
        return str(answer.violations) if answer.result is None else answer.result.stdout

    def audit(self) -> list[str]:
        """The state of every record of the audit log, in order."""
        rows = self.jail.runtime.database.rows("SELECT record FROM audit ORDER BY seq")
        return [row[0] for row in rows]

    def left(self) -> dict[str, Any]:
        """What there is of containers and processes now; all empty when nothing is left."""
        there = {each["Id"] for each in self.engine.containers()}
        return {
            "containers": sorted(there & set(self.proxy.made)),
            "processes": alive(self.mark),
        }

    def until_nothing_is_left(self, seconds: float = 20) -> None:
        until = time.monotonic() + seconds
        while any(self.left().values()) and time.monotonic() < until:
            time.sleep(0.05)
        assert not any(self.left().values()), self.left()


@contextmanager
def lab(
    folder: Path, engine: Engine, lie: Lie | None = None, *, pool: bool = False
) -> Iterator[Lab]:
    found = Lab(folder, engine, lie, pool=pool)
    try:
        yield found
    finally:
        found.proxy.lie.armed = False
        found.jail.close()
        found.proxy.close()
        found.proxy.remove_what_was_made()
