"""The mounts of a container are those of the files that were judged."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from actum.errors import Refused
from actum.runners.container.container_mounts import HostMounts, require_mounts


def _line(target: str, shown: tuple[str, str], *, writable: bool) -> str:
    device, root = shown
    options = "rw" if writable else "ro"
    return f"1 0 {device} {root} {target} {options} - ext4 /dev/disk {options}"


def _mounted(copy: Path, *names: tuple[str, Path]) -> tuple[str, dict[str, Any], HostMounts]:
    """The table of a container with a writable copy at /project, and the body that asks for it.
    `names`: each name in it that is mounted read-only, and the folder that the engine mounts."""
    host = HostMounts.now()
    table = [_line("/", ("0:99", "/"), writable=False)]
    table.append(_line("/project", host.shown_at(str(copy)), writable=True))
    asked = [{"Target": "/project", "Source": str(copy), "ReadOnly": False}]
    for name, mounted in names:
        table.append(_line(f"/project/{name}", host.shown_at(str(mounted)), writable=False))
        source = f"{copy}/{name}"
        asked.append({"Target": f"/project/{name}", "Source": source, "ReadOnly": True})
    return "\n".join(table), {"HostConfig": {"Mounts": asked, "SecurityOpt": []}}, host


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    (tmp_path / "copy/folder/executors").mkdir(parents=True)
    (tmp_path / "copy/agents").mkdir()
    (tmp_path / "outside/executors").mkdir(parents=True)
    return (tmp_path / "copy").resolve()


def test_a_link_that_a_tool_makes_below_a_writable_folder_is_not_followed(copy: Path) -> None:
    """An engine follows it, as root: the tool could have it show any folder of the host."""
    outside = copy.parent / "outside"
    agents = copy / "agents"
    require_mounts(*_mounted(copy, ("agents", agents)), "id")
    agents.rename(copy / "aside")
    agents.symlink_to(outside)
    with pytest.raises(Refused) as refusal:
        require_mounts(*_mounted(copy, ("agents", outside)), "id")
    assert refusal.value.code == "LIMIT_NOT_ENFORCEABLE"
    assert f"/project/agents is not {agents}" in refusal.value.message


def test_nor_is_a_link_in_the_place_of_a_folder_above(copy: Path) -> None:
    name = "folder/executors"
    require_mounts(*_mounted(copy, (name, copy / name)), "id")
    (copy / "folder").rename(copy / "aside")
    (copy / "folder").symlink_to(copy.parent / "outside")
    with pytest.raises(Refused):
        require_mounts(*_mounted(copy, (name, copy.parent / "outside/executors")), "id")


def test_a_link_above_the_writable_folder_is_the_hosts(copy: Path) -> None:
    by_link = copy.parent / "by-link"
    by_link.symlink_to(copy)
    require_mounts(*_mounted(by_link, ("agents", copy / "agents")), "id")
