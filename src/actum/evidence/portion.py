"""What lies in the journal at one time, made ready to be filed frame by frame.

Reading, checking and hashing are most of the work of filing, and need no lock: frames do
not change as long as the journal is of one generation. Whoever has gone through them files what is
`ready`; see `evidence.log.Log.file_beside` and `finish`.
"""

from __future__ import annotations

from actum.evidence.laid import signed
from actum.store.filing import End, Ready, ready
from actum.store.frames import unpacked
from actum.store.journal import Journal, Mac
from actum.store.keys import Signer

#: So many at once.
_FEW = 4


class Portion:
    def __init__(self, journal: Journal, mac: Mac, signer: Signer) -> None:
        self.signer = signer
        self.ready: list[Ready] = []  #: and not filed yet
        self.end: End | None = None  #: of the log, when this was filed last
        self._journal = journal
        self._mac = mac
        self._turn = journal.turn
        self._number = 0
        self._at = journal.start

    def step(self) -> bool:
        """Make a few more frames ready; whether there were any."""
        before = self._number
        while self._number < before + _FEW:
            found = self._journal.look(self._number, self._at, self._mac)
            if found is None:
                break
            payload, self._at = found
            self._number += 1
            self.ready.append(ready(signed(unpacked(payload), self.signer)))
        return self._number > before

    @property
    def is_current(self) -> bool:
        """Whether the journal is still the one whose frames these are, and nothing else was added
        to the log. Both: whoever added it may have been stopped before he emptied the journal."""
        return self._journal.turn is self._turn

    @property
    def is_all(self) -> bool:
        """Whether nothing else lies there; with the lock held, and all frames read."""
        journal = self._journal
        return self._number == journal.frames and not journal.unfinished

    def filed(self, end: End) -> None:
        self.ready, self.end = [], end
