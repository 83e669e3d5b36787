"""`venv=` of `Runtime.python`: the packages of a virtual environment, for the right interpreter.

The tool `snippet` runs the interpreter, which need not be the one that runs Actum.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from actum.errors import Refused
from actum.registry.registry import Registry

_VERSION = re.compile(r"python3\.\d+")
_HOME = re.compile(r"^home\s*=\s*(/.+?)\s*$", re.MULTILINE)
_CONFIG_CHARACTERS = 65_536


def site_packages(venv: Path, registry: Registry, tool: str) -> Path:
    """The packages in `venv`, which is a resolved path; raises `Refused` if they are for another
    version of Python than the one that runs snippets."""
    interpreter, version = _interpreter(registry, tool)
    packages = venv / "lib" / version / "site-packages"
    if packages.is_dir():
        return packages
    message = f"venv: {venv} has no lib/{version}/site-packages, and snippets run on {interpreter}."
    home = _home(venv)
    if not home:
        raise Refused(
            "VENV_UNFIT",
            message,
            remedy=f"Give a virtual environment that {interpreter} made.",
        )
    raise Refused(
        "VENV_UNFIT",
        f"{message} It was made for the Python in {home}.",
        remedy=f"Make it with {interpreter} -m venv. Or let snippets run on its Python: write"
        f' `path: ["{home}"]` in tools/{tool}/tool.yaml and approve the tool; a Python outside /usr'
        " also needs its folder in `[interpreters] prefixes` of actum.toml.",
    )


def _interpreter(registry: Registry, tool: str) -> tuple[str, str]:
    """(path, `python3.N`) of the interpreter in the sandbox."""
    own = f"python{sys.version_info.major}.{sys.version_info.minor}"
    try:
        path = registry.executable(registry.entry(tool, None), program="python3").path
    except Refused:
        return own, own  # the execution is refused for the same reason, with a receipt
    named = _VERSION.fullmatch(os.path.basename(path))
    return path, named[0] if named else own


def _home(venv: Path) -> str:
    try:
        with (venv / "pyvenv.cfg").open(errors="replace") as file:
            found = _HOME.search(file.read(_CONFIG_CHARACTERS))
    except OSError:
        return ""
    return found[1] if found else ""
