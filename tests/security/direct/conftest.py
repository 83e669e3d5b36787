"""Every project here lets tools write to it directly."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from hostile.jail import Jail


@pytest.fixture
def own_jail(tmp_path: Path, probe: Path) -> Iterator[Jail]:
    jail = Jail(tmp_path, probe, transactions=False)
    yield jail
    jail.close()


@pytest.fixture
def repository(own_jail: Jail) -> Jail:
    """With a repository in a folder of the project, `lib`, that has a submodule, `lib/sub`."""
    source, lib = own_jail.elsewhere / "source", own_jail.root / "lib"

    def git(*words: str, folder: Path = lib) -> None:
        subprocess.run(["git", "-c", "protocol.file.allow=always", *words], cwd=folder, check=True)

    for folder in (source, lib):
        folder.mkdir()
        git("init", "-q", folder=folder)
        for name, text in (("user.name", "t"), ("user.email", "t@t")):
            git("config", name, text, folder=folder)
    git("commit", "-q", "--allow-empty", "-m", "x", folder=source)
    (lib / "tracked").write_text("x")
    git("add", "tracked")
    git("submodule", "--quiet", "add", str(source), "sub")
    git("commit", "-q", "-m", "first")
    return own_jail
