"""What one attempt says about itself, in words that are the same for every kind of adapter."""

from __future__ import annotations

from actum.value import value


@value
class Told:
    """Whether another attempt makes sense is the engine's to decide; this is what it goes by."""

    code: int | None  #: exit code (cli) or HTTP status (api); ``None``: there is none
    transport_failure: bool = False  #: the other side was not reached, or its answer was cut off
    untouched: bool = False  #: nothing was sent, so nothing can have happened there
    retry_after_s: float | None = None  #: what the other side asked for
    reason: str = ""  #: for people, where the exit code says less
