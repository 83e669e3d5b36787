"""What known failures of the operating system and of SQLite mean, and what to do about them.

The store reports its own failures with their remedy. This is for the rest: folders of a
transaction, the index of a workspace, temporary files.
"""

from __future__ import annotations

import errno
import os

from actum.errors import Fault

_FULL = (
    "Free space on the file systems of the project, of its .actum and of TMPDIR, then run the"
    " command again."
)
_READ_ONLY = "Mount that file system writable, or name another project with --home DIR."
_DISK = "Look for disk errors in the kernel log (`dmesg`)."
_OS = {
    errno.ENOSPC: ("There is no room left on the file system", _FULL),
    errno.EDQUOT: ("The disk quota is used up", _FULL),
    errno.EROFS: ("The file system is mounted read-only", _READ_ONLY),
    errno.EIO: ("The disk reported an error", _DISK),
    errno.EMFILE: ("This process has too many open files", "Raise the limit (`ulimit -n`)."),
    errno.ENFILE: ("This host has too many open files", "Close some, or raise fs.file-max."),
    errno.EACCES: ("No permission", "Check the owner and the mode of that path."),
}
#: Primary result codes of SQLite, by number: importing it only for this would cost more.
_SQLITE = {
    13: ("There is no room left for a database of Actum", _FULL),  # SQLITE_FULL
    10: ("A database of Actum cannot be written or read", f"{_FULL} {_DISK}"),  # SQLITE_IOERR
    8: ("A database of Actum is read-only", _READ_ONLY),  # SQLITE_READONLY
    14: ("A database of Actum cannot be opened", "Check the owner and the mode of .actum."),
    5: ("Another process holds a database of Actum", "Wait until it has ended, and try again."),
    6: ("Another process holds a database of Actum", "Wait until it has ended, and try again."),
}


def explained(error: BaseException) -> Fault | None:
    """The fault that says what happened and what to do; ``None`` for an unknown failure."""
    if isinstance(error, OSError) and error.errno in _OS:
        text, remedy = _OS[error.errno]
        where = os.fsdecode(error.filename) if isinstance(error.filename, (str, bytes)) else ""
        return Fault(f"{text}{f': {where}' if where else ''}.", remedy=remedy)
    code = getattr(error, "sqlite_errorcode", None)
    if isinstance(code, int) and code & 0xFF in _SQLITE:  # the low byte is the primary code
        text, remedy = _SQLITE[code & 0xFF]
        return Fault(f"{text}: {error}.", remedy=remedy)
    return None
