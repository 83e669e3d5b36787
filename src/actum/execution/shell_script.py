"""`Runtime.shell` and `actum sh`: a shell script from words."""

from __future__ import annotations

import os
from collections.abc import Sequence

from actum.errors import ContractInvalid, Problem

TOOL = "shell"


def script_of(given: Sequence[str | os.PathLike[str]]) -> str:
    """One word is a script. Several are a command and its arguments, each of which stays one word.

    Raises `ContractInvalid` for several words of which the first is a script.
    """
    words = [os.fspath(word) if isinstance(word, os.PathLike) else word for word in given]
    for index, word in enumerate(words):
        if not isinstance(word, str):
            raise _unfit(index, f"it is of type {type(word).__name__}", permitted="text")
    if len(words) < 2:
        return "".join(words)
    if any(letter.isspace() for letter in words[0]):
        # An option after the script, or an argument for it: neither may be lost.
        raise _unfit(
            0,
            f"{words[0][:80]!r} is a script, and further words follow it",
            permitted="a script alone, or a command and its arguments; options come before it",
        )
    import shlex

    return shlex.join(words)


def _unfit(index: int, why: str, *, permitted: str) -> ContractInvalid:
    problem = Problem(field=f"words[{index}]", message=f"{why}.", permitted=permitted)
    return ContractInvalid((problem,))
