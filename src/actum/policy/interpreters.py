"""A program outside the system directories: visible in the sandbox, from an approved prefix, or
refused.

A program is judged by its real path. With it go the interpreter that its first line names, and the
`home` of a virtual environment: without them it would not start, or would start with other
packages. Each of them must be in the system directories, in a path that the call may read, or in a
folder of `[interpreters] prefixes`, which is then mounted read-only. A tool may have written a
script, a link or a `pyvenv.cfg` in the project: they choose among these folders and add none.

Proved by tests/integration/test_interpreters.py and tests/security/filesystem/test_prefixes.py.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence

from actum.contract.call import EffectivePolicy, Executable, Interpreter
from actum.contract.levels import is_within
from actum.errors import Refused, Violation
from actum.registry.executable import SYSTEM_FOLDERS, in_system, located
from actum.registry.interpreter_prefix import SETTING, problem_with, unsafe_step
from actum.registry.path_snapshot import PathSnapshot
from actum.value import value

_SCRIPTS = 4  #: nested script interpreters; the kernel's limit
_FIRST_LINE_BYTES = 256  #: bytes of a script that the kernel reads
_CONFIG_BYTES = 65_536
_HOME = re.compile(rb"^home[ \t]*=[ \t]*(.+?)[ \t\r]*$", re.MULTILINE)


@value
class Setting:
    """`[interpreters]`, and what its folders are compared with."""

    prefixes: tuple[str, ...]
    project: str
    writable: tuple[str, ...]  #: paths that tools may write


@value
class Program:
    """The program of one call."""

    found: str  #: as the search found it, links not resolved
    executable: Executable
    search_path: Sequence[str]
    manifest: str  #: the tool.yaml that leads to it


def interpreters_of(
    program: Program,
    policy: EffectivePolicy,
    setting: Setting,
    identified: Callable[[str], Executable],
    snapshot: PathSnapshot,
) -> tuple[Interpreter, ...]:
    """The prefixes that the sandbox needs for `program`; raises `Refused` if one is missing or
    unsafe."""
    visible = (*policy.read, *policy.write)
    used: dict[str, dict[str, str]] = {}
    for path, role in _needed(program, snapshot):
        if any(is_within(path, denied) for denied in policy.deny):
            raise _outside(program, path, role, setting, snapshot)
        if in_system(path) or any(is_within(path, folder) for folder in visible):
            continue
        prefix = next((each for each in setting.prefixes if is_within(path, each)), None)
        if prefix is None:
            raise _outside(program, path, role, setting, snapshot)
        if prefix not in used:
            if problem := _problem_with(prefix, setting):
                raise _unsafe(prefix, problem)
            used[prefix] = {}
        if problem := unsafe_step(path, setting.writable):
            raise _unsafe(prefix, problem)
        if os.path.isfile(path) and snapshot.real(path) == path:
            used[prefix][path] = identified(path).sha256
    return tuple(
        Interpreter(prefix=prefix, programs=tuple(sorted(programs.items())))
        for prefix, programs in sorted(used.items())
    )


def _needed(program: Program, snapshot: PathSnapshot) -> Iterator[tuple[str, str]]:
    """(path, what it is) of all that must be visible, by its name in the sandbox."""
    found, role = program.found, "the program"
    for _ in range(_SCRIPTS):
        real = snapshot.real(found)
        yield real, role
        if home := _home_of_environment(found):
            # Python finds the environment by this name, not by the real one.
            yield from ((link, "a link to the program") for link in snapshot.links_on(found))
            yield os.path.dirname(found), "the virtual environment"
            yield home, "`home` in its pyvenv.cfg"
            yield snapshot.real(home), "`home` in its pyvenv.cfg"
        if in_system(real):
            return
        found = _named_interpreter(real, program.search_path, snapshot)
        if not found:
            return
        role = f"the interpreter that the first line of {real} names"
        # The kernel follows these links inside the sandbox.
        yield from ((link, role) for link in snapshot.links_on(found) if not _is_root_link(link))


def _is_root_link(link: str) -> bool:
    """`/bin` and its like are links in every sandbox too."""
    return link in SYSTEM_FOLDERS


def _named_interpreter(script: str, search_path: Sequence[str], snapshot: PathSnapshot) -> str:
    """The interpreter in the first line of a script; empty if it is no script, or if there is no
    such interpreter: then the start fails inside."""
    head = _head(script, _FIRST_LINE_BYTES)
    if not head.startswith(b"#!"):
        return ""
    name, *words = os.fsdecode(head[2:].partition(b"\n")[0]).split() or [""]
    if os.path.basename(name) == "env":
        name = next((word for word in words if not word.startswith("-") and "=" not in word), "")
    return located(name, search_path, snapshot) if name else ""


def _home_of_environment(found: str) -> str:
    """`home` of the virtual environment whose `bin` holds `found`; empty if there is none."""
    folder = os.path.dirname(os.path.dirname(found))
    given = _HOME.search(_head(f"{folder}/pyvenv.cfg", _CONFIG_BYTES))
    home = os.fsdecode(given[1]) if given else ""
    return os.path.normpath(home) if home.startswith("/") else ""


def _head(path: str, count: int) -> bytes:
    try:
        # A tool may have put a pipe or a device in its place: opening one would block.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return b""
    try:
        return os.read(descriptor, count) if stat.S_ISREG(os.fstat(descriptor).st_mode) else b""
    finally:
        os.close(descriptor)


def _problem_with(prefix: str, setting: Setting) -> str:
    return problem_with(prefix, project=setting.project, writable=setting.writable)


def _unsafe(prefix: str, problem: str) -> Refused:
    message = f"{SETTING} of actum.toml: {prefix} is refused: {problem}."
    violation = Violation(code="INTERPRETER_UNSAFE", field=SETTING, value=prefix, message=message)
    return Refused("INTERPRETER_UNSAFE", message, violations=(violation,))


def _outside(
    program: Program, path: str, role: str, setting: Setting, snapshot: PathSnapshot
) -> Refused:
    executable = program.executable.path
    what = path if path == executable else f"{executable}, and {path} ({role})"
    message = (
        f"path of {program.manifest} leads to {what}, which no sandbox shows: it is outside the"
        " system directories, outside the paths that this call may read and outside the folders of"
        f" {SETTING}. {_remedy(program, path, setting, snapshot)}"
    )
    violation = Violation(
        code="EXECUTABLE_OUTSIDE", field="tool.yaml path", value=path, message=message
    )
    return Refused("EXECUTABLE_OUTSIDE", message, violations=(violation,))


def _remedy(program: Program, path: str, setting: Setting, snapshot: PathSnapshot) -> str:
    folder = path if os.path.isdir(path) else os.path.dirname(path)
    other = (
        f"Install the program below /usr, or list {folder} in scope.filesystem and in"
        " permissions.filesystem.read, and request it in sandbox.filesystem.read."
    )
    prefix = _likely_prefix(path, snapshot)
    if problem := _problem_with(prefix, setting):
        return f"It cannot be listed there as it is: {problem}. {other}"
    listed = json.dumps([*setting.prefixes, prefix])
    chosen = [
        link
        for link in snapshot.links_on(program.found)
        if any(is_within(link, os.path.realpath(each)) for each in setting.writable)
    ]
    warning = f" The link {chosen[0]} leads there, and tools may write it." if chosen else ""
    return (
        f"If the tool should use it, write `prefixes = {listed}` under `[interpreters]` in"
        f" actum.toml, then `actum config approve --by WHO`.{warning} Or: {other}"
    )


def _likely_prefix(path: str, snapshot: PathSnapshot) -> str:
    """The folder to list: the one above `bin`. Where that is a link (as uv makes them), the folder
    that holds the link and what it leads to."""
    folder = path if os.path.isdir(path) else os.path.dirname(path)
    prefix = os.path.dirname(folder) if os.path.basename(folder) in ("bin", "sbin") else folder
    real = snapshot.real(prefix)
    return prefix if real == prefix else os.path.commonpath([prefix, real])
