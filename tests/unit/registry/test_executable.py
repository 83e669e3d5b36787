"""Which file is meant by a program's name, and that a changed file is another one."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from actum.errors import Refused
from actum.registry import executable
from actum.registry.executable import Executables
from actum.registry.path_snapshot import PathSnapshot
from actum.registry.registry import Registry

Edit = Callable[[str, str, str], None]


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    directory = tmp_path / "bin"
    directory.mkdir()
    program = directory / "rg"
    program.write_bytes(b"#!/bin/sh\n")
    program.chmod(0o755)
    return directory


def test_a_program_is_named_by_its_real_path_and_digest(pinned: Any, programs: Path) -> None:
    (programs / "rg").rename(programs / "rg-14")
    (programs / "rg").symlink_to("rg-14")
    entry = pinned.registry().entry("ripgrep", None)
    found = pinned.registry().executable(entry, (str(programs),), program="rg")
    status = os.stat(programs / "rg-14")
    assert found.path == str((programs / "rg-14").resolve())
    assert found.sha256 == hashlib.sha256(b"#!/bin/sh\n").hexdigest()
    assert (found.device, found.inode) == (status.st_dev, status.st_ino)


def test_the_scoped_path_of_the_tool_wins(repository: Any, programs: Path, edit: Edit) -> None:
    edit("ripgrep/tool.yaml", "environment: [", f"path: [{programs}]\n\nenvironment: [")
    repository.approve("TL-003")
    entry = repository.registry().entry("ripgrep", None)
    assert repository.registry().executable(entry, ("/nowhere",), program="rg").path == str(
        programs / "rg"
    )


def test_the_callers_path_is_never_looked_at(
    pinned: Any, programs: Path, monkeypatch: pytest.MonkeyPatch, edit: Edit
) -> None:
    monkeypatch.setenv("PATH", str(programs))
    (programs / "rg").rename(programs / "rg-of-the-caller")
    entry = pinned.registry().entry("ripgrep", None)
    with pytest.raises(Refused) as refused:
        pinned.registry().executable(entry, program="rg-of-the-caller")
    assert refused.value.code == "EXECUTABLE_MISSING"
    assert "/usr/bin" in refused.value.message
    assert "Install rg-of-the-caller" in refused.value.remedy


@pytest.mark.parametrize("kind", ["not executable", "directory", "dangling link"])
def test_what_cannot_be_executed_is_not_found(pinned: Any, programs: Path, kind: str) -> None:
    (programs / "rg").unlink()
    match kind:
        case "not executable":
            (programs / "rg").write_bytes(b"#!/bin/sh\n")
        case "directory":
            (programs / "rg").mkdir(mode=0o755)
        case "dangling link":
            (programs / "rg").symlink_to("nowhere")
    entry = pinned.registry().entry("ripgrep", None)
    with pytest.raises(Refused) as refused:
        pinned.registry().executable(entry, (str(programs),), program="rg")
    assert refused.value.code == "EXECUTABLE_MISSING"


def test_a_digest_is_kept_across_processes_until_the_file_changes(
    pinned: Any, programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = executable.file_clock_ns
    monkeypatch.setattr(executable, "file_clock_ns", lambda: clock() + 10**12)
    kept: dict[str, str] = {}
    entry = pinned.registry().entry("ripgrep", None)

    def digest() -> str:
        registry = Registry(pinned.root, pinned.keyring.trusted, digests=kept)
        return registry.executable(entry, (str(programs),), program="rg").sha256

    first = digest()
    (key,) = kept
    kept[key] = "from the cache"
    assert digest() == "from the cache"
    (programs / "rg").write_bytes(b"#!/bin/s!\n")  # same size, same inode
    assert digest() == hashlib.sha256(b"#!/bin/s!\n").hexdigest() != first


def test_a_file_of_the_current_clock_tick_is_not_kept(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ctime = os.stat(programs / "rg").st_ctime_ns
    monkeypatch.setattr(executable, "file_clock_ns", lambda: ctime)
    kept: dict[str, str] = {}
    Executables(kept).find("rg", (str(programs),), hint="", snapshot=PathSnapshot())
    assert kept == {}
