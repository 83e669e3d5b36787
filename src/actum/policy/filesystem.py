"""Read and write paths of a call: level, narrowed by the contract, within scope and permissions.

Every path is resolved first, so that comparisons are between real paths. The result never holds
`.actum`, and names that govern the project are never writable: neither as a granted path nor
inside one (`protect`). System paths and paths outside the working directory are included only
once a person has approved them.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

from actum.contract.call import Narrowed
from actum.contract.governing_names import GOVERNING
from actum.contract.levels import (
    DEFAULT_FILESYSTEM_LEVEL,
    SYSTEM_PATHS,
    FilesystemGrant,
    expand_filesystem,
    is_within,
    narrow,
)
from actum.contract.model import SCRATCH, Contract, FilesystemLevel, FilesystemRequest
from actum.errors import Violation
from actum.policy.gates import ELEVATED, WRITE_OUTSIDE, ApprovalNeeded
from actum.policy.paths import common, is_covered, outermost
from actum.policy.policy_settings import PolicySettings
from actum.registry.model import Tool
from actum.registry.path_snapshot import PathSnapshot
from actum.value import replace, value

_GIT = (".git/hooks", ".git/config")


@value
class Reachable:
    """The file system part of an effective policy, with its violations and approvals."""

    read: tuple[str, ...]
    write: tuple[str, ...]
    deny: tuple[str, ...]
    protect: tuple[str, ...]
    violations: tuple[Violation, ...]
    needed: tuple[ApprovalNeeded, ...]  #: granted or not
    narrowed: tuple[Narrowed, ...] = ()  #: by the tool's scope and permissions


def reachable(
    contract: Contract,
    tool: Tool,
    settings: PolicySettings,
    granted: frozenset[ApprovalNeeded] = frozenset(),
    *,
    snapshot: PathSnapshot,
) -> Reachable:
    real = _Resolver(snapshot)
    root = real(settings.repo_root)
    scratch = contract.inputs.working_directory == SCRATCH
    here = root if scratch else real(contract.inputs.working_directory)
    request = _resolved(contract.sandbox.filesystem, here, real)
    if scratch:
        # No host directory is requested, so only the paths listed for reading are granted.
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
    scoped = asked
    narrowed: list[Narrowed] = []
    for by, bounded in _bounds(asked, tool, root, real):
        narrowed += _lost(contract.sandbox.filesystem, scoped, bounded, by)
        scoped = bounded
    write = tuple(path for path in scoped.write if not is_covered(path, deny))
    governed = (*_governing(root, write, snapshot), *settings.own_code)
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
            # IV-03 checks whether the working directory is within reach.
            *(found for found in violations if found.field != "inputs.working_directory"),
            *_refused("read", request.read, (*read, *free), asked.deny),
            *_refused("write", request.write, free, asked.deny),
        ),
        needed=needed,
        narrowed=tuple(narrowed),
    )


class _Resolver:
    """Resolves paths; the snapshot records what was read."""

    def __init__(self, snapshot: PathSnapshot) -> None:
        self.snapshot = snapshot

    def __call__(self, path: str) -> str:
        return self.snapshot.real(path)

    def all(self, paths: Iterable[str], base: str) -> tuple[str, ...]:
        return tuple([self.snapshot.real(os.path.join(base, path)) for path in paths])


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
    """Where level extended may also write: the one directory of the project that holds all declared
    output files outside the working directory. A parent directory does not count, and neither
    does one behind a link in the project, which a tool may have made."""
    named = [os.path.join(here, path) for path in contract.outputs.output_files]
    files = [
        real(path)
        for path in named
        if not any(is_within(link, root) for link in real.snapshot.links_on(path))
    ]
    parents = {os.path.dirname(file) for file in files if not is_within(file, here)}
    if len(parents) != 1:
        return None
    (parent,) = parents
    return parent if is_within(parent, root) and not is_within(here, parent) else None


def _bounds(
    grant: FilesystemGrant, tool: Tool, root: str, real: _Resolver
) -> Iterator[tuple[str, FilesystemGrant]]:
    """`grant` within each bound of the registry in turn, after the field that sets the bound."""
    scope, permissions = real.all(tool.scope.filesystem, root), tool.permissions
    read, write = common(grant.read, scope), common(grant.write, scope)
    yield "scope.filesystem", FilesystemGrant(read=read, write=write, deny=grant.deny)
    if permissions.read is not None:
        listed = real.all((*permissions.read, *(permissions.write or ())), root)
        read, write = common(read, listed), common(write, listed)
        bounded = FilesystemGrant(read=read, write=write, deny=grant.deny)
        yield "permissions.filesystem.read", bounded
    if permissions.write is not None:
        write = common(write, real.all(permissions.write, root))
        bounded = FilesystemGrant(read=read, write=write, deny=grant.deny)
        yield "permissions.filesystem.write", bounded
    if tool.scope.data_access != "write":
        read = read if tool.scope.data_access == "read" else ()
        yield "scope.data_access", FilesystemGrant(read=read, write=(), deny=grant.deny)


def _lost(
    request: FilesystemRequest, before: FilesystemGrant, after: FilesystemGrant, by: str
) -> Iterator[Narrowed]:
    """Paths that one bound takes away, where the request names a level or a list."""
    for name in ("read", "write"):
        if request.level is None and getattr(request, name) is None:
            continue
        left = getattr(after, name)
        for path in getattr(before, name):
            if not is_covered(path, left):
                yield Narrowed(
                    field=f"sandbox.filesystem.{name}",
                    asked=path,
                    given=", ".join(common((path,), left)),
                    by=f"{by} of the tool",
                )


def _governing(root: str, write: tuple[str, ...], snapshot: PathSnapshot) -> Iterator[str]:
    """Names that govern later executions, and names that git would execute on the host."""
    if not write:
        return
    for name in GOVERNING:
        yield from _with_target(root, name, snapshot)
    for holder in {holder for path in write for holder in _git_holders(path)}:
        for name in _GIT:
            yield from _with_target(holder, name, snapshot)


def _git_holders(path: str) -> Iterator[str]:
    """Directories whose `.git` can overlap with `path`: itself, and those whose `.git` it is in."""
    yield path
    parts = path.split("/")
    for index, part in enumerate(parts):
        if part == ".git":
            yield "/".join(parts[:index]) or "/"


def _with_target(holder: str, name: str, snapshot: PathSnapshot) -> Iterator[str]:
    """The path itself, where a link could be swapped, and the target of a link on the way."""
    path = f"{holder}/{name}" if holder != "/" else f"/{name}"
    yield path
    target = snapshot.real(path)
    if target != path:
        yield target


def _refused(
    name: str, listed: tuple[str, ...] | None, granted: tuple[str, ...], deny: tuple[str, ...]
) -> Iterator[Violation]:
    """Listed paths of the contract that were removed entirely, unless it denies them itself."""
    for index, path in enumerate(listed or ()):
        if not is_covered(path, deny) and not common((path,), granted):
            yield Violation(
                code="SCOPE_EXCEEDED",
                field=f"sandbox.filesystem.{name}[{index}]",
                value=path,
                message=f"{path} is protected, or the tool's scope and permissions do not let "
                f"it {name}. Remove it, or have a wider scope approved.",
            )


def _one_per_field(*violations: Violation) -> tuple[Violation, ...]:
    first: dict[str, Violation] = {}
    for violation in violations:
        first.setdefault(violation.field, violation)
    return tuple(first.values())


@value
class _Wanted:
    """The grants if every approval were given."""

    read: tuple[str, ...]
    write: tuple[str, ...]
    ordinary: tuple[str, ...]  #: project and dependencies, which no level needs approval to read


def _needed(
    level: FilesystemLevel, wanted: _Wanted, root: str, here: str, output: str | None
) -> Iterator[ApprovalNeeded]:
    workspace = [folder for folder in (here, output) if folder and is_within(folder, root)]
    outside = [path for path in wanted.write if not is_covered(path, workspace)]
    if level is FilesystemLevel.ELEVATED:
        # AG-04 decides about paths to write that are no system paths, and so about reading them.
        decided = [path for path in outside if not is_covered(path, SYSTEM_PATHS)]
        ordinary = (*wanted.ordinary, *decided)
        system = [path for path in wanted.read if not is_covered(path, ordinary)]
        if system or not decided:
            shown = [", ".join(system)] if system else []
            target = ": ".join(["filesystem level elevated", *shown])
            yield ApprovalNeeded(gate=ELEVATED, target=target, operation="read")
    yield from map(_write_outside, outside)


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
