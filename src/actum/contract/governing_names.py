"""Names that decide what Actum or git will execute: those of a project, and those of git."""

from __future__ import annotations

from collections.abc import Callable

# -- right in the project's root, each with everything below it ----------------------------------

#: There in every project (`actum init`).
ALWAYS_THERE = ("actum.toml", "tools", "tools.lock", "rules")
#: A tool could create the others.
GOVERNING = (*ALWAYS_THERE, "agents", "executors")

# -- in a git directory --------------------------------------------------------------------------

#: Each with everything below it. `git add`, `commit`, `branch`, `stash` and
#: `rebase` write none of them but the two that an interrupted rebase leaves.
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
    """Whether git takes a folder that holds these names for a git directory: HEAD, and either the
    stores or the name of a common directory that has them."""
    return holds(GIT_HEAD) and (holds(GIT_COMMON) or all(map(holds, GIT_STORES)))
