"""Background thread: moves journal entries into SQLite while the runtime is idle.

It begins when the journal holds `SOME` executions and no request is being served, works in steps
of a tenth of a millisecond, and stops between two steps when a request arrives. When the journal
holds `MANY`, or is almost full (of actions of the pure plane, or of files), it no longer yields to
requests, but still works in steps. If it cannot keep up, the next request that finds `TOO_MANY`
writes out before it starts.

The thread decides nothing: every entry is durable before it sees it. An entry that it cannot write
out stays in the journal, and the next write-out reports why. Proved by
tests/unit/evidence/test_background_writer.py.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from actum.evidence.batch import Batch
from actum.evidence.log import Log
from actum.store.database import Database

#: Executions worth a commit. Fewer stay in the journal until a reader needs them.
SOME = 16
#: From here on, or with the journal almost full, the thread works while requests are served.
MANY = 64
#: From here on the next execution writes out first: this bounds the journal.
TOO_MANY = 128

#: Pause after the last request left: its caller is about to send the answer.
_PAUSE_S = 0.0005
#: If a request arrives in every such pause, skip at most this many of the next ones.
_PATIENCE = 7
#: Then try again: the last request may have been the last for some time.
_LATER_S = 0.05
#: On journal rotation, write out at most this many frames under the lock.
_FEW = 8
#: Frames per transaction: readers and other transactions wait for it.
_MOST = 128
#: Sleep between two steps. A computing thread that never releases the GIL blocks others for 5 ms
#: (`sys.getswitchinterval`); after a shorter release it has the GIL back before they are awake.
_LET_GO_S = 0.00005


class BackgroundWriter:
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
        self._served: list[None] = []  # one item per request: append and pop are atomic
        self._calls: queue.SimpleQueue[bool] = queue.SimpleQueue()
        self._waits = True
        self._guard = threading.Lock()
        self._worker: threading.Thread | None = None
        self._stopped = False
        self._batch: Batch | None = None
        self._deferrals = 0  # calls in a row that found a request being served
        self._skips = 0  # requests that may leave before the next call
        self._given_up = False  # a write-out failed, and its entries are still in the journal
        database.before_closing(self.stop)

    def start(self) -> None:
        """Start the thread now instead of at the first call, if the system allows one more."""
        with self._guard:
            if self._worker is None and not self._stopped:
                worker = threading.Thread(target=self._work, name="actum-writer", daemon=True)
                # Too many threads. The request has its answer all the same; the next one retries.
                with suppress(RuntimeError):
                    worker.start()
                    self._worker = worker

    def arrive(self) -> None:
        """A request begins."""
        self._served.append(None)

    def leave(self) -> None:
        """A request has ended."""
        self._served.pop()
        if self._log.in_journal() < SOME and not self._log.almost_full:
            self._given_up = False
        elif self._waits and self._is_due():
            if self._skips and not self._is_urgent():
                self._skips -= 1
            else:
                self._call()

    def _is_due(self) -> bool:
        if self._given_up or not self._works:
            return False
        return self._is_urgent() or (self._log.in_journal() >= SOME and not self._served)

    def _is_urgent(self) -> bool:
        return self._log.in_journal() >= MANY or self._log.almost_full

    def _call(self) -> None:
        self._waits = False  # two simultaneous calls do no harm
        if self._worker is None:
            self.start()
        if self._worker is None:
            self._waits = True
        else:
            self._calls.put(True)

    def _work(self) -> None:
        while self._called():
            self._pause(_PAUSE_S)
            self._deferrals = 0 if self.work() else min(2 * self._deferrals + 1, _PATIENCE)
            self._skips = self._deferrals
            self._waits = True
            # A request may have left between the last check and the line above.
            if self._is_due():
                self._call()

    def _called(self) -> bool:
        """Wait for a call or for `stop`, or until requests left that were skipped."""
        while True:
            try:
                return self._calls.get(timeout=_LATER_S if self._deferrals else None)
            except queue.Empty:
                passed, self._skips = self._skips < self._deferrals, 0
                if passed:
                    return True
                self._deferrals = 0  # a long request is being served: it calls when it leaves

    def work(self) -> bool:
        """Write out while that is due; whether it was."""
        begun = False
        try:
            while self._is_due() and not self._stopped:
                begun = True
                self._step()
        except Exception:  # noqa: BLE001 -- the next write-out raises it to a caller
            self._given_up, self._batch = True, None
        return begun

    def _step(self) -> None:
        batch = self._batch
        current = batch is not None and batch.is_current
        if batch is not None and current and len(batch.ready) < _MOST and batch.step():
            self._pause(_LET_GO_S)
            return
        with _writing:
            if batch is None or not current:
                # This detects that another process has written the journal out meanwhile.
                self._batch = self._log.batch()
            elif len(batch.ready) > _FEW:
                self._log.write_out_batch(batch)
            else:
                self._batch = None
                self._log.finish(batch)
                if not self._served:
                    self._log.settle()  # sync the empty journal: else the next request does

    def stop(self) -> None:
        """Stop the thread and wait for its end."""
        with self._guard:
            self._stopped = True
        if self._worker is not None:
            self._calls.put(False)
            self._worker.join()


#: Held by a background writer that holds any other lock. A fork in the middle of a transaction
#: would inherit half of it, and locks that no thread there releases. So a fork waits for it.
_writing = threading.Lock()
os.register_at_fork(
    before=_writing.acquire, after_in_parent=_writing.release, after_in_child=_writing.release
)
