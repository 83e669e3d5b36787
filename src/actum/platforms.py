"""Where Actum runs, and the sentence for everywhere else. Imports nothing that is only on Linux."""

from __future__ import annotations

import os
import sys

_NAMES = {"darwin": "macOS", "win32": "Windows", "cygwin": "Windows"}


def unsupported() -> str:
    """One sentence, with the remedy; empty on Linux on x86-64."""
    if sys.platform != "linux":
        here = _NAMES.get(sys.platform, sys.platform)
        instead = "WSL 2 or a Linux machine" if here == "Windows" else "a Linux machine"
    elif (machine := os.uname().machine) != "x86_64":
        here, instead = f"Linux on {machine}", "an x86-64 machine"
    else:
        return ""
    return (
        f"Actum runs on Linux on x86-64, because its sandbox is made of kernel features that only"
        f" Linux has; this is {here}. Use {instead}, a virtual one included."
    )
