"""Which transactions stay on the disk: recovery after a crash, and the limit on recorded ones."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from actum import removal
from actum.runners.layers import is_claimed
from actum.value import value
from actum.workspace import intent
from actum.workspace.intent import INTENT, locked
from actum.workspace.transaction_record import RECORD, RETIRED, Kept, Tell, home_of

_SIZE = "kept-"


@value
class Keep:
    """The limit on transactions that are over and stay for `actum diff` and `actum undo`."""

    count: int
    size_bytes: int
    since_ns: int = 0  #: those that ended before this time are removed too

    def surplus(self, newest_first: Iterable[tuple[int, str, int]]) -> Iterator[str]:
        """Names over the count, over the size together with all newer ones, or too old."""
        total = 0
        for number, (time_ns, name, size) in enumerate(newest_first):
            total += size
            if number >= self.count or total > self.size_bytes or time_ns < self.since_ns:
                yield name


def recover(home: Path, keep: Keep | None = None, tell: Tell = lambda _kept: None) -> int:
    """Finish every commit that a killed process has begun. Remove its undecided transactions, and
    the layers in which its interpreters waited.

    Of transactions that are over, only the newest stay. `tell` records what is finished or removed.
    Returns how many transactions were finished.
    """
    finished = 0
    transactions = home / "transactions"
    if not transactions.is_dir():
        return 0
    with locked(transactions):
        over = []
        # Every command does this, and there may be many folders: few and plain system calls.
        for name in os.listdir(transactions):
            folder = transactions / name
            try:
                names = set(os.listdir(folder))
            except (NotADirectoryError, FileNotFoundError):  # the second: removed just now
                continue
            if name.startswith(RETIRED):
                _remove_retired(folder, tell)
            elif INTENT in names:
                # Commits and undos hold the lock, so none of them is at work now. In a copy of a
                # project the intent is about the original, and the original finishes it.
                if intent.read(folder)["home"] == home_of(folder):
                    intent.carry_through(folder, tell, again=True)
                    finished += 1
            elif RECORD in names:
                if not os.path.lexists(f"{folder}/0/upper"):
                    for layer in filter(str.isdecimal, names):
                        # Staged by an undo that was killed before its intent.
                        if os.path.lexists(f"{folder}/{layer}/new"):
                            removal.remove_part(folder / layer, "new")
                    over.append((os.stat(folder / RECORD).st_mtime_ns, name, _stored_bytes(names)))
            elif not is_claimed(folder):
                # The remover itself refuses a folder that is neither marked nor empty.
                with contextlib.suppress(removal.RemovalRefused, OSError):
                    removal.remove(folder)
        if keep is not None:
            for name in keep.surplus(sorted(over, reverse=True)):
                retire(transactions / name, tell)
    return finished


def retire(folder: Path, tell: Tell) -> None:
    """Remove a recorded transaction: rename the folder, record the removal, remove the folder."""
    away = folder.parent / f"{RETIRED}{folder.name}"
    os.rename(folder, away)
    _remove_retired(away, tell)


def _remove_retired(away: Path, tell: Tell) -> None:
    with contextlib.suppress(FileNotFoundError):  # a removal that was interrupted after the record
        tell(Kept(away, (away / RECORD).read_bytes()))
    with contextlib.suppress(removal.RemovalRefused, OSError):
        removal.remove(away)


def note_size(folder: Path, layers: Iterable[Path]) -> None:
    """Store the size of the stored content as the name of an empty file: a listing shows it."""
    for stale in folder.glob(f"{_SIZE}*"):  # left by a process that was killed
        stale.unlink()
    size = 0
    for layer in layers:
        for part in ("old", "after"):
            with os.scandir(layer / part) as entries:
                size += sum(entry.stat(follow_symlinks=False).st_size for entry in entries)
    (folder / f"{_SIZE}{size}").touch(mode=0o600)


def _stored_bytes(names: Iterable[str]) -> int:
    """The size that `note_size` has stored in a name."""
    return sum(int(name[len(_SIZE) :]) for name in names if name.startswith(_SIZE))
