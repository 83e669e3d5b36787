"""The request for the init that carries out a plan on this host.

Everything about files (identity, owner, that a name is no link) is checked now.
"""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

from actum.contract.call import PROVIDED, EffectivePolicy, Plan
from actum.contract.governing_names import ALWAYS_THERE
from actum.contract.levels import is_within
from actum.contract.limits import ARTIFACTS_BYTES
from actum.errors import Refused, SandboxUnavailable
from actum.runners import manifest, path_modes
from actum.runners.layers import copy_in
from actum.value import value

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from actum.sandbox.wire import Grant, Request
    from actum.secrets.given import Given

#: Larger than the limit, for folder metadata; the collection enforces the limit.
_ARTIFACTS_TMPFS_BYTES = 2 * ARTIFACTS_BYTES
_NEVER_GRANTED = ("/proc", "/sys", "/dev")

#: The first fields of a name's `stat` (mode, inode, device, links, owner, group), or the errno.
_Look = tuple[int, ...] | int


@value
class Found:
    """A plan on this host, at this time. Never changed."""

    request: Request
    owner: tuple[int, int]  #: of the files that the tool works on
    modes: Mapping[
        str, int
    ]  #: of folders above files that the host needs, where a tool may change them


class Description:
    """One plan, for any attempt."""

    def __init__(self, plan: Plan) -> None:
        policy = plan.policy
        self._plan = plan
        anchors = _anchors(policy)
        if policy.transaction and {*plan.layers} != {path for path, write in anchors if write}:
            raise SandboxUnavailable(
                "The plan's changes are a transaction, but the plan has no layers for them.",
                remedy='This is a fault of Actum; `[workspace] changes = "direct"` avoids it.',
            )
        prefixes = {each.prefix for each in policy.interpreters}
        self._anchor = next((path for path, _write in anchors if path not in prefixes), None)
        #: Parents before children: the order of the mounts.
        self._granted = sorted(anchors, key=lambda row: row[0].count("/"))
        for path, _write in self._granted:
            _require_grantable(path)
        _require_visible(plan, [path for path, _write in self._granted])
        self._layered = frozenset(plan.layers)
        #: Inputs in a transaction's layers need no mount.
        self._sealed = {
            each.path: each.copy for each in plan.sealed if not self._is_layered(each.path)
        }
        self._provided = _provided(plan, [path for path, _write in self._granted])
        closed = dict.fromkeys(_whole_git(path) for path in policy.protect)
        steps_to = {folder: _steps(folder) for folder in {*map(os.path.dirname, closed)}}
        self._closed = [(path, steps_to[os.path.dirname(path)]) for path in closed]
        self._reopened = path_modes.folders(policy)
        names = [path for path, _write in self._granted]
        for path, steps in self._closed:
            names += [*steps, path]
        checked = dict.fromkeys([*names, *policy.deny, *self._reopened, *self._sealed.values()])
        self._names = tuple(checked)

    def as_found(self) -> Found:
        return self._as({path: _look(path) for path in self._names})

    def _as(self, found: Mapping[str, _Look]) -> Found:
        plan, limits = self._plan, self._plan.policy.limits
        executable = plan.proof.executable
        request: Request = {
            "argv": list(plan.argv),
            "environment": dict(plan.environment),
            "executable": executable.path,
            # An overlay has a device of its own and may have other inode numbers.
            "executable_device": 0 if self._is_layered(executable.path) else executable.device,
            "executable_inode": 0 if self._is_layered(executable.path) else executable.inode,
            "working_directory": plan.working_directory,
            "grants": [*self._grants(found)],
            "protect": self._protected(found),
            "deny": [path for path in plan.policy.deny if _mode(found[path])],
            "memory_bytes": limits.memory_bytes,
            "cpu_cores": limits.cpu_cores,
            "scratch_bytes": manifest.scratch_bytes(limits),
            "artifacts_bytes": _ARTIFACTS_TMPFS_BYTES,
            "max_children": limits.children,
            "etc": {},
            "addresses": [],
            "listen": [],
            "resolver": "",
            "provided": self._provided,
            "steady": plan.steady,
            "secrets": [],
        }
        modes = {folder: _mode(found[folder]) for folder in self._reopened}
        return Found(
            request=request,
            owner=self._owner(found),
            modes={
                self._written_at(folder): mode
                for folder, mode in modes.items()
                if stat.S_ISDIR(mode)
            },
        )

    def _written_at(self, folder: str) -> str:
        """The path at which a tool has changed the mode of a folder: the folder itself, or its
        counterpart in the upper layer or the copy."""
        for grant, layers in self._plan.layers.items():
            if is_within(folder, grant):
                written = copy_in(layers) or f"{layers}/upper"
                return os.path.normpath(f"{written}/{os.path.relpath(folder, grant)}")
        return folder

    def _grants(self, found: Mapping[str, _Look]) -> Iterator[Grant]:
        """The granted paths, and after them the sealed inputs that are mounted over names in
        them."""
        plan, sealed = self._plan, dict(self._sealed)
        if plan.image is not None:  # the first grant, if there is one
            yield {
                "path": "/",
                "write": False,
                "device": plan.image.device,
                "inode": plan.image.inode,
                "layers": "",
                "source": plan.image.folder,
            }
        for path, write in self._granted:
            if not write and path in sealed:
                # The path itself is granted: its mount point is in the sandbox's own root.
                source = sealed.pop(path)
                yield _grant(path, write, found[source], source=source)
            else:
                layers = (plan.layers if write else plan.views).get(path, "")
                yield _grant(path, write, found[path], layers=layers)
        for path, source in sealed.items():
            yield _grant(path, False, found[source], source=source)

    def _is_layered(self, path: str) -> bool:
        return any(is_within(path, folder) for folder in self._layered)

    def _owner(self, found: Mapping[str, _Look]) -> tuple[int, int]:
        """The caller; or, if root works in another user's directory, that user."""
        uid, gid = os.geteuid(), os.getegid()
        there = found[self._anchor] if uid == 0 and self._anchor is not None else 0
        return (uid, gid) if isinstance(there, int) else (there[4], there[5])

    def _protected(self, found: Mapping[str, _Look]) -> list[str]:
        """The read-only paths inside writable ones. A missing path cannot be covered."""
        result: list[str] = []
        links = {path for path, look in found.items() if stat.S_ISLNK(_mode(look))}
        for path, steps in self._closed:
            mode = _mode(found[path])
            if not links.isdisjoint((*steps, path)):
                raise Refused(
                    "CONTROL_FILE_LINKED",
                    f"{path} is reached through a symbolic link, which the tool could point"
                    " elsewhere.",
                    remedy="Put the file itself there, or work in a subdirectory.",
                )
            # A change or a new file in a layer is held at the commit.
            if self._is_layered(path):
                continue
            if mode:
                result.append(path)
            elif os.path.basename(path) in ALWAYS_THERE:
                raise Refused(
                    "CONTROL_FILE_MISSING",
                    f"{path} does not exist, so the tool could create it and govern itself.",
                    remedy="Run `actum init` again (it only adds what is missing), or work in a"
                    " subdirectory.",
                )
        return result


def _look(path: str) -> _Look:
    try:
        return os.lstat(path)[:6]
    except OSError as error:
        return error.errno or 0


def _mode(look: _Look) -> int:
    """0 for a name that cannot be read, as for one that does not exist."""
    return 0 if isinstance(look, int) else look[0]


def writable_folders(policy: EffectivePolicy) -> tuple[str, ...]:
    """Folders that a tool may write, without those below another one."""
    return tuple(path for path, write in _anchors(policy) if write)


def readable_folders(policy: EffectivePolicy) -> tuple[str, ...]:
    """Paths that a tool may only read, without those below another one."""
    return tuple(path for path, write in _anchors(policy) if not write)


def _anchors(policy: EffectivePolicy) -> tuple[tuple[str, bool], ...]:
    """Granted paths that are below no other, and whether they are writable; writable ones first."""
    writable = [path for path in policy.write if not _covered(path, policy.write)]
    asked = (*policy.read, *(each.prefix for each in policy.interpreters))
    readable = [
        path
        for path in dict.fromkeys(asked)
        if not _covered(path, asked) and not any(is_within(path, w) for w in writable)
    ]
    return (*((path, True) for path in writable), *((path, False) for path in readable))


def _covered(path: str, paths: tuple[str, ...]) -> bool:
    return any(other != path and is_within(path, other) for other in paths)


def _require_grantable(path: str) -> None:
    if path == "/" or any(is_within(path, system) for system in _NEVER_GRANTED):
        raise Refused(
            "PATH_NOT_GRANTABLE",
            f"{path} is never granted to a tool.",
            remedy="Put the project below a directory of its own.",
        )


def _grant(path: str, write: bool, look: _Look, *, layers: str = "", source: str = "") -> Grant:
    if isinstance(look, int):
        field = "write" if write else "read"
        raise Refused(
            "PATH_MISSING",
            f"sandbox.filesystem.{field}: {path}: {os.strerror(look)}.",
            remedy="Create it, or leave it out of the list.",
        )
    _mode, inode, device, *_rest = look
    return {
        "path": path,
        "write": write,
        "device": device,
        "inode": inode,
        "layers": layers,
        "source": source,
    }


def _require_visible(plan: Plan, granted: list[str]) -> None:
    """Refuse a granted path at which the file that was checked in an image would be covered."""
    if plan.image is None:
        return
    executable = plan.proof.executable.path
    for path in (*granted, *(each.path for each in plan.sealed)):
        if is_within(executable, path):
            raise Refused(
                "PATH_NOT_GRANTABLE",
                f"{path} would cover {executable} of the image {plan.image.reference}.",
                remedy="Grant a directory beside it.",
            )


def _provided(plan: Plan, granted: list[str]) -> dict[str, bytes]:
    """The adapter's own files. Refuses a granted path that would cover them."""
    if not plan.provided:
        return {}
    for path in granted:
        if is_within(PROVIDED, path) or is_within(path, PROVIDED):
            raise Refused(
                "PATH_NOT_GRANTABLE",
                f"{path} would cover {PROVIDED}, where this adapter's driver is.",
                remedy="Grant a directory beside it.",
            )
    return dict(plan.provided)


def _steps(folder: str) -> tuple[str, ...]:
    """The parents of a folder and the folder itself. Policies hold resolved paths, so none of them
    is a link, unless a link was made since."""
    steps: list[str] = []
    while (above := os.path.dirname(folder)) != folder:
        steps.insert(0, folder)
        folder = above
    return tuple(steps)


def _whole_git(path: str) -> str:
    """A .git is closed as a whole, and as a file too: a renamed .git, a `commondir` beside the
    configuration, or another gitdir would each make git on the host obey the tool."""
    holder = os.path.dirname(path)
    return holder if os.path.basename(holder) == ".git" else path


def in_layers(request: Request, folders: Mapping[str, str]) -> Request:
    """The same request, with its changes in other layers."""
    grants: list[Grant] = [
        {**grant, "layers": folders[grant["path"]]} if grant["layers"] else grant
        for grant in request["grants"]
    ]
    return {**request, "grants": grants}


def with_secrets(request: Request, secrets: Given) -> Request:
    """Add the values to this copy only, which goes to the sandbox and is dropped: a stored request
    (the shape of warm interpreters) never holds a value."""
    if not secrets:
        return request
    return {
        **request,
        "environment": {**request["environment"], **secrets.environment},
        "secrets": [os.fsdecode(value) for value in secrets.descriptors],
    }
