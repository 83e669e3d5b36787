"""The script that proves a run: restore what was there, do it again, compare the hash.

It works in a throwaway folder; neither the live workspace nor the history is changed by it.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from actum.engine.work.model import WorkItem

_SCRIPT = """\
#!/usr/bin/env bash
# {name}
# Replay of work item {item} by {agent}

set -euo pipefail

ACTUM=({actum})
HOME_DIR={home}
PLACE=$("${{ACTUM[@]}}" item place)
trap '"${{ACTUM[@]}}" item clear "$PLACE"{prune}' EXIT

# 1. Restore input state{git}
"${{ACTUM[@]}}" item restore --home "$HOME_DIR" {run} "$PLACE/state"

# 2. Re-run agent with same inputs
"${{ACTUM[@]}}" item again --home "$HOME_DIR" {run} "$PLACE/state"

# 3. Verify output hash
ACTUAL_HASH=$("${{ACTUM[@]}}" item hash --home "$HOME_DIR" "$PLACE/state")
EXPECTED_HASH="{expected}"

if [ "$ACTUAL_HASH" != "$EXPECTED_HASH" ]; then
  echo "ERROR: Hash mismatch"
  exit 1
fi

echo "✅ Replay successful: hash verified"
"""
_WITH_GIT = """ (tracked files: git checkout of the before commit)
git -C {root} worktree add --quiet --detach "$PLACE/state" {commit}"""
_PRUNE = "; git -C {root} worktree prune"  #: git forgets a worktree whose folder is gone


def script_name(item: WorkItem) -> str:
    return f"replay-{item.agent_id}.sh"


def make_script(
    item: WorkItem, run_id: str, after_hash: str, home: Path, root: Path, commit: str | None
) -> str:
    """`commit` is what git had checked out when the run began, where there is a repository."""
    at = shlex.quote(str(root))
    git = _WITH_GIT.format(root=at, commit=commit) if commit else ""
    # In single quotes already, where the shell takes no escapes.
    prune = _PRUNE.format(root=at.replace("'", "'\\''")) if commit else ""
    return _SCRIPT.format(
        name=script_name(item),
        item=item.id,
        agent=item.agent_id,
        # -P: people run the script in the project, and no module may be imported from there.
        actum=f"{shlex.quote(sys.executable)} -P -m actum.doors.cli.main",
        home=shlex.quote(str(home)),
        run=run_id,
        expected=after_hash,
        git=git,
        prune=prune,
    )


def head_commit(root: Path) -> str | None:
    """What git has checked out in `root`, read without git; ``None`` where that is not plain."""
    git = root / ".git"
    try:
        head = (git / "HEAD").read_text().strip()
        if not head.startswith("ref: "):
            return _commit(head)
        ref = head.removeprefix("ref: ")
        loose = git / ref
        if loose.is_file():
            return _commit(loose.read_text().strip())
        for line in (git / "packed-refs").read_text().splitlines():
            if line.endswith(f" {ref}"):
                return _commit(line.split(" ")[0])
    except (OSError, UnicodeDecodeError):
        return None
    return None


def _commit(text: str) -> str | None:
    return text if len(text) in (40, 64) and set(text) <= set("0123456789abcdef") else None
