"""The clock that retries use; tests replace it."""

from __future__ import annotations

import select
import time
from collections.abc import Callable

from actum.runners.base import Cancel
from actum.value import value


def wait(seconds: float, cancel: Cancel | None) -> bool:
    """Wait; ``False`` as soon as the caller cancels."""
    poll = select.poll()
    if cancel is not None:
        poll.register(cancel.fileno(), select.POLLIN)
    return not poll.poll(seconds * 1000)


@value(kw_only=False)
class RetryClock:
    now: Callable[[], float] = time.monotonic
    wait: Callable[[float, Cancel | None], bool] = wait
