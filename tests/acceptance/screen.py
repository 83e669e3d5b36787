"""`actum` on a terminal of a given width, as a person sees it."""

from __future__ import annotations

import fcntl
import os
import pty
import struct
import subprocess
import termios
from pathlib import Path

from .terminal import COMMAND


def screen(
    folder: Path, *words: str, width: int = 80, both: bool = False, **environment: str
) -> str:
    """Everything that the command prints to a terminal of this width; stderr too, with `both`."""
    outer, inner = pty.openpty()
    fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 24, width, 0, 0))
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name not in ("COLUMNS", "LINES", "NO_COLOR", "TERM")
    }
    child = subprocess.Popen(
        [*COMMAND, *words],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=inner,
        stderr=inner if both else subprocess.DEVNULL,
        env={**inherited, "TERM": "xterm", **environment},
    )
    os.close(inner)
    shown = b""
    try:
        while part := os.read(outer, 65_536):
            shown += part
    except OSError:  # EIO: the last writer has closed the terminal
        pass
    finally:
        os.close(outer)
        child.wait(timeout=120)
    return shown.decode().replace("\r\n", "\n")
