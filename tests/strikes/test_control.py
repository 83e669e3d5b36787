"""The same trials with the protection taken out find the loss: they can fail."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from .held_open import strike_held_open
from .lab import Lab
from .strike import Signal

pytestmark = pytest.mark.sandbox

_TRIALS = 5


def test_control_without_protection_an_interrupt_deletes_files(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    lab = Lab(tmp_path, "overlay")
    try:
        for number in range(_TRIALS):
            wrong = strike_held_open(lab, Signal.INT, ["plain-removal"])
            losses = [each for each in wrong if each.startswith("LOST")]
            if losses:
                record_property("figure", f"control, trial {number + 1}: {losses[0]}")
                return
    finally:
        lab.close()
    pytest.fail(f"{_TRIALS} interrupts without protection lost nothing")
