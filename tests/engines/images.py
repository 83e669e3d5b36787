"""Root file systems as tar files, made of this host's own files: no registry is needed."""

from __future__ import annotations

import functools
import io
import os
import re
import shutil
import subprocess
import tarfile
from collections.abc import Iterable
from pathlib import Path

#: What scripts in tests call. Resolved on the PATH: `true` in a shell is a builtin.
PROGRAMS = (
    *("sh", "bash", "awk", "basename", "cat", "chmod", "chown", "cp", "cut", "date", "dd", "df"),
    *("dirname", "du", "echo", "env", "expr", "false", "find", "free", "git", "grep", "head"),
    *("hostname", "id", "kill", "ln", "ls", "mkdir", "mkfifo", "mknod", "mount", "mv", "nproc"),
    *("od", "printf", "ps", "pwd", "readlink", "rg", "rm", "rmdir", "sed", "seq", "setsid"),
    *("sleep", "sort", "stat", "tail", "tee", "test", "timeout", "touch", "tr", "true"),
    *("truncate", "umount", "uname", "unshare", "wc", "xargs", "yes"),
)
_PATH = "/usr/bin:/usr/sbin:/bin:/sbin"
_USR_MERGED = ("bin", "sbin", "lib", "lib64")
_EMPTY = ("dev", "proc", "sys", "tmp", "root", "home", "run", "var", "etc")


@functools.cache
def empty() -> bytes:
    """An image without a file, for tools that use the host's own programs."""
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w"):
        pass
    return tar.getvalue()


@functools.cache
def of_host(*, python: bool = False) -> bytes:
    """`PROGRAMS` and their libraries; with `python` also the distribution's interpreter, about
    80 MB. The same bytes for the same files."""
    files = _with_libraries(filter(None, (shutil.which(name, path=_PATH) for name in PROGRAMS)))
    if python:
        files |= _interpreter()
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as out:
        for name in _EMPTY:
            _folder(out, name, 0o1777 if name == "tmp" else 0o755)
        for name in ("usr", *(f"usr/{each}" for each in _USR_MERGED)):
            _folder(out, name)
        for name in _USR_MERGED:
            _link(out, name, f"usr/{name}")
        _text(out, "etc/passwd", "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534::/:/bin/sh\n")
        _text(out, "etc/group", "root:x:0:\nnogroup:x:65534:\n")
        for path in sorted(files):
            _file(out, path)
    return tar.getvalue()


def _with_libraries(programs: Iterable[str]) -> set[str]:
    """The programs, what their links lead to, and the libraries that the loader would map."""
    found: set[str] = set()
    for program in programs:
        found.add(program)
        found.add(os.path.realpath(program))
    # One call for all: it takes as long as one for each of the programs together.
    said = subprocess.run(
        ["ldd", *sorted(found)], capture_output=True, text=True, check=False
    ).stdout
    for library in set(re.findall(r"(/\S+\.so\S*)", said)):
        if os.path.exists(library):
            found.add(_canonical(library))
            found.add(os.path.realpath(library))
    return found


def _canonical(path: str) -> str:
    """/lib/x is /usr/lib/x where the distribution has merged them."""
    top, _, rest = path.lstrip("/").partition("/")
    return f"/usr/{top}/{rest}" if top in _USR_MERGED and os.path.islink(f"/{top}") else path


def _interpreter() -> set[str]:
    """/usr/bin/python3 with its library, without tests, caches and distribution packages."""
    program = os.path.realpath("/usr/bin/python3")
    library = Path("/usr/lib") / Path(program).name
    files = _with_libraries(["/usr/bin/python3", program])
    for path, names, plain in os.walk(library):
        names[:] = [name for name in names if name not in ("__pycache__", "test", "dist-packages")]
        files |= {os.path.join(path, name) for name in plain}
    modules = {each for each in files if each.endswith(".so")}
    return files | _with_libraries(modules)


def _folder(out: tarfile.TarFile, name: str, mode: int = 0o755) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode = tarfile.DIRTYPE, mode
    out.addfile(entry)


def _link(out: tarfile.TarFile, name: str, target: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, target, 0o777
    out.addfile(entry)


def _text(out: tarfile.TarFile, name: str, text: str) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(text), 0o644
    out.addfile(entry, io.BytesIO(text.encode()))


def _file(out: tarfile.TarFile, path: str) -> None:
    name = _canonical(path).lstrip("/")
    for parent in reversed(Path(name).parents):
        if str(parent) not in (".", *_known(out)):
            _folder(out, str(parent))
            _known(out).add(str(parent))
    if os.path.islink(path):
        _link(out, name, os.readlink(path))
        return
    entry = tarfile.TarInfo(name)
    with open(path, "rb") as content:
        found = os.fstat(content.fileno())
        entry.size, entry.mode = found.st_size, found.st_mode & 0o755
        out.addfile(entry, content)


def _known(out: tarfile.TarFile) -> set[str]:
    """Folders that the file has already."""
    known: set[str] = out.__dict__.setdefault("actum_known", set(out.getnames()))
    return known
