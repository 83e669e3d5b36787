"""Which file systems are known to be on a disk of this machine, by type."""

from __future__ import annotations

import pytest

from actum.runs.dispatch.local_disk import FUSE, not_local


@pytest.mark.parametrize(
    "magic",
    [0x6969, 0x517B, 0xFF534D42, 0xFE534D42, 0x01021997, 0x00C36400, 0xFF534D42 - (1 << 32)],
    ids=["nfs", "smb", "cifs", "smb2", "9p", "ceph", "cifs as a signed number"],
)
def test_network_file_systems_are_named(magic: int) -> None:
    assert not_local(magic, "") is not None


@pytest.mark.parametrize(
    "magic",
    [0xEF53, 0x58465342, 0x9123683E, 0x01021994, 0x794C7630, 0x2FC12FC1, 0xF2F52010],
    ids=["ext4", "xfs", "btrfs", "tmpfs", "overlay", "zfs", "f2fs"],
)
def test_local_ones_are_not(magic: int) -> None:
    assert not_local(magic, "") is None


@pytest.mark.parametrize("kind", ["fuse.sshfs", "fuse.s3fs", "fuse.glusterfs", "fuse", "virtiofs"])
def test_fuse_is_refused_unless_it_is_known_to_be_local(kind: str) -> None:
    assert not_local(FUSE, kind) == kind
    assert not_local(FUSE, "fuseblk") is None
