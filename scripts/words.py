#!/usr/bin/python3 -I
"""Fails on phrases that hide the noun a sentence is about.

    scripts/words.py

Reads every text file that git tracks. CONTRIBUTING.md says what to write instead.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PHRASES = (
    *("whoever", "somebody", "what lies", "lies there", "is told"),
    *("mend", "mends", "mended", "mending", "not believed", "not to be had"),
)
#: Texts of others, quoted to the letter; shipped executors, whose bytes are reviewed and sealed;
#: and this file, which spells the phrases.
EXCEPT = ("LICENSE", "docs/requirements.md", "src/actum/executors/shipped/", "scripts/words.py")
TEXT = ("", ".c", ".cfg", ".h", ".json", ".md", ".py", ".sh", ".toml", ".txt", ".yaml", ".yml")

_ONE = re.compile(r"\b(?:" + "|".join(PHRASES).replace(" ", r"\s+") + r")\b", re.IGNORECASE)


def found() -> list[str]:
    """Each occurrence as `file:line: phrase`."""
    listed = subprocess.run(
        ["git", "-C", ROOT, "ls-files", "-z"],  # noqa: S607 -- the developer's own git
        capture_output=True,
        text=True,
        check=True,
    )
    lines = []
    for name in filter(None, listed.stdout.split("\0")):
        path = ROOT / name
        if name.startswith(EXCEPT) or path.suffix not in TEXT or not path.is_file():
            continue
        text = path.read_text("utf-8", "replace")
        for match in _ONE.finditer(text):
            line = text.count("\n", 0, match.start()) + 1
            lines.append(f"{name}:{line}: {' '.join(match[0].split())}")
    return lines


if __name__ == "__main__":
    lines = found()
    for line in lines:
        print(line)  # noqa: T201 -- its output
    if lines:
        sys.exit(f"{len(lines)} phrases that CONTRIBUTING.md rules out: name the noun instead.")
