"""A clock that moves only when `advance` is called."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta


class FixedClock:
    """For `Runtime(clock=...)`: contracts and records then have a known time."""

    def __init__(self, moment: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        if moment.tzinfo is None:
            raise ValueError("moment: give a time with its zone, for example tzinfo=UTC")
        self._moment = moment

    def __call__(self) -> datetime:
        return self._moment

    def advance(self, seconds: float) -> None:
        """Move the clock; a negative number sets it back."""
        self._moment += timedelta(seconds=seconds)
