"""Makes a Python environment of other projects' packages, in which there is no Actum.

    python tests/documents/stranger.py FOLDER NAME...

The packages and what they need are linked from the environment that runs this file, whose versions
are locked by digest: a test fetches nothing. Someone else would use `pip install NAME...`.
"""

from __future__ import annotations

import re
import subprocess
import sys
import venv
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path


def make(folder: Path, names: list[str]) -> Path:
    """The interpreter of the new environment."""
    venv.create(folder, symlinks=True, with_pip=False)
    (packages,) = folder.glob("lib/python3.*/site-packages")
    for each in _with_requirements(names):
        for file in each.files or ():
            top = file.parts[0]
            if top != ".." and not (packages / top).exists():
                (packages / top).symlink_to(Path(str(each.locate_file(top))))
    python = folder / "bin" / "python"
    found = subprocess.run([python, "-I", "-c", "import actum"], capture_output=True, check=False)
    assert b"No module named 'actum'" in found.stderr, found
    return python


def _with_requirements(names: list[str]) -> list[Distribution]:
    found: dict[str, Distribution] = {}
    left = list(names)
    while left:
        name = re.split(r"[^\w.-]", left.pop())[0].lower().replace("_", "-")
        if name in found:
            continue
        try:
            found[name] = distribution(name)
        except PackageNotFoundError:
            continue  # needed on other systems or versions only
        left += [each for each in found[name].requires or () if "extra ==" not in each]
    return list(found.values())


if __name__ == "__main__":
    make(Path(sys.argv[1]), sys.argv[2:])
