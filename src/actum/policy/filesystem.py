"""What a call may read and write: level, narrowed by the contract, within scope and permissions.

Every path is resolved first, so that all comparing is done on what the paths mean. The result
never holds `.actum`, and what governs the project is never writable: not as a granted path, and
not inside one (`protect`). System paths and paths outside the working directory are part of it
only once a person has approved them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from actum.contract.governing_names import GOVERNING
from actum.contract.levels import (
    DEFAULT_FILESYSTEM_LEVEL,
    FilesystemGrant,
    expand_filesystem,
    is_within,
    narrow,
)
from actum.contract.model import SCRATCH, Contract, FilesystemLevel, FilesystemRequest
from actum.errors import Violation
from actum.policy.gates import ELEVATED, WRITE_OUTSIDE, ApprovalNeeded
from actum.policy.paths import common, is_covered, outermost
from actum.policy.settings import PolicySettings
from actum.registry.looks import Looks
from actum.registry.model import Tool
from actum.value import replace, value

_GIT = (".git/hooks", ".git/config")


@value
class Reachable:
    """The file system part of an effective policy, and what stands in its way."""

    read: tuple[str, ...]
    write: tuple[str, ...]
    deny: tuple[str, ...]
    protect: tuple[str, ...]
    violations: tuple[Violation, ...]
    needed: tuple[ApprovalNeeded, ...]  #: granted or not


def reachable(
    contract: Contract,
    tool: Tool,
    settings: PolicySettings,
    granted: frozenset[ApprovalNeeded] = frozenset(),
    *,
    looks: Looks,
) -> Reachable:
    real = _Resolver(looks)
    root = real(settings.repo_root)
    scratch = contract.inputs.working_directory == SCRATCH
    here = root if scratch else real(contract.inputs.working_directory)
    request = _resolved(contract.sandbox.filesystem, here, real)
    if scratch:
        # No directory of the host is asked for, so none is given but what is listed for reading.
        request = replace(request, read=request.read or (), write=request.write or ())
    level = request.level or DEFAULT_FILESYSTEM_LEVEL
    output = _output_directory(contract, here, root, real)
    dependencies = real.all(settings.dependencies, root)
    grant = expand_filesystem(
        level,
        repo_root=root,
        working_directory=here,
        dependencies=dependencies,
        output_directory=output,
    )
    asked, violations = narrow(grant, request, here)
    deny = outermost((*asked.deny, real(settings.home)))
    scoped = _within_scope(asked, tool, root, real)
    write = tuple(path for path in scoped.write if not is_covered(path, deny))
    governed = tuple(_governing(root, write, looks))
    free = tuple(path for path in write if not is_covered(path, governed))
    read = tuple(path for path in outermost((*scoped.read, *write)) if not is_covered(path, deny))
    wanted = _Wanted(read=read, write=free, ordinary=(root, *dependencies))
    needed = tuple(_needed(level, wanted, root, here, output))
    given = _without_missing(wanted, needed, granted)
    return Reachable(
        read=given.read,
        write=given.write,
        deny=deny,
        protect=tuple(sorted({path for path in governed if is_covered(path, given.write)})),
        violations=_one_per_field(
            # Whether the working directory is within reach is IV-03's to say.
            *(found for found in violations if found.field != "inputs.working_directory"),
            *_refused("read", request.read, (*read, *free), deny),
            *_refused("write", request.write, free, deny),
        ),
        needed=needed,
    )


class _Resolver:
    """Where paths lead; what is looked at for it is noted."""

    def __init__(self, looks: Looks) -> None:
        self.looks = looks

    def __call__(self, path: str) -> str:
        return self.looks.real(path)

    def all(self, paths: Iterable[str], base: str) -> tuple[str, ...]:
        return tuple([self.looks.real(os.path.join(base, path)) for path in paths])


def _resolved(request: FilesystemRequest, here: str, real: _Resolver) -> FilesystemRequest:
    if request.read is None and request.write is None and not request.deny:
        return request
    return replace(
        request,
        read=None if request.read is None else real.all(request.read, here),
        write=None if request.write is None else real.all(request.write, here),
        deny=real.all(request.deny, here),
    )


def _output_directory(contract: Contract, here: str, root: str, real: _Resolver) -> str | None:
    """Where level extended may write besides: the one directory of the project that all declared
    output files beyond the working directory lie in. A directory above it is not one, and none is
    reached through a link in the project, which a tool may have made."""
    named = [os.path.join(here, path) for path in contract.outputs.output_files]
    files = [
        real(path)
        for path in named
        if not any(is_within(link, root) for link in real.looks.links_on(path))
    ]
    parents = {os.path.dirname(file) for file in files if not is_within(file, here)}
    if len(parents) != 1:
        return None
    (parent,) = parents
    return parent if is_within(parent, root) and not is_within(here, parent) else None


def _within_scope(
    grant: FilesystemGrant, tool: Tool, root: str, real: _Resolver
) -> FilesystemGrant:
    """What `grant` and the registry both permit."""
    scope, permissions = real.all(tool.scope.filesystem, root), tool.permissions
    read, write = common(grant.read, scope), common(grant.write, scope)
    if permissions.read is not None:
        listed = real.all((*permissions.read, *(permissions.write or ())), root)
        read, write = common(read, listed), common(write, listed)
    if permissions.write is not None:
        write = common(write, real.all(permissions.write, root))
    match tool.scope.data_access:
        case "write":
            pass
        case "read":
            write = ()
        case _:
            read = write = ()
    return FilesystemGrant(read=read, write=write, deny=grant.deny)


def _governing(root: str, write: tuple[str, ...], looks: Looks) -> Iterator[str]:
    """What decides about later executions, and what git would run on the host."""
    if not write:
        return
    for name in GOVERNING:
        yield from _with_target(root, name, looks)
    for holder in {holder for path in write for holder in _git_holders(path)}:
        for name in _GIT:
            yield from _with_target(holder, name, looks)


def _git_holders(path: str) -> Iterator[str]:
    """Directories whose `.git` can overlap with `path`: itself, and those whose `.git` it is in."""
    yield path
    parts = path.split("/")
    for index, part in enumerate(parts):
        if part == ".git":
            yield "/".join(parts[:index]) or "/"


def _with_target(holder: str, name: str, looks: Looks) -> Iterator[str]:
    """The path itself, which a link could be swapped at, and where a link on the way leads."""
    path = f"{holder}/{name}" if holder != "/" else f"/{name}"
    yield path
    target = looks.real(path)
    if target != path:
        yield target


def _refused(
    name: str, listed: tuple[str, ...] | None, granted: tuple[str, ...], deny: tuple[str, ...]
) -> Iterator[Violation]:
    """Paths that the contract lists and nothing of which is left, unless it denies them itself."""
    for index, path in enumerate(listed or ()):
        if not is_covered(path, deny) and not common((path,), granted):
            yield Violation(
                code="SCOPE_EXCEEDED",
                field=f"sandbox.filesystem.{name}[{index}]",
                value=path,
                message=f"{path} is protected, or beyond what the tool's scope and permissions let "
                f"it {name}. Remove it, or have a wider scope approved.",
            )


def _one_per_field(*violations: Violation) -> tuple[Violation, ...]:
    first: dict[str, Violation] = {}
    for violation in violations:
        first.setdefault(violation.field, violation)
    return tuple(first.values())


@value
class _Wanted:
    """What would be granted if every approval were there."""

    read: tuple[str, ...]
    write: tuple[str, ...]
    ordinary: tuple[str, ...]  #: project and dependencies, which no level needs approval to read


def _needed(
    level: FilesystemLevel, wanted: _Wanted, root: str, here: str, output: str | None
) -> Iterator[ApprovalNeeded]:
    if level is FilesystemLevel.ELEVATED:
        system = [path for path in wanted.read if not is_covered(path, wanted.ordinary)]
        target = ": ".join(["filesystem level elevated", *([", ".join(system)] if system else [])])
        yield ApprovalNeeded(gate=ELEVATED, target=target, operation="read")
    workspace = [place for place in (here, output) if place and is_within(place, root)]
    for path in wanted.write:
        if not is_covered(path, workspace):
            yield _write_outside(path)


def _write_outside(path: str) -> ApprovalNeeded:
    return ApprovalNeeded(gate=WRITE_OUTSIDE, target=path, operation="write")


def _without_missing(
    wanted: _Wanted, needed: tuple[ApprovalNeeded, ...], granted: frozenset[ApprovalNeeded]
) -> _Wanted:
    missing = {need for need in needed if need not in granted}
    write = tuple(path for path in wanted.write if _write_outside(path) not in missing)
    lost = [path for path in wanted.write if path not in write]
    read = tuple(path for path in wanted.read if path not in lost)
    if any(need.gate == ELEVATED for need in missing):
        read = common(read, wanted.ordinary)
        write = common(write, wanted.ordinary)
    return replace(wanted, read=read, write=write)
