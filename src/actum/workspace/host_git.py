"""Ask the host user's git for one setting. No file of a project is read.

Git takes a directory that holds `HEAD`, `objects/` and `refs/` for a repository, without any
`.git`: `git status` there executes what a tool wrote into its `config`, unless the setting
`safe.bareRepository` is `explicit`.
"""

from __future__ import annotations

import os
import shutil
import subprocess

#: Not the PATH of the process: it may name folders that a tool can write.
_PATH = "/usr/local/bin:/usr/bin:/bin"
#: Variables that locate the user's own settings. None that names a repository.
_KEPT = ("HOME", "XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM")
_WALL_S = 5.0
_FOUND, _NOT_SET = 0, 1  #: exit codes of `git config --get`


def takes_bare_repositories() -> bool:
    """Whether this user's git obeys a bare repository that it finds; false without git."""
    program = shutil.which("git", path=_PATH)
    if program is None:
        return False
    # With this GIT_DIR git searches for no repository, not even in `/`.
    environment = {"PATH": _PATH, "GIT_DIR": os.devnull}
    environment |= {name: os.environ[name] for name in _KEPT if name in os.environ}
    try:
        done = subprocess.run(
            [program, "config", "--get", "safe.bareRepository"],
            check=False,
            cwd="/",
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_WALL_S,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    if done.returncode == _FOUND:
        return done.stdout.strip().lower() != b"explicit"
    return done.returncode == _NOT_SET
