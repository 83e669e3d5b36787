"""From the name of a program to the one file that was checked.

The file is identified by real path and SHA-256, so that the runner can compare what it starts
with what was checked. The caller's PATH is never used.
"""

from __future__ import annotations

import os
import stat
from collections.abc import MutableMapping, Sequence

from actum.contract.call import Executable
from actum.contract.canonical import sha256_file
from actum.contract.image_reference import RootImage
from actum.contract.levels import is_within
from actum.errors import Refused
from actum.registry.digest import file_clock_ns
from actum.registry.path_snapshot import PathSnapshot
from actum.value import replace

#: Directories searched for programs unless the tool declares a scoped PATH.
MINIMAL_PATH = ("/usr/local/bin", "/usr/bin", "/bin")
#: Mounted read-only in every sandbox. On a merged /usr the others are links into it.
SYSTEM_FOLDERS = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")


def in_system(path: str) -> bool:
    """Whether every sandbox shows `path`."""
    return any(is_within(path, folder) for folder in SYSTEM_FOLDERS)


class Executables:
    """Resolves programs; digests are cached by device, inode, ctime and size."""

    def __init__(self, cached: MutableMapping[str, str] | None = None) -> None:
        #: May be a mapping that outlives the process; a changed file has another key.
        self._cached = {} if cached is None else cached

    def find(
        self, program: str, search_path: Sequence[str], *, hint: str, snapshot: PathSnapshot
    ) -> Executable:
        path = located(program, search_path, snapshot)
        if not path:
            where = "" if program.startswith("/") else f" in {':'.join(search_path)}"
            raise Refused(
                "EXECUTABLE_MISSING",
                f"The program {program} is not installed: no executable file{where}.",
                remedy=hint,
            )
        return self.identified(snapshot.real(path), snapshot)

    def find_in(
        self,
        image: RootImage,
        program: str,
        search_path: Sequence[str],
        *,
        hint: str,
        snapshot: PathSnapshot,
    ) -> Executable:
        """The same in an image: no path and no link of it leads to a file of the host."""
        candidates = [program] if "/" in program else [f"{d}/{program}" for d in search_path]
        for candidate in candidates:
            path = snapshot.real_in(image.folder, candidate) if candidate.startswith("/") else ""
            if path and snapshot.may(image.folder + path, os.X_OK) and _is_file(image, path):
                found = self.identified(image.folder + path, snapshot)
                return replace(found, path=path, image=image.id)
        where = "" if "/" in program else f" in {':'.join(search_path)}"
        raise Refused(
            "EXECUTABLE_MISSING",
            f"The image {image.reference} has no program {program}: no executable file{where}.",
            remedy=hint,
        )

    def identified(self, path: str, snapshot: PathSnapshot) -> Executable:
        """The file at a resolved `path`, with its digest."""
        tick = file_clock_ns()
        status = snapshot.status(path)
        digest = self._cached.get(_key(status))
        if digest is None:
            with open(path, "rb") as file:
                status = os.fstat(file.fileno())
                digest = sha256_file(file)
            # Changed in the current clock tick, it could change again with the same ctime.
            if status.st_ctime_ns < tick:
                self._cached[_key(status)] = digest
        return Executable(path=path, sha256=digest, device=status.st_dev, inode=status.st_ino)


def _is_file(image: RootImage, path: str) -> bool:
    return stat.S_ISREG(os.lstat(image.folder + path).st_mode)


def _key(status: os.stat_result) -> str:
    return f"{status.st_dev}:{status.st_ino}:{status.st_ctime_ns}:{status.st_size}"


def located(program: str, search_path: Sequence[str], snapshot: PathSnapshot) -> str:
    """The path of the first executable file, links not resolved; empty if there is none."""
    candidates = [program] if program.startswith("/") else [f"{d}/{program}" for d in search_path]
    for candidate in candidates:
        if snapshot.may(candidate, os.X_OK) and os.path.isfile(snapshot.real(candidate)):
            return candidate
    return ""
