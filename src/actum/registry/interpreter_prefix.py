"""Whether a folder may be listed in `[interpreters] prefixes` of actum.toml.

Such a folder is mounted read-only for tools whose program is in it: pyenv, uv, conda and nvm
install an interpreter with its libraries below one folder. Nobody but the operator may be able to
change what is executed from it, and it may not be a folder that holds other things of the user.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterable
from contextlib import suppress

from actum.contract.levels import is_within
from actum.registry.executable import SYSTEM_FOLDERS
from actum.secrets.host_program import require_operators
from actum.secrets.sources import Unavailable

SETTING = "interpreters.prefixes"
#: The kernel's own files and the host's configuration, whole or in part.
_NEVER = ("/proc", "/sys", "/dev", "/etc", "/boot")
#: Folders that hold many subjects; a folder in one of them can be a prefix.
_TOO_WIDE = ("/", "/home", "/root", "/opt", "/srv", "/var", "/run", "/mnt", "/media", "/tmp")


def problem_with(prefix: str, *, project: str, writable: Iterable[str]) -> str:
    """Why `prefix` cannot be used, with the remedy; empty if it can. `writable` are the paths that
    tools may write."""
    if any(is_within(prefix, folder) for folder in SYSTEM_FOLDERS):
        return f"{prefix} is in every sandbox already; remove it from the list"
    if prefix in _TOO_WIDE or any(is_within(prefix, folder) for folder in _NEVER):
        return f"{prefix} holds more than one interpreter; list the interpreter's own folder"
    real = os.path.realpath(prefix)
    if real != prefix:
        return f"{prefix} is reached through a link; list {real}, or a folder that holds both"
    if not os.path.isdir(prefix):
        return f"{prefix} is not a folder"
    for subject, path in (("the project", project), ("your home directory", _home())):
        if is_within(os.path.realpath(path), prefix):
            return f"{prefix} holds {subject}; list the interpreter's own folder"
    writable = tuple(writable)
    for path in writable:
        if is_within(os.path.realpath(path), prefix):
            return f"{prefix} holds {path}, which tools may write; move one of them"
    return unsafe_step(prefix, writable)


def unsafe_step(path: str, writable: Iterable[str]) -> str:
    """The step of `path` that others could change, with the remedy; empty if there is none."""
    try:
        require_operators(path, writable)
    except Unavailable as unsafe:  # or `UnsafeCommand`, which is one
        return str(unsafe)
    return ""


def _home() -> str:
    """Of the account, not of the environment."""
    with suppress(KeyError):
        return pwd.getpwuid(os.geteuid()).pw_dir
    return "/nonexistent"
