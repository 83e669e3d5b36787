"""Golden outputs: expected outputs of tools, one file each in `.actum/golden/`.

They never expire, and only a person's `actum golden` changes them; each records who did, when and
why. Tools cannot see the folder.
"""

from __future__ import annotations

import base64
import json
import os
import re
from pathlib import Path

from actum.contract.model import Json
from actum.errors import EvidenceUnavailable, Refused
from actum.store.whole_file import write_whole
from actum.value import value

_KEY = re.compile(r"[0-9a-f]{64}")


@value
class Golden:
    """One expected output, and its origin."""

    key: str
    tool: str  #: id and version
    adapter: str
    input_digest: str
    exit_code: int
    stdout: bytes
    stderr: bytes
    execution_id: str  #: the run it was taken from, with its receipt
    receipt_id: str
    by: str
    why: str
    at: str

    def document(self) -> dict[str, Json]:
        return {
            "key": self.key,
            "tool": self.tool,
            "adapter": self.adapter,
            "input_digest": self.input_digest,
            "exit_code": self.exit_code,
            "stdout": base64.b64encode(self.stdout).decode(),
            "stderr": base64.b64encode(self.stderr).decode(),
            "execution_id": self.execution_id,
            "receipt_id": self.receipt_id,
            "by": self.by,
            "why": self.why,
            "at": self.at,
        }


class GoldenOutputs:
    def __init__(self, home: str | os.PathLike[str]) -> None:
        self._folder = Path(home) / "golden"

    def get(self, key: str) -> Golden | None:
        if not _KEY.fullmatch(key):
            return None
        try:
            document = json.loads((self._folder / f"{key}.json").read_bytes())
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise self._unreadable(key, error) from error
        return _golden(document)

    def find(self, prefix: str) -> Golden:
        """The one whose key begins with `prefix`."""
        keys = [key for key in self.every() if key.startswith(prefix)]
        found = self.get(keys[0]) if len(keys) == 1 else None
        if found is None:
            raise Refused(
                "GOLDEN_UNKNOWN",
                f"{len(keys) or 'No'} golden outputs have a key that begins with {prefix[:64]!r}.",
                remedy="`actum golden list` shows them.",
            )
        return found

    def every(self) -> tuple[str, ...]:
        try:
            names = os.listdir(self._folder)
        except FileNotFoundError:
            return ()
        keys = (name.removesuffix(".json") for name in names)
        return tuple(sorted(key for key in keys if _KEY.fullmatch(key)))

    def put(self, golden: Golden) -> None:
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            content = json.dumps(golden.document(), indent=1).encode()
            write_whole(self._folder / f"{golden.key}.json", content, synced=True)
        except OSError as error:
            raise self._unreadable(golden.key, error) from error

    def remove(self, key: str) -> None:
        (self._folder / f"{key}.json").unlink()

    def _unreadable(self, key: str, error: Exception) -> EvidenceUnavailable:
        return EvidenceUnavailable(
            f"The golden output {key} in {self._folder} cannot be used: {error}.",
            remedy="Free space and give access; or remove the file and record it again.",
        )


def _golden(document: dict[str, Json]) -> Golden:
    streams = {name: base64.b64decode(document[name]) for name in ("stdout", "stderr")}
    return Golden(**{**document, **streams})
