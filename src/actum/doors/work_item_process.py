"""The entry point of a work item's own process: reads one order, writes one answer.

`work.item_process` starts it, never a person. It enters a namespace of its own before anything else
is imported, because only a process without threads can.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from actum import kernel

_TELLING = threading.Lock()


def main() -> None:
    # Without the caller, the answer has no reader; the lock, the view and the tools end with us.
    kernel.prctl(kernel.PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(sys.argv[1]):
        os._exit(1)  # the caller died before the line above
    order: dict[str, Any] = json.loads(sys.stdin.buffer.readline())
    from actum.workspace import namespace

    try:
        namespace.enter()
    except OSError as error:
        _answer(
            {
                "fault": f"A work item needs a mount namespace of its own: {error.strerror}.",
                "remedy": "Allow unprivileged user namespaces, or run as root.",
            }
        )
        return
    from actum.runtime import Runtime

    try:
        with Runtime.open(order["root"], home=Path(order["home"]), pool=False) as runtime:
            _answer(runtime.work_items.here(order, _tell))
    except Exception as error:
        from actum.doors.known_failures import explained

        known = explained(error)
        if known is None:
            raise
        # The caller repeats it, and recovers as after any other death of this process.
        sys.exit(str(known))


def _tell(word: Mapping[str, Any]) -> None:
    """Report progress, and wait for the acknowledgement."""
    with _TELLING:  # tools are called by several threads
        try:
            _answer(word)
            nod = sys.stdin.buffer.readline()
        except OSError:
            nod = b""
        if not nod:
            # The asker is gone. To die here is what SIGKILL would have done a moment later; the
            # next command recovers, and nothing here decides anything on its own.
            os._exit(1)


def _answer(document: Mapping[str, Any]) -> None:
    sys.stdout.write(json.dumps(document) + "\n")
    sys.stdout.flush()
