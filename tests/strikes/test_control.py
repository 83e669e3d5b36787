"""The same trials with the protection taken out find the loss: they can fail."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from .lab import HOOKS, ITEM_RUN, Kind, Lab
from .strike import Blow, Signal, Target

pytestmark = pytest.mark.sandbox

_TRIALS = 24


def test_control_without_protection_an_interrupt_deletes_files(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    lab = Lab(tmp_path, "overlay")
    try:
        kind = Kind(ITEM_RUN, exclusive=False)
        unharmed = lab.unharmed(kind)
        hooks = {
            "PYTHONPATH": str(HOOKS),
            "ACTUM_TEST_HOOKS": json.dumps({"break": "plain-removal"}),
        }
        for number in range(_TRIALS):
            # The first half of the child's life holds its set-up.
            delay_s = 0.5 * unharmed.lives[Target.CHILD] * number / _TRIALS
            blow = Blow(Signal.INT, Target.COMMAND, delay_s, clock=Target.CHILD)
            lab.restore(unharmed.template)
            _, wrong = lab.judge(kind, lab.start(unharmed.words, blow, hooks))
            if any(each.startswith("LOST") for each in wrong):
                record_property("figure", f"the control lost files at trial {number + 1}")
                return
    finally:
        lab.close()
    pytest.fail(f"{_TRIALS} interrupts without protection lost nothing")
