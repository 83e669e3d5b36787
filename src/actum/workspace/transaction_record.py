"""The record of a transaction that is over, or that waits for a person's decision."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from actum.contract.canonical import sha256_bytes, sha256_json
from actum.errors import Refused
from actum.workspace import files
from actum.workspace.grant_layer import Layer
from actum.workspace.placed import Placed
from actum.workspace.tree import content_digest, unshown

RECORD = "record.json"
RETIRED = ".retired-"  #: prefix of a folder's name while the folder is removed
WAITING = ("held", "conflict")  #: states in which a person has to decide
_MOST_SHOWN_BYTES = 4 << 20


class Kept:
    """The record in a transaction's folder, as it was read."""

    def __init__(self, folder: Path, text: bytes) -> None:
        record: Mapping[str, Any] = json.loads(text)
        self.folder = folder
        self.name = folder.name.removeprefix(RETIRED)
        self.is_retired = folder.name != self.name
        self.record = record
        self.record_sha256 = sha256_bytes(text)
        self.state: str = record["state"]
        self.why: tuple[str, ...] = tuple(record["why"])
        self.changes: list[Mapping[str, Any]] = record["changes"]
        #: Of each folder: its path, and the name of its layer's folder.
        self.layers: list[tuple[str, str]] = [(grant, layer) for grant, layer in record["layers"]]
        self.placed = [
            tuple(Placed.read(unshown(path), rest) for path, *rest in placed)
            for placed in record.get("placed", [[]] * len(self.layers))
        ]
        self.since_ns: int = record["since_ns"]
        execution, _, attempt = self.name.rpartition("-")
        self.execution_id = execution
        self.attempt = int(attempt) if attempt.isdecimal() else 0

    @property
    def diff_sha256(self) -> str:
        return sha256_json(self.changes)

    @property
    def waits(self) -> bool:
        """Whether a person has to decide."""
        return self.state in WAITING

    @property
    def begun_at(self) -> float:
        """When the tool was started, in seconds since the epoch."""
        return self.since_ns / 1e9

    @property
    def size(self) -> int:
        """The bytes that the transaction takes on the disk."""
        return sum(
            os.lstat(os.path.join(where, name)).st_blocks * 512
            for where, folders, names in os.walk(self.folder)
            for name in (*folders, *names)
        )

    def require_current(self) -> None:
        """Under the lock: another process may have decided, undone or removed it meanwhile."""
        try:
            found = sha256_bytes((self.folder / RECORD).read_bytes())
        except FileNotFoundError:
            found = ""
        if found != self.record_sha256:
            raise Refused(
                "TRANSACTION_DECIDED",
                f"{self.name} was decided, undone or removed by another process meanwhile.",
                remedy="`actum diff` lists the current transactions.",
            )

    def require_here(self) -> None:
        """The record's paths are absolute: in a copy of the project they lead to the original."""
        if self.record["home"] != home_of(self.folder):
            raise Refused(
                "TRANSACTION_ELSEWHERE",
                f"{self.name} is a transaction of another folder ({self.record['home']}): this"
                " project was copied or moved since.",
                remedy="Nothing was changed. Decide it in the original; here, `actum diff ID"
                " --discard` drops changes that wait.",
            )

    def contents(self, grant: str, number: int) -> tuple[bytes | None, bytes | None]:
        """The bytes of a file, or the target of a link, before and after; ``None`` if there was
        neither, or its content was not stored."""
        layer = self.folder / dict(self.layers)[grant]
        change = next(each for each in self.changes if each["grant"] == grant)["changes"][number]
        name = os.fsdecode(unshown(change["path"]))
        digests = [side[2] if side else None for side in (change["before"], change["after"])]
        after = _content(layer / "after" / str(number), digests[1])
        if after is None and change["after"]:
            top = Layer(grant=grant, folder=str(layer)).tree if self.waits else grant
            after = _content(Path(top) / name, change["after"][2])
        before = _content(layer / "old" / str(number), digests[0])
        if before is None and change["before"]:
            before = _content(Path(grant) / name, change["before"][2])
        return before, after

    @classmethod
    def find(cls, home: Path, name: str) -> Kept | None:
        folder = home / "transactions" / name
        if os.path.basename(name) != name or name.startswith(RETIRED):
            return None
        try:
            return cls(folder, (folder / RECORD).read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            return None

    @classmethod
    def all(cls, home: Path) -> Iterator[Kept]:
        """All of a home, the newest last."""
        found = [kept for name in cls.names(home) if (kept := cls.find(home, name))]
        yield from sorted(found, key=lambda kept: (kept.since_ns, kept.name))

    @staticmethod
    def names(home: Path) -> list[str]:
        """The names in the folder of transactions. None of them is opened."""
        folder = home / "transactions"
        return sorted(os.listdir(folder)) if folder.is_dir() else []


#: Records in the log what became of a transaction.
Tell = Callable[[Kept], None]


def home_of(folder: Path) -> str:
    """The home that holds a transaction's folder."""
    return str(folder.parent.parent)


def _content(path: Path, digest: str | None) -> bytes | None:
    """A file's bytes, through no link, or a link's target; ``None`` if it does not exist or has
    another digest."""
    if digest is None:
        return None
    try:
        if os.path.islink(path):
            content = os.readlink(os.fsencode(path))
        else:
            descriptor = os.open(path, files.FILE_FLAGS)
            with open(descriptor, "rb") as file:
                if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                    return None
                content = file.read(_MOST_SHOWN_BYTES)
    except OSError:
        return None
    return content if content_digest(content).hex() == digest else None
