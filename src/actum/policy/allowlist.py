"""The command allowlist of a tool (`scope.commands`): which entry, if any, permits a command line.

An entry is a program (`rg`: with any arguments) or a program and its leading words
(`git status`). Nothing is permitted by default, and an empty list permits nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from actum.contract.call import Argument

_COMMAND_WORD = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")


def permitting_entry(
    commands: Iterable[str], program: str, arguments: tuple[Argument, ...]
) -> str | None:
    """The entry under which `program` with `arguments` may run; the longest one if several.

    The words of an entry must come first. Of what the adapter itself puts before them, options and
    their values are skipped, but nothing that could itself be a subcommand. Of what the caller
    gives, nothing is skipped: `git -c alias.status=!sh status` is not `git status`, because what
    stands before a subcommand can change what the subcommand means.
    """
    spoken = [
        argument.value
        for argument in arguments
        if not argument.fixed or _COMMAND_WORD.fullmatch(argument.value)
    ]
    permitting = [entry for entry in commands if _begins_with(entry.split(), [program, *spoken])]
    return max(permitting, key=lambda entry: len(entry.split()), default=None)


def _begins_with(entry: list[str], spoken: list[str]) -> bool:
    return bool(entry) and spoken[: len(entry)] == entry
