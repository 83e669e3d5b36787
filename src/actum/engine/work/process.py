"""A work item's own process: started by whoever asks, and gone with whatever it had mounted.

The work runs in a mount namespace that only this process and its children have, and entering one
takes a process without threads. If it dies on the way, the asker finds out what it had decided.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

from actum.contract.model import Json
from actum.errors import SandboxUnavailable

_BOOT = "import sys; sys.path[:0] = sys.argv[1:]; from actum.doors.chamber import main; main()"


class Died(Exception):
    """It ended without an answer."""


def ask(order: Mapping[str, Json]) -> dict[str, Any]:
    """Have one order carried out; raises `Died` if its process did not live to answer."""
    source = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(__file__))))
    process = subprocess.Popen(
        [sys.executable, "-c", _BOOT, source],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C is the asker's to handle
    )
    try:
        answer, said = process.communicate(json.dumps(order).encode())
    except BaseException:
        process.kill()
        process.wait()
        raise
    if process.returncode != 0 or not answer:
        raise Died(f"exit {process.returncode}: {said.decode(errors='replace').strip()[-2000:]}")
    decoded: dict[str, Any] = json.loads(answer)
    if "fault" in decoded:
        raise SandboxUnavailable(decoded["fault"], remedy=decoded["remedy"])
    return decoded
