"""From the name of a program to the one file that was checked.

The file is named by its real path and its SHA-256, so that the runner can compare what it starts
with what was judged. The caller's PATH is never looked at.
"""

from __future__ import annotations

import os
import stat
from collections.abc import MutableMapping, Sequence
from pathlib import Path

from actum.contract.call import Executable
from actum.contract.canonical import sha256_file
from actum.errors import Refused
from actum.registry.digest import file_clock_ns

#: Where programs are looked for unless the tool brings a scoped PATH.
MINIMAL_PATH = ("/usr/local/bin", "/usr/bin", "/bin")


class Executables:
    """Resolves programs; digests are kept by device, inode, ctime and size."""

    def __init__(self, kept: MutableMapping[str, str] | None = None) -> None:
        #: May be a mapping that outlives the process; a changed file has another key.
        self._kept = {} if kept is None else kept

    def find(self, program: str, search_path: Sequence[str], *, hint: str) -> Executable:
        path = _locate(program, search_path)
        if path is None:
            where = "" if program.startswith("/") else f" in {':'.join(search_path)}"
            raise Refused(
                "EXECUTABLE_MISSING",
                f"The program {program} is not installed: no executable file{where}.",
                remedy=hint,
            )
        tick = file_clock_ns()
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            key = f"{status.st_dev}:{status.st_ino}:{status.st_ctime_ns}:{status.st_size}"
            digest = self._kept.get(key)
            if digest is None:
                digest = sha256_file(file)
                # Changed in this very tick, it could change again and keep its ctime.
                if status.st_ctime_ns < tick:
                    self._kept[key] = digest
        return Executable(path=str(path), sha256=digest, device=status.st_dev, inode=status.st_ino)


def _locate(program: str, search_path: Sequence[str]) -> Path | None:
    candidates = [program] if program.startswith("/") else [f"{d}/{program}" for d in search_path]
    for candidate in candidates:
        real = Path(os.path.realpath(candidate))
        if real.exists() and stat.S_ISREG(real.stat().st_mode) and os.access(real, os.X_OK):
            return real
    return None
