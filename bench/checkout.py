"""Another version of Actum beside this one: a commit, in a work tree of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

REPOSITORY = Path(__file__).parent.parent


@contextmanager
def checked_out(commit: str) -> Iterator[Path]:
    """The `src/` of `commit`, compiled; removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="actum-bench-checkout-") as folder:
        tree = Path(folder, "tree")
        _git("worktree", "add", "--detach", "--quiet", str(tree), commit)
        try:
            if (tree / "hatch_build.py").exists():
                _run(sys.executable, "hatch_build.py", cwd=tree)
            yield tree / "src"
        finally:
            _git("worktree", "remove", "--force", str(tree))


def short(commit: str) -> str:
    return _git("rev-parse", "--short", f"{commit}^{{commit}}")


def uncommitted() -> list[str]:
    """Changed files of this work tree, without those that a run writes."""
    written = ("bench/results.json", "docs/performance.md", "docs/plots/")
    lines = _git("status", "--porcelain", "--no-renames").splitlines()
    return [line[3:] for line in lines if not line[3:].startswith(written)]


def environment(source: Path) -> dict[str, str]:
    """In which Python finds the Actum in `source` before any that is installed."""
    return {**os.environ, "PYTHONPATH": str(source)}


def _git(*words: str) -> str:
    return _run("git", *words, cwd=REPOSITORY).rstrip()


def _run(*words: str, cwd: Path) -> str:
    done = subprocess.run(words, capture_output=True, text=True, cwd=cwd, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(words[:3])}: {done.stderr.strip()[-300:]}")
    return done.stdout
