"""Restores the owner's permissions on folders above files that the host itself needs.

A tool that works in the project's root may change the mode of that folder, as its owner. An
ordinary user's host process could then no longer open its own `.actum` to write the evidence. Only
the owner's bits are restored; nothing else that a tool did is undone. In a transaction they are
restored in the upper layer, before its modes are committed.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping

from actum import kernel
from actum.contract.call import EffectivePolicy
from actum.contract.levels import is_within

_OWNER = 0o700


def folders(policy: EffectivePolicy) -> tuple[str, ...]:
    """The writable folders above denied and protected paths, parents first."""
    found = set()
    for path in (*policy.deny, *policy.protect):
        folder = os.path.dirname(path)
        while folder not in found and any(is_within(folder, each) for each in policy.write):
            found.add(folder)
            folder = os.path.dirname(folder)
    return tuple(sorted(found, key=len))


def reopen(modes: Mapping[str, int]) -> None:
    """Restore the owner's bits of the earlier modes, once the tool is gone."""
    for folder, before in modes.items():
        try:
            handle = kernel.open_exact(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            continue  # moved, or not in the upper layer: nothing to restore
        try:
            now = os.fstat(handle).st_mode
            missing = before & _OWNER & ~now
            if missing:
                os.chmod(f"/proc/self/fd/{handle}", stat.S_IMODE(now) | missing)
        except OSError:
            continue  # owned by another user
        finally:
            os.close(handle)
