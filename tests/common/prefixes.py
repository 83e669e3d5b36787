"""Prefixes as pyenv, uv and nvm make them: an interpreter with its libraries below one folder."""

from __future__ import annotations

import os
import shutil
import sys
import sysconfig
from pathlib import Path

PYTHON = f"python{sys.version_info.major}.{sys.version_info.minor}"
_LEFT_OUT = (
    "__pycache__",
    "dist-packages",
    "site-packages",
    "test",
    "idlelib",
    "tkinter",
    "lib2to3",
)


def python_prefix(prefix: Path) -> Path:
    """A copy of the Python that runs the tests, with its standard library, as pyenv has it."""
    (prefix / "bin").mkdir(parents=True)
    program = prefix / "bin" / PYTHON
    shutil.copy(os.path.realpath(sys.executable), program)
    (prefix / "bin/python3").symlink_to(PYTHON)
    ignored = shutil.ignore_patterns(*_LEFT_OUT, "config-*")
    shutil.copytree(sysconfig.get_path("stdlib"), prefix / "lib" / PYTHON, ignore=ignored)
    (prefix / "lib" / PYTHON / "site-packages").mkdir()
    return prefix


def environment(folder: Path, home: Path) -> Path:
    """A virtual environment of the Python in `home`, with one package, as `python -m venv` makes
    it."""
    (folder / "bin").mkdir(parents=True)
    (folder / "bin/python3").symlink_to(home / "python3")
    packages = folder / "lib" / PYTHON / "site-packages"
    packages.mkdir(parents=True)
    (packages / "packed.py").write_text("answer = 42\n")
    (folder / "pyvenv.cfg").write_text(f"home = {home}\ninclude-system-site-packages = false\n")
    return folder


def script_prefix(prefix: Path) -> Path:
    """As nvm has it: a program `engine`, and a script `hello` that finds it by `env`."""
    (prefix / "bin").mkdir(parents=True)
    shutil.copy(os.path.realpath("/bin/sh"), prefix / "bin/engine")
    script = prefix / "lib/hello/hello.sh"
    script.parent.mkdir(parents=True)
    script.write_text("#!/usr/bin/env engine\necho hello from $0\n")
    script.chmod(0o755)
    (prefix / "bin/hello").symlink_to("../lib/hello/hello.sh")
    return prefix
