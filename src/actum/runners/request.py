"""What a plan comes to on this host, in the words of the init: looked up afresh for every start.

What depends on the policy's text alone is worked out once per policy. Everything about files (which
they are, whose, that a name is no link) is a fact of this moment, asked for every time.
"""

from __future__ import annotations

import os
import stat
from base64 import b64encode
from functools import lru_cache
from typing import TYPE_CHECKING

from actum.contract.call import PROVIDED, EffectivePolicy, Plan
from actum.contract.levels import is_within
from actum.contract.limits import ARTIFACTS_BYTES
from actum.errors import Refused
from actum.runners import manifest

if TYPE_CHECKING:
    from actum.sandbox.wire import Grant, Request
    from actum.secrets.given import Given

#: Room for folders beside the files themselves; over the limit is refused on collection.
_ARTIFACTS_TMPFS_BYTES = 2 * ARTIFACTS_BYTES
_NEVER_GRANTED = ("/proc", "/sys", "/dev")
_CONTROL_FILES = frozenset({"actum.toml", "tools", "tools.lock", "rules"})


def request_of(plan: Plan) -> tuple[Request, tuple[int, int]]:
    """The plan in the words of the init, and whose files the tool works on."""
    policy = plan.policy
    grants = [_grant(path, write=write) for path, write in _granted(policy)]
    executable = plan.proof.executable
    request: Request = {
        "argv": list(plan.argv),
        "environment": dict(plan.environment),
        "executable": executable.path,
        "executable_device": executable.device,
        "executable_inode": executable.inode,
        "working_directory": plan.working_directory,
        "grants": grants,
        "protect": _protected(policy),
        "deny": [path for path in policy.deny if os.path.lexists(path)],
        "memory_bytes": policy.limits.memory_bytes,
        "cpu_cores": policy.limits.cpu_cores,
        "scratch_bytes": manifest.scratch_bytes(policy.limits),
        "artifacts_bytes": _ARTIFACTS_TMPFS_BYTES,
        "max_children": policy.limits.children,
        "etc": {},
        "addresses": [],
        "listen": [],
        "resolver": "",
        "provided": _provided(plan, grants),
        "steady": plan.steady,
        "secrets": [],
    }
    return request, _owner(policy)


@lru_cache(maxsize=64)
def _anchors(policy: EffectivePolicy) -> tuple[tuple[str, bool], ...]:
    """Granted paths that lie below no other, and whether they can be written; those first."""
    writable = [path for path in policy.write if not _covered(path, policy.write)]
    readable = [
        path
        for path in policy.read
        if not _covered(path, policy.read) and not any(is_within(path, w) for w in writable)
    ]
    return (*((path, True) for path in writable), *((path, False) for path in readable))


@lru_cache(maxsize=64)
def _granted(policy: EffectivePolicy) -> tuple[tuple[str, bool], ...]:
    """Parents before children, for whoever mounts them."""
    return tuple(sorted(_anchors(policy), key=lambda row: row[0].count("/")))


def _provided(plan: Plan, grants: list[Grant]) -> dict[str, str]:
    """What the adapter brings along, where no granted path can cover it."""
    if not plan.provided:
        return {}
    for grant in grants:
        if is_within(PROVIDED, grant["path"]) or is_within(grant["path"], PROVIDED):
            raise Refused(
                "PATH_NOT_GRANTABLE",
                f"{grant['path']} would cover {PROVIDED}, where this adapter's driver lies.",
                remedy="Grant a directory beside it.",
            )
    return {name: b64encode(content).decode() for name, content in plan.provided.items()}


def _owner(policy: EffectivePolicy) -> tuple[int, int]:
    """The caller; or, when root works in someone's directory, that someone."""
    uid, gid = os.geteuid(), os.getegid()
    granted = _anchors(policy)
    if uid == 0 and granted:
        found = os.stat(granted[0][0])
        return found.st_uid, found.st_gid
    return uid, gid


def _covered(path: str, paths: tuple[str, ...]) -> bool:
    return any(other != path and is_within(path, other) for other in paths)


def _grant(path: str, *, write: bool) -> Grant:
    if path == "/" or any(is_within(path, system) for system in _NEVER_GRANTED):
        raise Refused(
            "PATH_NOT_GRANTABLE",
            f"{path} is never given to a tool.",
            remedy="Put the project below a directory of its own.",
        )
    try:
        found = os.stat(path, follow_symlinks=False)
    except OSError as error:
        field = "write" if write else "read"
        raise Refused(
            "PATH_MISSING",
            f"sandbox.filesystem.{field}: {path}: {error.strerror}.",
            remedy="Create it, or leave it out of the list.",
        ) from error
    return {"path": path, "write": write, "device": found.st_dev, "inode": found.st_ino}


@lru_cache(maxsize=64)
def _closed(policy: EffectivePolicy) -> tuple[tuple[str, str], ...]:
    """What stays read-only inside writable paths, each with its folder."""
    paths = dict.fromkeys(_whole_git(path) for path in policy.protect)
    return tuple((path, os.path.dirname(path)) for path in paths)


def _protected(policy: EffectivePolicy) -> list[str]:
    """What stays read-only inside writable paths. A name that does not exist cannot be covered."""
    result: list[str] = []
    straight: dict[str, bool] = {}  #: folder -> no link leads to it
    for path, folder in _closed(policy):
        if folder not in straight:
            straight[folder] = os.path.realpath(folder) == folder
        try:
            mode = os.lstat(path).st_mode
        except OSError:
            mode = 0  # as `lexists` has it: what cannot be looked at is not there
        if not straight[folder] or stat.S_ISLNK(mode):
            raise Refused(
                "CONTROL_FILE_LINKED",
                f"{path} is reached through a symbolic link, which the tool could lead elsewhere.",
                remedy="Put the file itself there, or work in a subdirectory.",
            )
        if mode:
            result.append(path)
        elif os.path.basename(path) in _CONTROL_FILES:
            raise Refused(
                "CONTROL_FILE_MISSING",
                f"{path} does not exist, so the tool could create it and govern itself.",
                remedy="Run `actum init` again (it only adds what is missing), or work in a"
                " subdirectory.",
            )
    return result


def _whole_git(path: str) -> str:
    """A .git is closed as a whole, and as a file too: a renamed .git, a `commondir` beside the
    configuration, or another gitdir would each make git on the host obey the tool."""
    holder = os.path.dirname(path)
    return holder if os.path.basename(holder) == ".git" else path


def with_secrets(request: Request, secrets: Given) -> Request:
    """In this copy alone, which goes to the sandbox and is forgotten: what others keep of a
    request (the shape of warm interpreters) never holds a value."""
    return {
        **request,
        "environment": {**request["environment"], **secrets.environment},
        "secrets": [os.fsdecode(value) for value in secrets.descriptors],
    }
