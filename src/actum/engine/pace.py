"""How time passes between attempts; another one can be put in its place."""

from __future__ import annotations

import select
import time
from collections.abc import Callable

from actum.runners.base import Cancel
from actum.value import value


def wait(seconds: float, cancel: Cancel | None) -> bool:
    """Wait; false as soon as the caller has cancelled."""
    poll = select.poll()
    if cancel is not None:
        poll.register(cancel.fileno(), select.POLLIN)
    return not poll.poll(seconds * 1000)


@value(kw_only=False)
class Pace:
    now: Callable[[], float] = time.monotonic
    wait: Callable[[float, Cancel | None], bool] = wait
