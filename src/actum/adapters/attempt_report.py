"""The report of one attempt, in terms common to all kinds of adapters."""

from __future__ import annotations

from actum.value import value


@value
class AttemptReport:
    """Facts for the decision whether to retry; `execution.retry` decides."""

    code: int | None  #: exit code (cli) or HTTP status (api), if any
    transport_failure: bool = False  #: the other side was not reached, or its answer was cut off
    untouched: bool = False  #: nothing was sent, so nothing can have happened there
    retry_after_s: float | None = None  #: delay that the other side requested
    reason: str = ""  #: for people, beyond the exit code
