"""Names that decide what Actum or git will execute later. One list, for everything that asks.

A tool may change them, as it may change any file of its workspace, and a person decides about it:
a transaction that touches one is held until then. Where a tool writes directly, they are covered.

* What governs the project: its settings, tools, lock, rules, agents, executors and home.
* What the host's git would execute, or would take as its configuration: hooks, configuration,
  other directories that git is sent to, and files of an operation that it would continue.
* A new repository, also a bare one without any `.git`: git finds it, and obeys it.
* What editors, shells and other agents execute on opening a folder (`[protect] names`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from actum.contract.governing_names import GOVERNING

#: In a git directory, each with everything below it. `git add`, `commit`, `branch`, `stash` and
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
#: What makes a folder a git directory: with all of them git takes it for a repository.
_GIT_PARTS = frozenset({"HEAD", "objects", "refs"})
#: Without one of these a `.git` is none, and git looks for a repository in the folder around it.
_GIT_NEEDS = frozenset({"HEAD", "objects", "refs"})

#: Whether a path exists, seen with the changes.
Exists = Callable[[str], bool]


def held_back(
    changed: Iterable[tuple[str, bool]], root: str, names: Iterable[str], exists: Exists
) -> Iterator[str]:
    """Of the changed paths those that a person has to decide about.

    `changed` holds absolute paths, and whether each was removed.
    """
    protected = tuple(tuple(name.split("/")) for name in names)
    for path, removed in changed:
        parts = tuple(path.strip("/").split("/"))
        if (
            _governs(path, root)
            or any(_holds(parts, name) for name in protected)
            or _git(parts, removed)
            or (not removed and _makes_repository(path, exists))
        ):
            yield path


def _governs(path: str, root: str) -> bool:
    if ".actum" in path.split("/"):
        return True  # also of another project, which would govern its folder
    inside = path[len(root.rstrip("/")) + 1 :] if path.startswith(root.rstrip("/") + "/") else ""
    return inside.partition("/")[0] in GOVERNING


def _holds(parts: tuple[str, ...], name: tuple[str, ...]) -> bool:
    return any(parts[at : at + len(name)] == name for at in range(len(parts) - len(name) + 1))


def _git(parts: tuple[str, ...], removed: bool) -> bool:
    """Whether a path is in a git directory and is one of the names that git executes or obeys."""
    if ".git" not in parts:
        return False
    inside = parts[parts.index(".git") + 1 :]
    if not inside:
        return True  # a `.git` that was made, removed, or is a file that leads elsewhere
    if removed and inside[0] in _GIT_NEEDS and len(inside) == 1:
        return True
    if inside == ("info", "refs"):
        return False  # a list of names for clients of plain HTTP, which `git gc` writes
    # The git directory of a submodule or of another worktree lies inside of the first one.
    if inside[0] in ("modules", "worktrees"):
        return len(inside) <= 2 or any(part in GIT_EXECUTES for part in inside[2:])
    return inside[0] in GIT_EXECUTES


def _makes_repository(path: str, exists: Exists) -> bool:
    """Whether a folder became a git directory by this name, without being called `.git`."""
    folder, _, name = path.rpartition("/")
    if name not in _GIT_PARTS or "/.git/" in f"{path}/":
        return False
    return all(exists(f"{folder}/{part}") for part in _GIT_PARTS)
