"""Parses the common forms of `actum exec` and `actum sh` without the command-line library.

Importing that library takes longer than the rest of parsing. It handles everything else, such as a
rare option, a request for help or a mistake: `understood` returns ``None`` and the library parses
the same arguments. Tests prove that both agree.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from actum.contract.request import OPTIONS
from actum.execution.shell_script import TOOL

_ONCE = {option.flag: name for name, option in OPTIONS.items() if not option.repeated}
_ONCE |= {"--home": "home", "--session": "session"}
_OFTEN = {option.flag: name for name, option in OPTIONS.items() if option.repeated}


def script_words(words: Sequence[str]) -> dict[str, Any]:
    """The keywords of `actum sh`: its tool, and the script in words. `-` alone is our own stdin."""
    if list(words) == ["-"]:
        return {"words": (TOOL, "-")}
    return {"words": (TOOL,), "script": tuple(words)}


def understood(arguments: list[str]) -> dict[str, Any] | None:
    """The keywords of `carry_out` for these arguments; ``None``: the library has to parse them."""
    if arguments[:1] not in (["exec"], ["sh"]) or "_ACTUM_COMPLETE" in os.environ:
        return None
    script = arguments[0] == "sh"
    once: dict[str, Any] = dict.fromkeys(_ONCE.values())
    often: dict[str, list[str]] = {name: [] for name in _OFTEN.values()}
    words: list[str] = []
    as_json = raw = False
    rest = iter(arguments[1:])
    for word in rest:
        if word == "--":
            words.extend(rest)
        elif not word.startswith("-") or word == "-":
            words.append(word)
            if script:  # the rest are words of the command
                words.extend(rest)
        elif word == "--json":
            as_json = True
        elif word == "--raw":
            raw = True
        else:
            name, equals, content = word.partition("=") if word.startswith("--") else (word, "", "")
            given = content if equals else next(rest, None)
            if given is None or (name not in _ONCE and name not in _OFTEN):
                return None
            if name in _ONCE:
                once[_ONCE[name]] = given
            else:
                often[_OFTEN[name]].append(given)
    home = once.pop("home")
    if not (words or script) or home == "" or (home is not None and os.path.isfile(home)):
        return None
    return {
        **once,
        **{name: tuple(given) for name, given in often.items()},
        **(script_words(words) if script else {"words": tuple(words)}),
        "contract": None,
        "home": None if home is None else Path(home),
        "session": once["session"] or None,
        "as_json": as_json,
        "changes": "commit",
        "raw": raw,
    }
