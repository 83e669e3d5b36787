"""From the name of a program to the one file that was checked.

The file is named by its real path and its SHA-256, so that the runner can compare what it starts
with what was judged. The caller's PATH is never looked at.
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping, Sequence

from actum.contract.call import Executable
from actum.contract.canonical import sha256_file
from actum.errors import Refused
from actum.registry.digest import file_clock_ns
from actum.registry.looks import Looks

#: Where programs are looked for unless the tool brings a scoped PATH.
MINIMAL_PATH = ("/usr/local/bin", "/usr/bin", "/bin")


class Executables:
    """Resolves programs; digests are kept by device, inode, ctime and size."""

    def __init__(self, kept: MutableMapping[str, str] | None = None) -> None:
        #: May be a mapping that outlives the process; a changed file has another key.
        self._kept = {} if kept is None else kept

    def find(
        self, program: str, search_path: Sequence[str], *, hint: str, looks: Looks
    ) -> Executable:
        path = _locate(program, search_path, looks)
        if not path:
            where = "" if program.startswith("/") else f" in {':'.join(search_path)}"
            raise Refused(
                "EXECUTABLE_MISSING",
                f"The program {program} is not installed: no executable file{where}.",
                remedy=hint,
            )
        tick = file_clock_ns()
        status = looks.status(path)
        digest = self._kept.get(_key(status))
        if digest is None:
            with open(path, "rb") as file:
                status = os.fstat(file.fileno())
                digest = sha256_file(file)
            # Changed in this very tick, it could change again and keep its ctime.
            if status.st_ctime_ns < tick:
                self._kept[_key(status)] = digest
        return Executable(path=path, sha256=digest, device=status.st_dev, inode=status.st_ino)


def _key(status: os.stat_result) -> str:
    return f"{status.st_dev}:{status.st_ino}:{status.st_ctime_ns}:{status.st_size}"


def _locate(program: str, search_path: Sequence[str], looks: Looks) -> str:
    """The real path of the first that can be run; empty if there is none."""
    candidates = [program] if program.startswith("/") else [f"{d}/{program}" for d in search_path]
    for candidate in candidates:
        if looks.may(candidate, os.X_OK):
            real = looks.real(candidate)
            if os.path.isfile(real):
                return real
    return ""
