"""Names that decide what Actum or git executes: those of a project, and those of git."""

from __future__ import annotations

from collections.abc import Callable

# -- directly in the project's root, each with all contents --------------------------------------

#: Present in every project (`actum init`).
ALWAYS_THERE = ("actum.toml", "tools", "tools.lock", "rules")
#: A tool could create the other two.
GOVERNING = (*ALWAYS_THERE, "agents", "executors")

# -- in a git directory --------------------------------------------------------------------------

#: Each with all contents. `git add`, `commit`, `branch`, `stash` and `rebase` write none of
#: them but the two that an interrupted rebase leaves.
GIT_EXECUTES = frozenset(
    {
        "hooks",
        "config",
        "config.worktree",
        "commondir",
        "gitdir",
        "info",
        "rebase-merge",
        "rebase-apply",
        "sequencer",
    }
)
GIT_HEAD, GIT_COMMON, GIT_STORES = "HEAD", "commondir", ("objects", "refs")


def is_git_directory(holds: Callable[[str], bool]) -> bool:
    """Whether git treats a folder with these names as a git directory: HEAD, and either the
    stores or the name of a common directory that has them."""
    return holds(GIT_HEAD) and (holds(GIT_COMMON) or all(map(holds, GIT_STORES)))
