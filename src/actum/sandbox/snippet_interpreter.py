"""A snippet without an exec: the fork of the zygote is already an interpreter, and runs it.

Only for the program that runs snippets, and only if the interpreter that was judged is the same
file as the spawner's own; any other program is executed. The process is confined like every tool
before it gets here. It drops what an exec would drop: capabilities, descriptors, our modules, our
command line. Its memory holds no data of other executions, because the spawner never receives a
request.
"""

from __future__ import annotations

import os
import signal
import sys
import time

from actum import kernel

TYPE_CHECKING = False
if TYPE_CHECKING:
    from io import TextIOWrapper
    from types import ModuleType
    from typing import NoReturn

    from actum.sandbox.wire import Request, Tool

#: The spawner is started with it, so every fork has it; `policy.environment` sets it for tools.
HASH_SEED = "0"
#: The arguments of the snippet program; those after them are its imports.
_PROGRAM = ["-s", "/etc/actum/snippet.py"]
_SESSION = "session:"
_LOCALE = ("LC_ALL", "LC_CTYPE", "LANG")
_LENIENT = ("C", "POSIX", "C.UTF-8")
_FIRST_ARGUMENT = 47 - 2  # field of /proc/self/stat, counted after the name in parentheses
_modules: dict[str, ModuleType] = {}


def learn() -> None:
    """In the zygote, while its files are visible: import the snippet program, and run it once."""
    import site

    from actum.sandbox import snippet_program, value_program, working_files_program

    snippet_program.beside.update(value=value_program, working_files=working_files_program)
    snippet_program._carry_out({"files": {}, "params": {}, "code": "x = 1\nx + 1"}, {})
    _modules.update(site=site, snippet=snippet_program)


def is_snippet(tool: Tool | Request) -> bool:
    """Whether a request could be served, if its interpreter is the spawner's."""
    argv, environment = tool["argv"], tool["environment"]
    if argv[1:3] != _PROGRAM or argv[3:4] == [_SESSION] or tool["secrets"]:
        return False
    # These variables configure an interpreter at its start; this one has started already.
    if any(
        name.startswith("PYTHON") and (name, value) != ("PYTHONHASHSEED", HASH_SEED)
        for name, value in environment.items()
    ):
        return False
    for name in _LOCALE:
        wanted = environment.get(name, "")
        if wanted not in ("", "C", "POSIX") and not wanted.upper().endswith(("UTF-8", "UTF8")):
            return False
    return True


def serves(tool: Tool, interpreter: tuple[int, int]) -> bool:
    """Whether this process can serve the request."""
    if not _modules or not is_snippet(tool):
        return False
    found = os.stat(tool["executable"])
    return (found.st_dev, found.st_ino) == interpreter


def run(tool: Tool) -> NoReturn:
    """Run the snippet that will be on stdin."""
    # An exec would drop these for this uid; in a user namespace we had them all.
    kernel.drop_capabilities()
    _rename(tool["argv"])
    kernel.prctl(kernel.PR_SET_DUMPABLE, 1)
    os.environ.update(tool["environment"])
    time.tzset()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_IGN)  # as every interpreter does
    _streams(tool["environment"])
    program, site = _modules["snippet"], _modules["site"]
    for name in [name for name in sys.modules if name.split(".")[0] == "actum"]:
        del sys.modules[name]
    sys.modules["__main__"] = program
    sys.path_importer_cache.pop(sys.path[0], None)
    sys.path[0] = os.path.dirname(_PROGRAM[1])
    sys.orig_argv, sys.argv = tool["argv"], tool["argv"][2:]
    sys.executable = _where(tool["argv"][0], tool["environment"].get("PATH", ""))
    # Last: from here on the init treats this process as the tool.
    # By close_range: SC_OPEN_MAX is the limit of the tool, and descriptors above it stay open.
    kernel.close_from(3)
    code = 1
    try:
        site.main()
        program.main()
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else 1
    except BaseException:  # noqa: BLE001 -- a failed import ends an interpreter with its traceback
        sys.excepthook(*sys.exc_info())
    sys.stdout.flush()
    os._exit(code)


def _streams(environment: dict[str, str]) -> None:
    """Open the standard streams like an interpreter at its start."""
    locale = next(filter(None, map(environment.get, _LOCALE)), "C")
    errors = "surrogateescape" if locale in _LENIENT else "strict"
    inward = _stream(0, "r", errors)
    outward = _stream(1, "w", errors)
    errors_out = _stream(2, "w", "backslashreplace", buffering=1)
    sys.stdin = sys.__stdin__ = inward  # type: ignore[misc]
    sys.stdout = sys.__stdout__ = outward  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = errors_out  # type: ignore[misc]


def _stream(number: int, mode: str, errors: str, buffering: int = -1) -> TextIOWrapper:
    stream: TextIOWrapper = open(  # type: ignore[assignment]  # noqa: SIM115 -- it stays open
        number, mode, buffering, encoding="utf-8", errors=errors, closefd=False
    )
    return stream


def _where(name: str, path: str) -> str:
    """The path at which a shell would find the program: an interpreter uses it for its own name."""
    if "/" in name:
        return name
    folders = (f"{folder}/{name}" for folder in path.split(":"))
    return next((found for found in folders if os.access(found, os.X_OK)), name)


def _rename(argv: list[str]) -> None:
    """Replace the spawner's command line by our own, as far as it fits."""
    with open("/proc/self/stat", "rb") as file:
        fields = file.read().rpartition(b")")[2].split()
    start, end = int(fields[_FIRST_ARGUMENT]), int(fields[_FIRST_ARGUMENT + 1])
    text = b"\0".join(map(os.fsencode, argv))[: end - start - 1]
    kernel.write_own_memory(start, text.ljust(end - start, b"\0"))
