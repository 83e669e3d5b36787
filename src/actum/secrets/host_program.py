"""Programs that run on the host, unconfined: checks that only the operator could change them.

The path is walked from `/`, one name at a time, by descriptors that hold the checked files. Each
directory, link and file on the way must belong to root or to the caller, must not be writable by
group or others (sticky or not), and must not be a path that a tool may write. The opened file is
executed, so replacing a name after the check changes nothing. A script is passed to its interpreter
in the same way, and the interpreter is checked like the program. Paths in the environment that a
tool may write are removed: programs search there for other programs.

Starts no process. Proved by tests/security/test_host_commands.py.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress

from actum.secrets.sources import Unavailable
from actum.value import value

_LINKS = 40  #: the kernel's limit
_SCRIPTS = 4  #: nested script interpreters; the kernel's limit
_FIRST_LINE_BYTES = 256  #: bytes of a script that the kernel reads
_FLAGS = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_TEXT_BYTES = 1_048_576  #: of a configuration file
_DEFAULT_PATH = "/usr/local/bin:/usr/bin:/bin"
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH
#: Programs that execute a file named by an argument, or a file in a folder named by one.
_INTERPRETER = re.compile(
    r"(?:[abckz]|ba|da|fi|mk|tc)?sh|busybox|(?:python|pypy|perl|ruby|lua|php|node|tclsh)[0-9.]*"
    r"|awk|gawk|mawk|sed|deno|bun|java|expect|guile|Rscript|g?make|git"
)
#: Programs that execute the program named by an argument, by path or by name on PATH.
_LAUNCHER = re.compile(
    r"timeout|nice|ionice|nohup|setsid|stdbuf|chrt|taskset|xargs|time|strace|ltrace|flock|script"
    r"|sudo|doas|su|runuser|setpriv|unshare|nsenter|chroot|systemd-run|dbus-run-session"
    r"|ld-linux.*|ld-musl.*|ld\.so.*|ld-[0-9.]+\.so"
)


class UnsafeCommand(Unavailable):
    """Someone other than the operator could have changed the program."""

    code = "HOST_COMMAND_UNSAFE"


@value
class Ready:
    """A checked program, valid while its descriptors are open."""

    executable: str  #: a path that names the open file, in a process that inherits the descriptors
    argv: tuple[str, ...]
    descriptors: tuple[int, ...]


@contextmanager
def judged(
    argv: tuple[str, ...], environment: Mapping[str, str], writable: Iterable[str]
) -> Iterator[Ready]:
    """Open the program of `argv`, or raise `UnsafeCommand` with the unsafe step and the remedy.
    `writable` are the paths that tools may write."""
    with ExitStack() as held:
        walk = _Walk(held, writable)
        yield _ready(walk, _found(argv[0], environment), argv, environment)


def require_operators(path: str, writable: Iterable[str]) -> None:
    """Raise `UnsafeCommand` if a tool, or a user other than root and the caller, could change a
    step of `path`; `Unavailable` if it cannot be opened."""
    with ExitStack() as held:
        _Walk(held, writable).folder(path)


def trusted_text(path: str, writable: Iterable[str]) -> str:
    """The content of a file that nobody but the operator could have written. Raises
    `UnsafeCommand` for another one, and `Unavailable` for one that cannot be read."""
    with ExitStack() as held:
        found = _Walk(held, writable, sticky=True).program(path, executable=False)
        try:
            with open(_of(found), "rb", opener=_readable) as file:
                return file.read(_TEXT_BYTES).decode(errors="replace")
        except OSError as error:
            raise Unavailable(f"{path}: {error.strerror}") from error


def _readable(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK)


def _found(name: str, environment: Mapping[str, str]) -> str:
    """The first program of this name on PATH; skips relative entries, which mean the project."""
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
        # As the kernel does for a script, with a descriptor in place of the script's name.
        words = (name, *([] if option is None else [option]), _of(program), *words[1:])
        path = name
        program = walk.program(path)
        kept.append(program)
    else:
        raise UnsafeCommand(f"{argv[0]} has more than {_SCRIPTS} nested script interpreters")
    if os.path.basename(path) == "env":
        raise UnsafeCommand(f"{path} would search for another program; name that program itself")
    is_script = len(kept) > 1  # a script's arguments are its own
    real = os.path.basename(os.path.realpath(path))
    if not is_script and (_INTERPRETER.fullmatch(real) or _LAUNCHER.fullmatch(real)):
        _require_safe_files(walk, argv[1:])
    if not is_script and _LAUNCHER.fullmatch(real):
        _require_safe_files(walk, _on_path(argv[1:], environment))
    return Ready(executable=_of(program), argv=words, descriptors=tuple(kept))


def _of(descriptor: int) -> str:
    return f"/proc/self/fd/{descriptor}"


def _interpreter(program: int, path: str) -> tuple[str | None, str | None]:
    """The interpreter of a script, and its one argument; ``None`` if it is not a script."""
    try:
        reading = os.open(_of(program), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except PermissionError:
        return None, None  # an unreadable file may be a program but not a script
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
    """Each argument of an interpreter or launcher can be a file that it executes, or a folder with
    such a file (`python3 folder` runs its `__main__.py`)."""
    for word in words:
        for path in _paths_in(word):
            if os.path.isfile(path):
                walk.program(path, executable=False)
            elif os.path.isdir(path):
                walk.folder(path)


def _paths_in(word: str) -> Iterator[str]:
    """The paths that an argument can mean: commands start in `/`. An option's value follows `=` or
    directly its letter."""
    if not word.startswith("-"):
        yield os.path.join("/", word)
        return
    _, given, behind = word.partition("=")
    if given:
        yield os.path.join("/", behind)
    if "/" in word:
        yield word[word.index("/") :]


def safe_environment(environment: Mapping[str, str], writable: Iterable[str]) -> Mapping[str, str]:
    """The environment without paths that tools may write, in lists (`PATH`) and alone. A variable
    that holds nothing else is removed."""
    untrusted = dict(_identities(writable))
    found = {}
    for name, text in environment.items():
        parts = text.split(":")
        kept = [part for part in parts if not (part.startswith("/") and _is_in(part, untrusted))]
        if kept:
            found[name] = ":".join(kept)
    return found


def _is_in(path: str, untrusted: Mapping[tuple[int, int], str]) -> bool:
    step = os.path.realpath(path)
    while True:
        with suppress(OSError):
            status = os.stat(step)
            if (status.st_dev, status.st_ino) in untrusted:
                return True
        if step == "/":
            return False
        step = os.path.dirname(step)


class _Walk:
    """Opens paths from the root, one name at a time, and checks every step."""

    def __init__(self, held: ExitStack, writable: Iterable[str], *, sticky: bool = False) -> None:
        self._held = held
        self._sticky = sticky  #: accept directories such as /tmp, where only owners rename
        self._callers = {0, os.geteuid()}
        #: By identity: a bind mount or a link is another name for the same directory.
        self._writable = dict(_identities(writable))

    def program(self, path: str, *, executable: bool = True) -> int:
        """The file at `path`, open and checked."""
        found = self._open_judged(path)
        mode = os.fstat(found).st_mode
        if not stat.S_ISREG(mode) or not (mode & 0o111 or not executable):
            raise Unavailable(f"{path} is not a program that can be run")
        return found

    def folder(self, path: str) -> None:
        """Check the folder, or the file of any kind, at `path`, and every step to it."""
        self._open_judged(path)

    def _open_judged(self, path: str) -> int:
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
                    raise UnsafeCommand(f"{path} has more than {_LINKS} links in it")
                self._require_owner(status, path, step)
                target = os.readlink("", dir_fd=found)
                names += _parts(target)
                if target.startswith("/"):
                    here, place = self._root()
                continue
            self._require_safe(status, path, step)
            if names and not stat.S_ISDIR(status.st_mode):
                raise Unavailable(f"{path}: {step} is not a directory")
            here, place = found, step
        return here

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
                f"{path}: {step} is a path that tools may write ({place}); move the program out"
                " of the project and of every path that a tool may write"
            )
        self._require_owner(status, path, step)
        shared = self._sticky and stat.S_ISDIR(status.st_mode) and status.st_mode & stat.S_ISVTX
        if status.st_mode & _WRITABLE_BY_OTHERS and not shared:
            mode = stat.S_IMODE(status.st_mode)
            raise UnsafeCommand(
                f"{path}: {step} is writable by others than its owner (mode {mode:04o});"
                f" `chmod go-w {step}`, or move the program to a directory of yours"
            )

    def _require_owner(self, status: os.stat_result, path: str, step: str) -> None:
        if status.st_uid not in self._callers:
            raise UnsafeCommand(
                f"{path}: {step} belongs to uid {status.st_uid}, neither to root nor to you (uid"
                f" {os.geteuid()}); use a program of your own or of the system"
            )


def _parts(path: str) -> list[str]:
    """The names of a path, in reverse order."""
    return [name for name in reversed(path.split("/")) if name not in ("", ".")]


def _identities(paths: Iterable[str]) -> Iterator[tuple[tuple[int, int], str]]:
    for path in paths:
        try:
            status = os.stat(path)
        except OSError:
            continue  # does not exist
        yield (status.st_dev, status.st_ino), path
