"""Files of the host that one container is shown: made empty with it, and written for its request.

Each is a mount of its own, or below one. So what the host writes later is seen inside, as long as
the files stay the same ones.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from actum.contract.call import PROVIDED

if TYPE_CHECKING:
    from actum.sandbox.wire import Request

#: An address without a route, so that the kernel counts the queries.
_NO_NAMES = "nameserver 192.0.2.1\noptions timeout:1 attempts:1\n"
_ETC = {"hosts": "127.0.0.1 localhost\n::1 localhost\n", "resolv.conf": _NO_NAMES}


def make(own: Path) -> None:
    for name in ("door", "run", "etc"):
        (own / name).mkdir()
        (own / name).chmod(0o755)
    for name, text in _ETC.items():
        _write(own / "etc" / name, text.encode(), 0o444)


def fill(own: Path, request: Request) -> None:
    """Write the files of a request, in the folder that its container is shown read-only."""
    for name, text in request["etc"].items():
        _write(own / ("etc" if name in _ETC else "run") / name, text.encode(), 0o444)
    for name, content in request["provided"].items():
        place = own / "run" / PROVIDED.removeprefix("/run/") / name
        place.parent.mkdir(parents=True, exist_ok=True)
        _write(place, content, 0o555)
    for folder, _folders, _files in os.walk(own / "run"):
        os.chmod(folder, 0o555)  # noqa: S103 -- the tool reads them


def _write(path: Path, content: bytes, mode: int) -> None:
    if path.exists():
        path.chmod(0o600)  # an ordinary user obeys the mode of an own file
    path.write_bytes(content)
    path.chmod(mode)
