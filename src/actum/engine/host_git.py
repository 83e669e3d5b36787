"""One question to the git of the person who runs Actum. Nothing of a project takes part in it.

A directory that holds `HEAD`, `objects/` and `refs/` is a repository to git, without any `.git`:
what a tool writes into its `config` is executed by `git status` there, unless the setting
`safe.bareRepository` is `explicit`.
"""

from __future__ import annotations

import os
import shutil
import subprocess

#: Not the PATH of the process: it may name folders that a tool can write to.
_PATH = "/usr/local/bin:/usr/bin:/bin"
#: Where a person's own settings are, and nothing that names a repository.
_KEPT = ("HOME", "XDG_CONFIG_HOME", "GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM")
_WALL_S = 5.0
_FOUND, _NOT_SET = 0, 1  #: exit codes of `git config --get`


def takes_bare_repositories() -> bool:
    """Whether this user's git obeys a bare repository that it finds; false without a git."""
    program = shutil.which("git", path=_PATH)
    if program is None:
        return False
    # With this GIT_DIR git looks for no repository, not even in `/`.
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
