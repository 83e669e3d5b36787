"""One running engine, as tests use it."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

from engines import client, kinds, remains
from engines.client import EngineError

__all__ = ["Engine", "EngineError"]


class Engine:
    """`socket` is the path to give to what is tested."""

    def __init__(self, kind: str, folder: Path, keeper: int) -> None:
        self.kind = kind
        self.folder = folder
        self.keeper = keeper
        self.socket = kinds.socket_of(folder)

    def call(self, method: str, what: str, body: object = None, **query: Any) -> Any:
        return client.call(self.socket, method, what, body, **query)

    def answers(self) -> bool:
        return client.answers(self.socket)

    def import_image(self, tar: bytes, name: str) -> str:
        """An image with one layer, from the content of a tar file. Returns the image's id."""
        self.call("POST", "/images/create", tar, fromSrc="-", repo=name, tag="1")
        # Podman ignores the tag, and puts a registry's name before the name.
        for reference in (f"{name}:1", f"{name}:latest"):
            try:
                return str(self.call("GET", f"/images/{reference}/json")["Id"])
            except EngineError as error:
                if error.status != 404:
                    raise
        raise EngineError(404, f"{name} was imported, and is not there")

    def containers(self, *labels: str) -> list[dict[str, Any]]:
        """All containers, running or not, that carry these labels. Tests share an engine, so a
        test names a label of its own, or compares ids."""
        filters = {"label": list(labels)} if labels else {}
        until = time.monotonic() + 60
        while True:
            try:
                found = self.call("GET", "/containers/json", all=True, filters=filters)
            except EngineError as error:
                # Podman 4.3 reads /proc of a container that ends just now, and fails.
                if error.status != 500 or time.monotonic() > until:
                    raise
                time.sleep(0.05)
            else:
                return list(found)

    def require_none(self, *labels: str) -> None:
        """No container carries these labels. An engine removes a container whose init has ended by
        itself, and answers a second removal before the first one is complete."""
        self._wait(lambda: not self.containers(*labels), "a container is left")

    def inspect(self, container: str) -> dict[str, Any]:
        found: dict[str, Any] = self.call("GET", f"/containers/{container}/json")
        return found

    def processes(self) -> set[int]:
        """Processes of the engine and of its containers."""
        return remains.processes(self.kind, self.folder) - {self.keeper}

    def groups(self) -> list[str]:
        """The control groups of its containers."""
        return remains.groups(self.kind, self.folder)

    def log(self) -> str:
        return (self.folder / "log").read_text(errors="replace")

    @property
    def daemon(self) -> int:
        """The process that answers on the socket."""
        return int((self.folder / "daemon").read_text())

    def kill(self) -> None:
        """The engine dies, as from the kernel's OOM killer; its containers may live on."""
        os.kill(self.daemon, signal.SIGKILL)
        self._wait(lambda: not remains.identity(self.daemon), "the daemon does not die")

    def restart(self) -> None:
        """Start the daemon again on the same folder and socket."""
        before = self.daemon
        os.kill(self.keeper, signal.SIGHUP)
        self._wait(lambda: self.daemon != before and self.answers(), "it does not answer again")

    def _wait(self, condition: Any, what: str) -> None:
        until = time.monotonic() + 60
        while not condition():
            if time.monotonic() > until:
                raise RuntimeError(f"{self.kind}: {what}: {self.log()[-600:]}")
            time.sleep(0.01)
