"""The egress record of one execution, written by the layer that decides: bounded, no repeats."""

from __future__ import annotations

import time
from typing import Any

from actum.capture.model import Connection
from actum.contract.egress import Endpoint
from actum.sandbox.egress.bounds import Bounds
from actum.value import replace


class Records:
    """Every connection up to the limit, every refused or looked-up name once, and the count of the
    rest."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self._began = time.monotonic()
        self._connections: list[Connection] = []
        self._names: dict[str, Connection] = {}
        self._counted: set[str] = set()  #: names of which one counting query came
        self._beyond = 0

    def connection(self, endpoint: Endpoint, address: str = "", **facts: Any) -> None:
        self._connections.append(self._entry(endpoint.host, endpoint.port, address, **facts))

    def too_many(self) -> None:
        """An attempt over the limit of connections: only counted."""
        self._beyond += 1

    def name(self, name: str, refused: str, address: str = "", *, again: bool = False) -> None:
        """A name that was looked up, with the time of the first query. `again`: counts repetitions;
        programs send two queries, for IPv4 and IPv6, where they mean one."""
        known = self._names.get(name)
        if known is not None:
            if again and name in self._counted:
                self._names[name] = replace(known, count=known.count + 1)
            if again:
                self._counted.add(name)
            return
        if len(self._names) >= self._bounds.refused_names:
            self._beyond += 1
            return
        self._names[name] = self._entry(name, 0, address, refused=refused)
        if again:
            self._counted.add(name)

    def _entry(self, host: str, port: int, address: str, **facts: Any) -> Connection:
        elapsed = int((time.monotonic() - self._began) * 1000)
        return Connection(host=host, port=port, address=address, time_ms=elapsed, **facts)

    def all(self) -> tuple[Connection, ...]:
        found = sorted([*self._connections, *self._names.values()], key=lambda one: one.time_ms)
        if self._beyond:
            found.append(
                self._entry("", 0, "", refused=f"{self._beyond} more attempts, not listed")
            )
        return tuple(found)
