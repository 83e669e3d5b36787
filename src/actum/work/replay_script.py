"""The script that proves a run: restore the state before, run again, compare the hash.

It works in a throwaway folder and changes neither the live workspace nor the history. Tools can
write to a repository, so the script runs git with a git directory of its own: git reads only the
objects of the repository. Proved by tests/security/test_host_git.py.
"""

from __future__ import annotations

import os
import shlex
import stat
import sys
from pathlib import Path

from actum import kernel
from actum.work.model import WorkItem

_SCRIPT = """\
#!/usr/bin/env bash
# {name}
# Replay of work item {item} by {agent}

set -euo pipefail

ACTUM=({actum})
HOME_DIR={home}
PLACE=$("${{ACTUM[@]}}" item place)
trap '"${{ACTUM[@]}}" item clear "$PLACE"' EXIT

# 1. Restore input state{git}"${{ACTUM[@]}}" item restore --home "$HOME_DIR" {run} "$PLACE/state"

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
# `.gitattributes` of the commit can name filters, and none is defined. GIT_OBJECT_DIRECTORY takes
# one path, whatever its characters are. PATH: a person's own may name folders of the project.
_WITH_GIT = """ (tracked files: git checkout of the before commit)
# A git directory of its own: git reads no configuration, hook or index of the repository.
(
  PATH=/usr/local/bin:/usr/bin:/bin
  cd /
  mkdir "$PLACE/git" "$PLACE/git/refs" "$PLACE/state"
  echo {commit} > "$PLACE/git/HEAD"
  printf '{configuration}' > "$PLACE/git/config"
  env -i PATH="$PATH" GIT_CONFIG_NOSYSTEM=1 GIT_CONFIG_GLOBAL=/dev/null GIT_ATTR_NOSYSTEM=1 \\
    GIT_DIR="$PLACE/git" GIT_WORK_TREE="$PLACE/state" GIT_OBJECT_DIRECTORY={objects} \\
    git checkout --quiet --force --detach {commit}
) || echo "Note: git cannot check out {commit}. Step 1 uses the records alone." >&2
"""
_SHA1 = ""
_SHA256 = r"[core]\nrepositoryFormatVersion = 1\n[extensions]\nobjectFormat = sha256\n"

#: Upper bounds of the files of a repository that are read here.
_MOST_BYTES_OF_A_REF = 4096
_MOST_BYTES_OF_PACKED_REFS = 64 << 20


def script_name(item: WorkItem) -> str:
    return f"replay-{item.agent_id}.sh"


def make_script(
    item: WorkItem, run_id: str, after_hash: str, home: Path, root: Path, commit: str | None
) -> str:
    """`commit` is the commit that was checked out when the run began, if there is a repository."""
    git = "\n"
    if commit is not None:
        git = _WITH_GIT.format(
            commit=commit,
            configuration=_SHA1 if len(commit) == 40 else _SHA256,
            objects=shlex.quote(str(root / ".git" / "objects")),
        )
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
    )


def head_commit(root: Path) -> str | None:
    """The commit that is checked out in `root`, read without git; ``None`` if it is not a simple
    case."""
    try:
        repository = kernel.open_exact(str(root / ".git"), os.O_PATH | os.O_DIRECTORY)
    except OSError:
        return None
    try:
        head = _text(repository, "HEAD", _MOST_BYTES_OF_A_REF).strip()
        if not head.startswith("ref: "):
            return _commit(head)
        ref = head.removeprefix("ref: ")
        try:
            return _commit(_text(repository, ref, _MOST_BYTES_OF_A_REF).strip())
        except FileNotFoundError:
            packed = _text(repository, "packed-refs", _MOST_BYTES_OF_PACKED_REFS)
        for line in packed.splitlines():
            if line.endswith(f" {ref}"):
                return _commit(line.split(" ")[0])
    except (OSError, ValueError):
        return None
    finally:
        os.close(repository)
    return None


def _text(folder: int, path: str, most_bytes: int) -> str:
    """A regular file below `folder`: a tool can leave a link, a FIFO or an endless file there."""
    descriptor = kernel.open_beneath(folder, path, os.O_RDONLY | os.O_NONBLOCK)
    with open(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise ValueError(f"{path} is not a regular file")
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise ValueError(f"{path} has more than {most_bytes} bytes")
    return content.decode()


def _commit(text: str) -> str | None:
    return text if len(text) in (40, 64) and set(text) <= set("0123456789abcdef") else None
