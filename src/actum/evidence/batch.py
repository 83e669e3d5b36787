"""Frames of the journal, prepared for write-out a few at a time.

Reading, checking and hashing are most of the work of a write-out. They need no lock: frames do not
change within one generation of the journal. `evidence.log.Log.write_out_batch` and `finish` write
the prepared frames out.
"""

from __future__ import annotations

from actum.evidence.journal_entry import signed
from actum.store.frames import unpacked
from actum.store.journal import Journal, Mac
from actum.store.keys import Signer
from actum.store.write_out import End, Ready, ready

#: Frames per step.
_FEW = 4


class Batch:
    def __init__(self, journal: Journal, mac: Mac, signer: Signer) -> None:
        self.signer = signer
        self.ready: list[Ready] = []  #: prepared and not written out yet
        self.end: End | None = None  #: of the log, after the last write-out
        self._journal = journal
        self._mac = mac
        self._revision = journal.revision
        self._number = 0
        self._at = journal.start

    def step(self) -> bool:
        """Prepare a few more frames; whether there were any."""
        before = self._number
        while self._number < before + _FEW:
            found = self._journal.read_frame(self._number, self._at, self._mac)
            if found is None:
                break
            payload, self._at = found
            self._number += 1
            self.ready.append(ready(signed(unpacked(payload), self.signer)))
        return self._number > before

    @property
    def is_current(self) -> bool:
        """Whether the journal is of the same generation and no transaction was committed since.
        Both: a process may have been stopped between its commit and emptying the journal."""
        return self._journal.revision is self._revision

    @property
    def is_all(self) -> bool:
        """Whether this holds every frame; with the lock held, after the last step."""
        journal = self._journal
        return self._number == journal.frames and not journal.unfinished

    def written(self, end: End) -> None:
        self.ready, self.end = [], end
