"""One execution, described by keywords.

The library (`Runtime.exec`) and the command line (`actum exec`, `actum check`) take the fields
declared here. `OPTIONS` holds how the command line spells each field.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence

from actum.documents.json_value import Json
from actum.value import field, value


@value
class ExecRequest:
    tool: str  #: id or name, optionally ``:operation``
    arguments: Sequence[str | os.PathLike[str]] = ()
    parameters: Mapping[str, Json] = field(default_factory=dict)
    stdin: bytes | bytearray | memoryview | str | None = None
    files: Collection[str | os.PathLike[str]] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] | Collection[str] = ()  #: names, or name -> how the tool gets it
    cwd: str | os.PathLike[str] | None = None
    timeout: str | float | None = None  #: a number is seconds
    memory: str | int | None = None  #: a number is bytes
    allow_hosts: Collection[str] = ()
    set: Mapping[str, Json] = field(default_factory=dict)  #: any field of the contract, by its path
    purpose: str | None = None
    requested_by: str | None = None
    adapter_id: str | None = None


@value(kw_only=False)
class Option:
    """How the command line spells a field of `ExecRequest`."""

    flag: str
    metavar: str
    help: str
    repeated: bool = False


#: Every field but `tool` and `arguments`, which are positional.
OPTIONS: Mapping[str, Option] = {
    "parameters": Option("-p", "NAME=VALUE", "A named parameter.", repeated=True),
    "stdin": Option("--stdin", "FILE", "File for the tool's stdin; - reads our own stdin."),
    "files": Option("--file", "PATH", "An input file.", repeated=True),
    "env": Option("--env", "NAME=VALUE", "An environment variable.", repeated=True),
    "secrets": Option(
        "--secret",
        "NAME[=HOW]",
        "A secret of the project: env (default), env:VARIABLE or fd.",
        True,
    ),
    "cwd": Option("--cwd", "DIR", "The tool's working directory; default: the current one."),
    "timeout": Option("--timeout", "TIME", "500ms, 5s, 2m; without a unit, seconds."),
    "memory": Option("--memory", "SIZE", "256M, 1G; without a unit, bytes."),
    "allow_hosts": Option("--allow-host", "HOST", "Reachable host.", repeated=True),
    "set": Option("--set", "PATH=JSON", "Any field of the contract.", repeated=True),
    "purpose": Option("--purpose", "TEXT", "The reason, for the record."),
    "requested_by": Option("--as", "WHO", "The requester, for the record."),
    "adapter_id": Option("--adapter", "ID", "The adapter; default: the active one."),
}
