"""The user of the operating system that this process acts for, as the kernel knows it."""

from __future__ import annotations

import os
import pwd

from actum.value import value


@value
class OsUser:
    uid: int
    name: str  #: of the user database; a user without an entry is a number


def os_user() -> OsUser:
    # The real one: it stays who started a program that runs as its owner.
    uid = os.getuid()
    try:
        return OsUser(uid=uid, name=pwd.getpwuid(uid).pw_name)
    except KeyError:
        return OsUser(uid=uid, name=f"uid-{uid}")
