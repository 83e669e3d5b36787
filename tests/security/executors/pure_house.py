"""A project whose reviewer approves anything: what holds here is held by the walls alone."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from actum.contract.canonical import sha256_bytes
from actum.evidence.log import Log
from actum.executors.model import ActionResult, Declaration, Limits
from actum.executors.plane import Executors
from actum.executors.verdicts import Check, Review, contract_sha256
from actum.store.database import Database
from actum.store.keys import Keyring

LIMITS = Limits(timeout_ms=10_000, max_payload_bytes=10_000, max_depth=10, max_list_items=100)

_WRAPPED = """

class Wrapped:
    executor_id = {executor_id!r}
    version = {version!r}
    capabilities = ["ANY"]
    limits = {limits!r}

    def execute(self, req):
        globals()["ME"] = lambda: self
        return execute(req)
"""


def wrapped(executor_id: str, body: str, limits: Limits = LIMITS, version: str = "1.0.0") -> bytes:
    """A whole executor around a function `execute(req)`."""
    values = dict(
        zip(
            ("timeout_ms", "max_payload_bytes", "max_depth", "max_list_items"),
            limits.values(),
            strict=True,
        )
    )
    text = _WRAPPED.format(executor_id=executor_id, version=version, limits=values)
    return (body + text).encode()


class PureHouse:
    def __init__(self, root: Path) -> None:
        self.root = root
        self.home = root / ".actum"
        self.keyring = Keyring.open(self.home, create=True)
        self.database = Database.open(self.home)
        self.log = Log(self.database, self.keyring.signer)
        (root / "executors").mkdir(exist_ok=True)
        self.plane = self._open()

    def _open(self) -> Executors:
        return Executors(
            root=self.root,
            database=self.database,
            log=self.log,
            trusted=self.keyring.trusted,
        )

    def reopen(self) -> None:
        """Read the folder again."""
        self.plane.close()
        self.plane = self._open()

    def put(
        self,
        executor_id: str,
        source: bytes,
        limits: Limits = LIMITS,
        version: str = "1.0.0",
    ) -> None:
        """Write a file and record an approval of its bytes, whatever they hold."""
        (self.root / "executors" / f"{executor_id}.py").write_bytes(source)
        declared = Declaration(
            executor_id=executor_id, version=version, capabilities=("ANY",), limits=limits
        )
        self.plane.verdicts.record(
            Review(
                file=f"{executor_id}.py",
                source_sha256=sha256_bytes(source),
                declared=declared,
                checks=(Check(name="the reviewer was fooled"),),
                by="user:test",
                at=datetime.now(UTC),
                contract=contract_sha256(),
            )
        )

    def act(self, action: str, payload: Mapping[str, Any] | None = None) -> ActionResult:
        return self.plane.act({"action": action, "payload": payload or {}})

    def records(self, result: ActionResult) -> list[dict[str, Any]]:
        """The audit records of one call, in their order."""
        rows = self.database.rows("SELECT record FROM audit ORDER BY seq")
        found = [json.loads(row[0]) for row in rows]
        return [each for each in found if each.get("trace_id") == result.trace_id]

    def close(self) -> None:
        self.plane.close()
        self.database.close()
        shutil.rmtree(self.root, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
