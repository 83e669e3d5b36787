"""Calls one function of a Python package inside a sandbox. This file is the program.

Started as `python3 -S -B sdk_python.py PACKAGE IMPORT_PATH DIRECTORY`: it imports the module, reads
one order from stdin until its end, and only then knows what to call. So it can be started, confined
and have its import done before anybody asks. An order is JSON: `function` and `parameters` (its
keyword arguments). The answer is one JSON document on stdout: `value`, or `error` with `type` and
`message`. What the package itself prints goes to stderr.

Everything after the import is hostile, and so is everything this program says afterwards.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class PackageNotFound(Exception):
    """The adapter's package is not where its packages are."""


class FunctionNotFound(Exception):
    """The module has no such function."""


def main() -> None:
    package, import_path, directory = sys.argv[1:4]
    sys.argv = [package]
    answers = os.dup(1)
    os.dup2(2, 1)  # before any foreign code: stdout is for the answer alone
    sys.path[0] = _packages(directory)
    failed: BaseException | None = None
    module: Any = None
    try:
        _require(package)
        module = importlib.import_module(import_path)
    except BaseException as error:  # noqa: BLE001 -- whatever an import raises is its result
        failed = error
    order = json.loads(_read_all())
    if failed is None:
        try:
            answer = {"value": _called(module, order["function"], order["parameters"])}
            text = json.dumps(answer, allow_nan=False, ensure_ascii=False)
        except BaseException as error:  # noqa: BLE001 -- whatever a function raises is its result
            failed = error
    if failed is not None:
        text = json.dumps({"error": _told(failed)})
    _leave(answers, text.encode("utf-8", "backslashreplace"), 0 if failed is None else 1)


def _packages(directory: str) -> str:
    """A virtual environment keeps its packages two folders further down."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    inner = os.path.join(directory, "lib", version, "site-packages")
    return inner if os.path.isdir(inner) else directory


def _require(package: str) -> None:
    name = package.replace("-", "_")
    if importlib.util.find_spec(name.partition(".")[0]) is not None:
        return
    from importlib import metadata  # of a package whose module has another name

    try:
        metadata.distribution(package)
    except metadata.PackageNotFoundError:
        message = f"{package} is not in {sys.path[0]} and not in the standard library"
        raise PackageNotFound(message) from None


def _read_all() -> bytes:
    parts = []
    while part := os.read(0, 1 << 16):
        parts.append(part)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return b"".join(parts)


def _called(module: Any, function: str, parameters: dict[str, Any]) -> Any:
    found = module
    for name in function.split("."):
        found = getattr(found, name, None)
    if not callable(found):
        raise FunctionNotFound(f"{module.__name__} has no function {function}")
    value = found(**parameters)
    if hasattr(value, "__await__"):
        import asyncio

        value = asyncio.run(_awaited(value))
    return value


async def _awaited(value: Any) -> Any:
    return await value


def _told(error: BaseException) -> dict[str, str]:
    """The exception as data and, as Python does, on stderr."""
    import traceback

    traceback.print_exception(error)
    return {"type": type(error).__name__, "message": str(error)}


def _leave(answers: int, text: bytes, code: int) -> None:
    """What the interpreter does at its end, without taking itself apart."""
    if "threading" in sys.modules:
        sys.modules["threading"]._shutdown()
    if "atexit" in sys.modules:
        sys.modules["atexit"]._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    while text:
        text = text[os.write(answers, text) :]
    os._exit(code)


if __name__ == "__main__":
    main()
