"""A project in one of the ways in which a sealed input gets to its path."""

from __future__ import annotations

import base64
import hashlib
import json
import time
from pathlib import Path
from typing import Any

from actum import Result
from actum.contract.model import Contract
from actum.contract.request import ExecRequest
from actum.execution import plan as planning
from hostile.jail import Jail

READ_ONLY: dict[str, Any] = {"sandbox.filesystem.level": "minimal"}


class Sealed(Jail):
    """A project, and how its tools reach the working directory."""

    mode = ""

    def asked(self, script: str, *files: Path, **more: Any) -> Contract:
        """A contract for the shell with these input files."""
        fields = {**(READ_ONLY if self.mode == "read-only" else {}), **more.pop("limits", {})}
        ask = ExecRequest(
            tool="shell",
            stdin=script.encode(),
            files=[str(file) for file in files],
            cwd=str(self.work),
            set=fields,
            **more,
        )
        return self.runtime.contract(self.runtime.draft(ask))

    def with_input(self, script: str, *files: Path, **more: Any) -> Result:
        return self.runtime.execute(self.asked(script, *files, **more))

    def copies(self) -> list[str]:
        """What is left of sealed inputs and of layers in the home. A thread removes layers soon
        after the answer; those that it has made ahead belong to no execution."""
        until = time.monotonic() + 10
        while (left := self._left()) and time.monotonic() < until:
            time.sleep(0.01)
        return left

    def _left(self) -> list[str]:
        home = self.root / ".actum"
        return [
            str(path.relative_to(home))
            for folder in ("inputs", "transactions")
            for path in sorted((home / folder).glob("*"))
            if path.name != "lock" and "ready-" not in path.name
        ]


def opened(folder: Path, probe: Path, mode: str) -> Sealed:
    """`mode`: transaction, read-only or direct."""
    jail = Sealed(folder, probe, transactions=mode != "direct")
    jail.mode = mode
    return jail


def signed_input_digest(result: Result) -> str:
    """What the receipt says was read."""
    envelope = json.loads(Path(result.receipt_path).read_bytes())
    digest: str = json.loads(base64.b64decode(envelope["payload"]))["predicate"]["input_digest"]
    return digest


def digest_for(contract: Contract, *contents: bytes) -> str:
    """What a receipt says if the input files hold these bytes."""
    files = tuple(("", hashlib.sha256(content).hexdigest()) for content in contents)
    return planning.input_digest(contract, files)
