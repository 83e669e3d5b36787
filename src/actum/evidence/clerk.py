"""Files what lies in the journal while nobody is being served, so that nobody waits for it.

A thread of the ledger's. It begins when `SOME` executions lie there and the last one who was served
has left, goes in steps of a tenth of a millisecond, and stops between two of them when somebody
comes. When nobody pauses and `MANY` lie there, or the journal is almost full (of calls of the pure
plane, or of files), it no longer gives way, but still goes in steps. If it cannot keep up even so,
whoever comes when `TOO_MANY` lie there files for himself.

It never decides whether anything is on record: that it is before it lies there. What it cannot file
stays where it is, and the next who has to file finds out why. Proved by
tests/unit/evidence/test_clerk.py.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from actum.evidence.log import Log
from actum.evidence.portion import Portion
from actum.store.database import Database

#: So many executions are worth a commit; fewer may lie there for as long as nobody asks for them.
SOME = 16
#: So many, or the journal almost full, and it goes on while others are served.
MANY = 64
#: So many, and the next execution files them first: what lies there does not grow without end.
TOO_MANY = 128

#: So long after the last one left: he is about to answer.
_PAUSE_S = 0.0005
#: If somebody else came within that each time, the next pauses are not tried: at most so many.
_PATIENCE = 7
#: After that one of them may have been the last for some time.
_LATER_S = 0.05
#: So few frames are filed with everybody waiting, when the journal is begun anew.
_FEW = 8
#: So many are filed at once: readers and other transactions wait for that.
_MOST = 128
#: Between two steps. A thread that computes keeps others out for 5 ms (`sys.getswitchinterval`) if
#: it never lets go, and has its turn back before they are awake if it lets go for an instant only.
_LET_GO_S = 0.00005


class Clerk:
    """Shared by threads."""

    def __init__(
        self,
        database: Database,
        log: Log,
        pause: Callable[[float], None] = time.sleep,
        *,
        works: bool = True,
    ) -> None:
        self._log = log
        self._pause = pause
        self._works = works
        self._served: list[None] = []  # one for each: adding and taking away are never half done
        self._calls: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._waits = True
        self._guard = threading.Lock()
        self._worker: threading.Thread | None = None
        self._stopped = False
        self._portion: Portion | None = None
        self._in_vain = 0  # called, when somebody else was served already
        self._passing = 0  # so many may leave before it is called again
        self._given_up = False  # it could not be filed, and lies there still
        database.before_closing(self.stop)

    def start(self) -> None:
        """Have its thread, now and not when it is called, if one is to be had."""
        with self._guard:
            if self._worker is None and not self._stopped:
                worker = threading.Thread(target=self._work, name="actum-clerk", daemon=True)
                # Too many run. Whoever leaves has his answer all the same; the next tries again.
                with suppress(RuntimeError):
                    worker.start()
                    self._worker = worker

    def arrive(self) -> None:
        """Somebody is to be served."""
        self._served.append(None)

    def leave(self) -> None:
        """And was."""
        self._served.pop()
        if self._log.laid() < SOME and not self._log.almost_full:
            self._given_up = False
        elif self._waits and self._is_due():
            if self._passing and not self._presses():
                self._passing -= 1
            else:
                self._call()

    def _is_due(self) -> bool:
        if self._given_up or not self._works:
            return False
        return self._presses() or (self._log.laid() >= SOME and not self._served)

    def _presses(self) -> bool:
        return self._log.laid() >= MANY or self._log.almost_full

    def _call(self) -> None:
        self._waits = False  # two who call at once do no harm
        if self._worker is None:
            self.start()
        if self._worker is None:
            self._waits = True
        else:
            self._calls.put(True)

    def _work(self) -> None:
        while self._called():
            self._pause(_PAUSE_S)
            self._in_vain = 0 if self.work() else min(2 * self._in_vain + 1, _PATIENCE)
            self._passing = self._in_vain
            self._waits = True
            # Somebody may have left between the last look and that.
            if self._is_due():
                self._call()

    def _called(self) -> bool:
        """Wait until it is, or is to end; or until some have left for whom it was not."""
        while True:
            try:
                return self._calls.get(timeout=_LATER_S if self._in_vain else None)
            except queue.Empty:
                passed, self._passing = self._passing < self._in_vain, 0
                if passed:
                    return True
                self._in_vain = 0  # whoever is served is served for long: the next to leave calls

    def work(self) -> bool:
        """File what lies there, as long as it is due; whether it was."""
        begun = False
        try:
            while self._is_due() and not self._stopped:
                begun = True
                self._go_on()
        except Exception:  # noqa: BLE001 -- whoever has to file next meets it, and is told
            self._given_up, self._portion = True, None
        return begun

    def _go_on(self) -> None:
        portion = self._portion
        current = portion is not None and portion.is_current
        if portion is not None and current and len(portion.ready) < _MOST and portion.step():
            self._pause(_LET_GO_S)
            return
        with _filing:
            if portion is None or not current:
                # Which finds out whether somebody else has filed it meanwhile.
                self._portion = self._log.portion()
            elif len(portion.ready) > _FEW:
                self._log.file_beside(portion)
            else:
                self._portion = None
                self._log.finish(portion)
                if not self._served:
                    self._log.settle()  # what it is emptied with: or the next one waits for that

    def stop(self) -> None:
        """Return when it has ended."""
        with self._guard:
            self._stopped = True
        if self._worker is not None:
            self._calls.put(False)
            self._worker.join()


#: Held by a clerk who holds any other lock. A fork in the middle of a transaction would inherit
#: half of it, and locks that nobody there will ever give back: so it waits.
_filing = threading.Lock()
os.register_at_fork(
    before=_filing.acquire, after_in_parent=_filing.release, after_in_child=_filing.release
)
