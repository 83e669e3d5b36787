"""Sources of secrets: `[secrets]` of actum.toml, parsed into values. Fetches nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeAlias

from actum.value import value

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_KINDS = ("env", "file", "command", "keyring")


class Unavailable(Exception):
    """A source has no usable value; the text gives the reason and never contains the value."""

    code = "SECRET_MISSING"


@value(kw_only=False)
class FromEnvironment:
    """A variable of the process that runs Actum."""

    variable: str

    def __str__(self) -> str:
        return f"environment variable {self.variable}"


@value(kw_only=False)
class FromFile:
    """A file that only the operator can read, outside the project or in its `.actum/`."""

    path: str

    def __str__(self) -> str:
        return f"file {self.path}"


@value(kw_only=False)
class FromCommand:
    """The output of an operator's program, such as a password store."""

    argv: tuple[str, ...]

    def __str__(self) -> str:
        return f"command {self.argv[0]}"


@value(kw_only=False)
class FromKeyring:
    """A `user` key of the kernel that the process possesses."""

    description: str

    def __str__(self) -> str:
        return f"kernel key {self.description}"


Source: TypeAlias = FromEnvironment | FromFile | FromCommand | FromKeyring


def problem_with(name: str, value: Any) -> str:
    """Why `name = value` is not a source; empty if it is one."""
    if not _NAME.fullmatch(name):
        return "is not a name for a secret: letters, digits and _, not beginning with a digit"
    if not isinstance(value, dict) or len(value) != 1 or next(iter(value)) not in _KINDS:
        return f"must be a table with one of {', '.join(_KINDS)}"
    kind, where = next(iter(value.items()))
    if kind == "command":
        if not (isinstance(where, list) and where and all(isinstance(w, str) for w in where)):
            return "command must be a list of strings: the program and its arguments"
        if not where[0] or ("/" in where[0] and not where[0].startswith("/")):
            return "command must begin with an absolute path or with a name on PATH"
    elif not isinstance(where, str) or not where:
        return f"{kind} must be a string"
    elif kind == "file" and not where.startswith(("/", "~/", ".actum/")):
        return "file must be absolute, or begin with ~/ or .actum/: tools can read the project"
    return ""


def source_of(value: Mapping[str, Any], *, project: str, user_home: str) -> Source:
    """Convert a table that `problem_with` accepts."""
    ((kind, where),) = value.items()
    if kind == "env":
        return FromEnvironment(where)
    if kind == "command":
        return FromCommand(tuple(where))
    if kind == "keyring":
        return FromKeyring(where)
    if where.startswith("~/"):
        return FromFile(f"{user_home}/{where[2:]}")
    return FromFile(where if where.startswith("/") else f"{project}/{where}")
