"""Access levels (seed 000): the grants of each, and how a contract's own lists narrow them.

Pure functions on absolute path strings and host names. No file is read: the input checks and
finally the kernel decide whether a path is a symlink out of its parent. A path that still
contains ``..`` is inside nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache

from actum.contract.model import FilesystemLevel, FilesystemRequest, NetworkLevel, NetworkRequest
from actum.errors import Violation
from actum.value import value

DEFAULT_FILESYSTEM_LEVEL = FilesystemLevel.STANDARD

SYSTEM_PATHS = ("/etc", "/opt", "/usr", "/var")
ANY_HOST = "*"

#: The kernel's own interfaces are never writable, whatever was approved.
_NEVER_WRITABLE = ("/dev", "/proc", "/sys")


@value
class FilesystemGrant:
    """Absolute paths, each with all contents."""

    read: tuple[str, ...]
    write: tuple[str, ...]
    deny: tuple[str, ...] = ()  #: wins over both
    write_if_listed: tuple[str, ...] = ()  #: not granted, but a contract may list paths in here


@value
class NetworkGrant:
    """Hosts that may be reached; an empty `allow` reaches nothing."""

    enabled: bool
    allow: tuple[str, ...]
    deny: tuple[str, ...] = ()  #: wins over `allow`


@lru_cache(maxsize=256)
def absolute(path: str, base: str) -> str:
    """Join without resolving: drops ``.``, leaves ``..`` visible for the path checks."""
    joined = path if path.startswith("/") else f"{base}/{path}"
    return "/" + "/".join(part for part in joined.split("/") if part not in ("", "."))


def is_within(path: str, parent: str) -> bool:
    """Whether `path` is `parent` or below it, compared by components."""
    inner, outer = _parts(path), _parts(parent)
    return ".." not in inner and ".." not in outer and inner[: len(outer)] == outer


@lru_cache(maxsize=1_024)
def _parts(path: str) -> tuple[str, ...]:
    return tuple(part for part in path.split("/") if part not in ("", "."))


def _within_any(path: str, parents: Iterable[str]) -> bool:
    return any(is_within(path, parent) for parent in parents)


def expand_filesystem(
    level: FilesystemLevel,
    *,
    repo_root: str,
    working_directory: str,
    dependencies: tuple[str, ...] = (),
    output_directory: str | None = None,
) -> FilesystemGrant:
    """The paths of a level. A working directory outside the level's reach is not granted."""
    here = (working_directory,) if is_within(working_directory, repo_root) else ()
    match level:
        case FilesystemLevel.MINIMAL:
            return FilesystemGrant(read=here, write=())
        case FilesystemLevel.STANDARD:
            return FilesystemGrant(read=(repo_root,), write=here)
        case FilesystemLevel.EXTENDED:
            output = output_directory or absolute("output", working_directory)
            return FilesystemGrant(
                read=_outermost((repo_root, *dependencies)),
                write=_outermost((*here, output)) if here else (),
            )
        case FilesystemLevel.ELEVATED:
            return FilesystemGrant(
                read=_outermost((repo_root, *dependencies, *SYSTEM_PATHS)),
                write=(),
                write_if_listed=("/",),
            )


def _outermost(paths: Iterable[str]) -> tuple[str, ...]:
    """Sorted, without paths that another path covers."""
    kept: list[str] = []
    for path in sorted(set(paths), key=lambda one: (len(_parts(one)), one)):
        if not _within_any(path, kept):
            kept.append(path)
    return tuple(sorted(kept))


def narrow(
    grant: FilesystemGrant, request: FilesystemRequest, working_directory: str
) -> tuple[FilesystemGrant, tuple[Violation, ...]]:
    """Apply a contract's own lists. A path outside the grant is a violation, never an addition.

    A read list without a write list narrows both: a path that may be written may also be read.
    """
    violations: list[Violation] = []
    if not _within_any(working_directory, (*grant.read, *grant.write)):
        violations.append(
            _exceeds("inputs.working_directory", working_directory, "what this level can read")
        )

    def listed(name: str, paths: tuple[str, ...], inside: Callable[[str], bool]) -> tuple[str, ...]:
        kept = []
        for index, written in enumerate(paths):
            path = absolute(written, working_directory)
            if inside(path):
                kept.append(path)
            else:
                field = f"sandbox.filesystem.{name}[{index}]"
                violations.append(_exceeds(field, written, f"what this level can {name}"))
        return _outermost(kept)

    def readable(path: str) -> bool:
        return _within_any(path, (*grant.read, *grant.write))

    def writable(path: str) -> bool:
        if _within_any(path, grant.write):
            return True
        specific = _parts(path) != () and not _within_any(path, _NEVER_WRITABLE)
        return specific and _within_any(path, grant.write_if_listed)

    read, write = grant.read, grant.write
    if request.read is not None:
        read = listed("read", request.read, readable)
        write = _common(grant.write, read)
    if request.write is not None:
        write = listed("write", request.write, writable)
    deny = _outermost(absolute(path, working_directory) for path in request.deny)
    return FilesystemGrant(read=read, write=write, deny=deny), tuple(violations)


def _common(some: tuple[str, ...], others: tuple[str, ...]) -> tuple[str, ...]:
    """The paths that are in both."""
    inner = [path for path in some if _within_any(path, others)]
    inner += [path for path in others if _within_any(path, some)]
    return _outermost(inner)


def _exceeds(field: str, value: str, bounds: str) -> Violation:
    message = f"{value} is outside {bounds}. Remove it or ask for a wider level."
    return Violation(code="SCOPE_EXCEEDED", field=field, value=value, message=message)


def expand_network(
    level: NetworkLevel, *, registry_hosts: tuple[str, ...], api_hosts: tuple[str, ...]
) -> NetworkGrant:
    """The hosts of a level."""
    match level:
        case NetworkLevel.OFFLINE:
            return NetworkGrant(enabled=False, allow=())
        case NetworkLevel.REGISTRY:
            return NetworkGrant(enabled=True, allow=tuple(sorted(set(registry_hosts))))
        case NetworkLevel.API:
            return NetworkGrant(enabled=True, allow=tuple(sorted(set(api_hosts))))
        case NetworkLevel.OPEN:
            return NetworkGrant(enabled=True, allow=(ANY_HOST,))


def narrow_network(
    grant: NetworkGrant, request: NetworkRequest
) -> tuple[NetworkGrant, tuple[Violation, ...]]:
    """Apply a contract's own switch and host list, which can only narrow the grant."""
    if request.enabled is False:
        return NetworkGrant(enabled=False, allow=(), deny=request.deny), ()
    violations: list[Violation] = []
    if request.enabled and not grant.enabled:
        violations.append(
            Violation(
                code="SCOPE_EXCEEDED",
                field="sandbox.network.enabled",
                value="true",
                message="This level has no network. Ask for sandbox.network.level api.",
            )
        )
    allow = grant.allow
    if request.allow is not None:
        allow = ()
        for index, host in enumerate(request.allow):
            if grant.enabled and any(host_covers(granted, host) for granted in grant.allow):
                allow = (*allow, host)
            else:
                field = f"sandbox.network.allow[{index}]"
                violations.append(_exceeds(field, host, "the hosts of this level"))
    return NetworkGrant(enabled=grant.enabled, allow=allow, deny=request.deny), tuple(violations)


def host_covers(granted: str, asked: str) -> bool:
    """Whether `granted` covers everything that `asked` means.

    An entry without a port means all ports; ``*.suffix`` means every name below the suffix,
    not the suffix itself.
    """
    if granted == ANY_HOST:
        return True
    granted_host, granted_port = split_port(granted)
    host, port = split_port(asked)
    if granted_port not in ("", port):
        return False
    if granted_host == ANY_HOST:
        return True
    if granted_host.startswith("*."):
        return host.endswith(granted_host[1:]) and host != granted_host[1:]
    return host == granted_host


def split_port(entry: str) -> tuple[str, str]:
    entry = entry.lower()
    if entry.startswith("["):
        host, _, port = entry[1:].partition("]")
        return host, port.removeprefix(":")
    if entry.count(":") == 1:
        host, _, port = entry.partition(":")
        return host.rstrip("."), port
    return entry.rstrip("."), ""
