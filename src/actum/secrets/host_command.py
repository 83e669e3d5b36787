"""A program that runs on the host, unconfined: who could have changed it, and how to run just it.

The path is walked from `/`, one name at a time, by descriptors that hold what was looked at. Each
directory, link and file on the way must belong to root or to the caller, must not be writable by
group or others (sticky or not), and must not be a place that a tool may write. What is executed is
the file that was opened, so an exchange of a name after the look changes nothing. A script is given
to its interpreter in the same way, and the interpreter is judged like the program.

Starts nothing. Proved by tests/security/test_host_commands.py.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager

from actum.secrets.sources import Unavailable
from actum.value import value

_LINKS = 40  #: as many as the kernel follows
_SCRIPTS = 4  #: interpreters that are scripts themselves, as deep as the kernel goes
_FIRST_LINE_BYTES = 256  #: of a script, as the kernel reads it
_FLAGS = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
#: Programs that execute a file which an argument names.
_INTERPRETER = re.compile(
    r"(?:[abckz]|ba|da|fi|mk|tc)?sh|busybox|(?:python|perl|ruby|lua|php|node|tclsh)[0-9.]*|awk|gawk|mawk"
)
#: Programs that execute the program which an argument names, by its path or as a name on PATH.
_LAUNCHER = re.compile(
    r"timeout|nice|ionice|nohup|setsid|stdbuf|chrt|taskset|xargs|time|strace|ltrace|flock|script"
    r"|sudo|doas|su|runuser|setpriv|unshare|nsenter|chroot|systemd-run|dbus-run-session"
    r"|ld-linux.*|ld-musl.*|ld\.so.*|ld-[0-9.]+\.so"
)


class UnsafeCommand(Unavailable):
    """Another than the operator could have changed what would run."""

    code = "HOST_COMMAND_UNSAFE"


@value
class Ready:
    """A program that was judged, for as long as its descriptors are open."""

    executable: str  #: a path that names the open file, in a process that inherits the descriptors
    argv: tuple[str, ...]
    descriptors: tuple[int, ...]


@contextmanager
def judged(
    argv: tuple[str, ...], environment: Mapping[str, str], writable: Iterable[str]
) -> Iterator[Ready]:
    """Open the program of `argv`, or raise `UnsafeCommand` with the step that is unsafe and what to
    do. `writable` are the paths that tools may write."""
    with ExitStack() as held:
        walk = _Walk(held, writable)
        yield _ready(walk, _found(argv[0], environment), argv, environment)


def _found(name: str, environment: Mapping[str, str]) -> str:
    """The first program of this name on PATH; a relative entry would mean the project."""
    if name.startswith("/"):
        return name
    for folder in environment.get("PATH", _DEFAULT_PATH).split(":"):
        path = os.path.join(folder, name)
        if folder.startswith("/") and os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    raise Unavailable(f"{name} is not a program on PATH")


def _ready(walk: _Walk, path: str, argv: tuple[str, ...], environment: Mapping[str, str]) -> Ready:
    program = walk.program(path)
    kept = [program]
    words = argv
    for _ in range(_SCRIPTS):
        name, option = _interpreter(program, path)
        if name is None:
            break
        if os.path.basename(name) == "env":
            name, option = _found(_named_by_env(option, path), environment), None
        # What the kernel does for a script, with the script as a descriptor in the place of a name.
        words = (name, *([] if option is None else [option]), _of(program), *words[1:])
        path = name
        program = walk.program(path)
        kept.append(program)
    else:
        raise UnsafeCommand(f"{argv[0]} is a script of scripts, more than {_SCRIPTS} deep")
    if os.path.basename(path) == "env":
        raise UnsafeCommand(f"{path} would look for another program; name that program itself")
    is_script = len(kept) > 1  # whose arguments are its own
    real = os.path.basename(os.path.realpath(path))
    if not is_script and (_INTERPRETER.fullmatch(real) or _LAUNCHER.fullmatch(real)):
        _require_safe_files(walk, argv[1:])
    if not is_script and _LAUNCHER.fullmatch(real):
        _require_safe_files(walk, _on_path(argv[1:], environment))
    return Ready(executable=_of(program), argv=words, descriptors=tuple(kept))


def _of(descriptor: int) -> str:
    return f"/proc/self/fd/{descriptor}"


def _interpreter(program: int, path: str) -> tuple[str | None, str | None]:
    """The interpreter that a script names, and its one argument; ``None`` for no script."""
    try:
        reading = os.open(_of(program), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except PermissionError:
        return None, None  # a program may be executable and not readable; a script may not
    try:
        head = os.read(reading, _FIRST_LINE_BYTES)
    finally:
        os.close(reading)
    if not head.startswith(b"#!"):
        return None, None
    line, end, _ = head[2:].partition(b"\n")
    if not end and len(head) == _FIRST_LINE_BYTES:
        raise UnsafeCommand(f"the first line of {path} is longer than the kernel reads")
    name, _, option = os.fsdecode(line).replace("\t", " ").strip(" ").partition(" ")
    if not name.startswith("/"):
        raise UnsafeCommand(
            f"{path} names the interpreter {name!r}; write its absolute path after #!"
        )
    return name, option.strip(" ") or None


def _named_by_env(option: str | None, path: str) -> str:
    if option is None or "/" in option or "=" in option or option.startswith("-") or " " in option:
        raise UnsafeCommand(
            f"{path} finds its interpreter by env with {option!r}; write the interpreter's absolute"
            " path after #!"
        )
    return option


def _on_path(words: Iterable[str], environment: Mapping[str, str]) -> Iterator[str]:
    """The programs that a launcher would find by these names."""
    for word in words:
        if "/" not in word and not word.startswith("-"):
            try:
                yield _found(word, environment)
            except Unavailable:
                continue  # a number, an option's value


def _require_safe_files(walk: _Walk, words: Iterable[str]) -> None:
    """Each argument of an interpreter or launcher can be a file that it executes. Commands start in
    `/`."""
    for word in words:
        path = os.path.join("/", word)
        if not word.startswith("-") and os.path.isfile(path):
            walk.program(path, executable=False)


class _Walk:
    """Opens paths from the root, one name at a time, and judges every step."""

    def __init__(self, held: ExitStack, writable: Iterable[str]) -> None:
        self._held = held
        self._callers = {0, os.geteuid()}
        #: By identity: a bind mount or a link is another name for the same place.
        self._writable = dict(_identities(writable))

    def program(self, path: str, *, executable: bool = True) -> int:
        """The file that `path` leads to, open and judged."""
        here, place = self._root()
        names = _parts(path)
        links = 0
        while names:
            name = names.pop()
            if name == "..":
                place = os.path.dirname(place)
                here = self._open("..", here, path, place)
                self._require_safe(os.fstat(here), path, place)
                continue
            step = os.path.join(place, name)
            found = self._open(name, here, path, step)
            status = os.fstat(found)
            if stat.S_ISLNK(status.st_mode):
                links += 1
                if links > _LINKS:
                    raise UnsafeCommand(f"{path} has more than {_LINKS} links on its way")
                self._require_owner(status, path, step)
                target = os.readlink("", dir_fd=found)
                names += _parts(target)
                if target.startswith("/"):
                    here, place = self._root()
                continue
            self._require_safe(status, path, step)
            if names:
                if not stat.S_ISDIR(status.st_mode):
                    raise Unavailable(f"{path}: {step} is not a directory")
                here, place = found, step
                continue
            runs = status.st_mode & 0o111 or not executable
            if not stat.S_ISREG(status.st_mode) or not runs:
                break
            return found
        raise Unavailable(f"{path} is not a program that can be run")

    def _root(self) -> tuple[int, str]:
        root = os.open("/", _FLAGS | os.O_DIRECTORY)
        self._held.callback(os.close, root)
        self._require_safe(os.fstat(root), "/", "/")
        return root, "/"

    def _open(self, name: str, folder: int, path: str, step: str) -> int:
        try:
            found = os.open(name, _FLAGS, dir_fd=folder)
        except FileNotFoundError as error:
            raise Unavailable(f"{path} is not a program that can be run: no {step}") from error
        except OSError as error:
            raise Unavailable(f"{path}: {step}: {error.strerror}") from error
        self._held.callback(os.close, found)
        return found

    def _require_safe(self, status: os.stat_result, path: str, step: str) -> None:
        place = self._writable.get((status.st_dev, status.st_ino))
        if place is not None:
            raise UnsafeCommand(
                f"{path}: {step} is a place that tools may write ({place}); move the program out"
                " of the project and of every path that a tool may write"
            )
        self._require_owner(status, path, step)
        if status.st_mode & _WRITABLE_BY_OTHERS:
            mode = stat.S_IMODE(status.st_mode)
            raise UnsafeCommand(
                f"{path}: {step} can be written by others than its owner (mode {mode:04o});"
                f" `chmod go-w {step}`, or move the program to a directory of yours"
            )

    def _require_owner(self, status: os.stat_result, path: str, step: str) -> None:
        if status.st_uid not in self._callers:
            raise UnsafeCommand(
                f"{path}: {step} belongs to uid {status.st_uid}, neither to root nor to you (uid"
                f" {os.geteuid()}); use a program of your own or of the system"
            )


def _parts(path: str) -> list[str]:
    """The names of a path, the first one last."""
    return [name for name in reversed(path.split("/")) if name not in ("", ".")]


def _identities(paths: Iterable[str]) -> Iterator[tuple[tuple[int, int], str]]:
    for path in paths:
        try:
            status = os.stat(path)
        except OSError:
            continue  # nothing there to be in
        yield (status.st_dev, status.st_ino), path
