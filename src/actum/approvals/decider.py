"""Checks of every decision that a person makes about access: a name and a reason for the record."""

from __future__ import annotations

import re

from actum.errors import Refused

_WHO = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:@+-]{0,127}")
_WHY_CHARACTERS = 2_000


def require_fit(by: str, why: str) -> None:
    if not _WHO.fullmatch(by):
        raise unfit("--by", by, "a name of letters, digits and . _ : @ + -")
    if not why.strip() or len(why) > _WHY_CHARACTERS:
        raise unfit("--why", why[:40], f"a reason of at most {_WHY_CHARACTERS} characters")


def unfit(field: str, given: str, permitted: str) -> Refused:
    return Refused(
        "DECISION_UNFIT", f"{field}: {given!r} is not {permitted}.", remedy="Correct it."
    )
