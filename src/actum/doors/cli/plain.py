"""The plain forms of `actum exec`, understood without the command-line library.

Loading that library takes longer than all the rest of reading these words. Whatever is not certain
here, be it a rare option, a question for help or a mistake, is left to it: `understood` returns
``None`` and the same words are read again. Tests hold both to the same meaning.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

_ONCE = {
    "--stdin": "stdin",
    "--cwd": "cwd",
    "--timeout": "timeout",
    "--memory": "memory",
    "--purpose": "purpose",
    "--as": "requested_by",
    "--adapter": "adapter_id",
    "--home": "home",
    "--session": "session",
}
_OFTEN = {
    "-p": "parameters",
    "--file": "files",
    "--env": "env",
    "--secret": "secrets",
    "--allow-host": "allow_hosts",
    "--set": "fields",
}


def understood(arguments: list[str]) -> dict[str, Any] | None:
    """The keywords of `carry_out` that these arguments mean, if it is plain what they mean."""
    if arguments[:1] != ["exec"] or "_ACTUM_COMPLETE" in os.environ:
        return None
    once: dict[str, Any] = dict.fromkeys(_ONCE.values())
    often: dict[str, list[str]] = {name: [] for name in _OFTEN.values()}
    words: list[str] = []
    as_json = False
    rest = iter(arguments[1:])
    for word in rest:
        if word == "--":
            words.extend(rest)
        elif not word.startswith("-") or word == "-":
            words.append(word)
        elif word == "--json":
            as_json = True
        else:
            name, equals, content = word.partition("=") if word.startswith("--") else (word, "", "")
            told = content if equals else next(rest, None)
            if told is None or (name not in _ONCE and name not in _OFTEN):
                return None
            if name in _ONCE:
                once[_ONCE[name]] = told
            else:
                often[_OFTEN[name]].append(told)
    home = once.pop("home")
    if not words or home == "" or (home is not None and os.path.isfile(home)):
        return None
    return {
        **once,
        **{name: tuple(told) for name, told in often.items()},
        "words": tuple(words),
        "contract": None,
        "home": None if home is None else Path(home),
        "session": once["session"] or None,
        "as_json": as_json,
        "changes": "commit",
    }
