"""The operating system user of this process, as the kernel knows it."""

from __future__ import annotations

import os
import pwd

from actum.value import value


@value
class OsUser:
    uid: int
    name: str  #: in the user database; the uid for a user without an entry


def os_user() -> OsUser:
    # The real uid: in a set-uid program it is still the user who started it.
    uid = os.getuid()
    try:
        return OsUser(uid=uid, name=pwd.getpwuid(uid).pw_name)
    except KeyError:
        return OsUser(uid=uid, name=f"uid-{uid}")
