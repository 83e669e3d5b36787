"""Calls one function of a Python package inside a sandbox. This file is the program.

Started as `python3 -S -B sdk_python.py PACKAGE IMPORT_PATH DIRECTORY`: it imports the module, reads
one request from stdin until its end, and only then knows what to call. So it can be started,
confined and have its import done ahead of a request. A request is JSON: `function` and
`parameters` (its keyword arguments). The answer is one JSON document on stdout: `value`, or
`error` with `type` and `message`. Output of the package itself goes to stderr.

Everything after the import is hostile, and so is everything that this program writes afterwards.
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
    """The adapter's package is not installed there."""


class ModuleOutsidePackage(Exception):
    """The adapter's module is not one of its package."""


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
        _require(package, import_path)
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
        text = json.dumps({"error": _described(failed)})
    _leave(answers, text.encode("utf-8", "backslashreplace"), 0 if failed is None else 1)


def _packages(directory: str) -> str:
    """A virtual environment has its packages two folders further down."""
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    inner = os.path.join(directory, "lib", version, "site-packages")
    return inner if os.path.isdir(inner) else directory


def _require(package: str, import_path: str) -> None:
    """Raise unless the package is there and the module is one of it."""
    name = package.replace("-", "_")
    present = importlib.util.find_spec(name.partition(".")[0]) is not None
    if present and f"{import_path}.".startswith(f"{name}."):
        return
    from importlib import metadata  # of a package whose module has another name

    try:
        files = metadata.distribution(package).files or []
    except metadata.PackageNotFoundError:
        if not present:
            message = f"{package} is not in {sys.path[0]} and not in the standard library"
            raise PackageNotFound(message) from None
        files = []
    place = import_path.replace(".", "/")
    if not any(str(file).startswith((f"{place}.", f"{place}/")) for file in files):
        raise ModuleOutsidePackage(f"{import_path} is no module of the package {package}")


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


def _described(error: BaseException) -> dict[str, str]:
    """The exception as data and, as Python does, on stderr."""
    import traceback

    traceback.print_exception(error)
    return {"type": type(error).__name__, "message": str(error)}


def _leave(answers: int, text: bytes, code: int) -> None:
    """Flush and exit as the interpreter does, without tearing down its objects."""
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
