"""Keeps open the folders that lead to what the host itself needs.

A tool that works in the project's root may change the mode of that folder, as its owner. An
ordinary user's host process would then stand outside of its own `.actum`, with the evidence in its
hands. Only the owner's own bits are given back; nothing else that a tool did is undone. In a
transaction they are given back in the upper layer, before its modes are committed.
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
    """The writable folders above what is closed to the tool, parents first."""
    found = set()
    for path in (*policy.deny, *policy.protect):
        folder = os.path.dirname(path)
        while any(is_within(folder, writable) for writable in policy.write):
            found.add(folder)
            folder = os.path.dirname(folder)
    return tuple(sorted(found, key=len))


def reopen(modes: Mapping[str, int]) -> None:
    """Once the tool is gone, by the modes of before."""
    for folder, before in modes.items():
        try:
            handle = kernel.open_exact(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            continue  # moved, or of an upper layer that does not hold it: nothing to give back
        try:
            now = os.fstat(handle).st_mode
            missing = before & _OWNER & ~now
            if missing:
                os.chmod(f"/proc/self/fd/{handle}", stat.S_IMODE(now) | missing)
        except OSError:
            continue  # not the caller's
        finally:
            os.close(handle)
