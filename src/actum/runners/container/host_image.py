"""The image `host`: an empty root, on which this host's system directories are mounted read-only.

So the programs of a tool are the files that the registry has judged, by device and inode. The image
is made here, from nothing, and recognised by the digest of its only layer: an engine cannot offer
another one under its name.
"""

from __future__ import annotations

import hashlib
import io
import os
import tarfile
from functools import cache
from typing import Any

from actum.errors import SandboxUnavailable
from actum.runners.container.engine_api import Engine, understood
from actum.sandbox.root import SYSTEM_LINKS

#: Folders on which something is mounted.
_FOLDERS = ("usr", "etc", "dev", "proc", "sys", "tmp", "var", "run", "artifacts", "actum")
_WRITABLE = ("tmp", "artifacts")
_NAME = "actum-host"


@cache
def _archive() -> bytes:
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name in _FOLDERS:
            entry = tarfile.TarInfo(name)
            # An engine gives a private file system the mode of the folder that it covers. Landlock
            # keeps a tool from listing its artifacts.
            entry.type, entry.mode = tarfile.DIRTYPE, 0o1777 if name in _WRITABLE else 0o755
            archive.addfile(entry)
        links = {"var/tmp": "/tmp"}
        for name in SYSTEM_LINKS:
            if os.path.islink(f"/{name}"):
                links[name] = os.readlink(f"/{name}")
            elif os.path.isdir(f"/{name}"):
                entry = tarfile.TarInfo(name)
                entry.type, entry.mode = tarfile.DIRTYPE, 0o755
                archive.addfile(entry)
        for name, target in links.items():
            entry = tarfile.TarInfo(name)
            entry.type, entry.mode, entry.linkname = tarfile.SYMTYPE, 0o777, target
            archive.addfile(entry)
    return content.getvalue()


def require_host_image(engine: Engine) -> str:
    """The id of the image, which is made if the engine does not have it."""
    digest = hashlib.sha256(_archive()).hexdigest()
    name = f"{_NAME}:{digest[:12]}"
    found = _inspect(engine, name)
    if found is None:
        # Podman ignores `tag`, so the name comes with the repository.
        engine.call("POST", "/images/create", _archive(), fromSrc="-", repo=_NAME, tag=digest[:12])
        found = _inspect(engine, name)
    if found is None:
        # Podman has named it `latest`.
        found = _inspect(engine, f"{_NAME}:latest")
    with understood("GET /images"):
        layers = None if found is None else found["RootFS"]["Layers"]
        image_id = "" if found is None else str(found["Id"])
    if layers != [f"sha256:{digest}"]:
        raise SandboxUnavailable(
            f"The engine's image {name} is not the one that Actum has made.",
            remedy=f"Remove it (`docker rmi {name}`), and run again.",
        )
    return image_id


def _inspect(engine: Engine, name: str) -> Any:
    return engine.call("GET", f"/images/{name}/json", allowed=(404,))
