"""Loaded by every Python that a trial starts; acts in the work item's own process only.

A trial puts this folder on PYTHONPATH and its wishes into ACTUM_TEST_HOOKS. The product knows
neither.
"""

from __future__ import annotations

import json
import os
import sys

_MARK = "actum.doors.work_item_process"


def _act() -> None:
    wishes = os.environ.get("ACTUM_TEST_HOOKS")
    if wishes is None or not any(_MARK in word for word in sys.orig_argv):
        return
    from strike_breaks import apply_breaks
    from strike_faults import arm_fault

    wanted = json.loads(wishes)
    if "broken" in wanted:
        apply_breaks(wanted["broken"])
    if "fault" in wanted:
        arm_fault(**wanted["fault"])


_act()
