"""Build hook of the package: compiles its native parts from the C sources.

Hatchling runs the hook for every wheel. A wheel carries the binaries and is tagged for its
platform. An editable install has them in the source tree; `python hatch_build.py` compiles them
there again. Equal sources and equal compilers give equal bytes, wherever the checkout is.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).resolve().parent
#: The binaries use no part of Python's ABI; they use the system calls of one kernel and machine.
TAG = "py3-none-linux_x86_64"
#: Debian's packages with both compilers, their headers and the linker.
PACKAGES = "gcc libc6-dev musl-tools"


class Native(NamedTuple):
    """A native part: one binary, compiled by one command."""

    file: str  #: the binary, relative to `src/`
    compiler: str
    flags: tuple[str, ...]
    folder: str  #: of the sources, relative to `src/`
    sources: str  #: pattern within `folder`


#: The init of every sandbox, a static program.
INIT = Native(
    file="actum/sandbox/jail-x86_64",
    compiler="musl-gcc",
    flags=(
        *("-std=c11", "-Os", "-static", "-no-pie", "-fstack-protector-strong"),
        *("-fno-asynchronous-unwind-tables", "-fcf-protection=none", "-Wall", "-Wextra"),
        *("-Wdate-time", "-s", "-Wl,--build-id=none,-z,noexecstack,-z,relro,-z,now"),
    ),
    folder="actum/sandbox/jail",
    sources="*.c",
)
#: The library that tools at determinism level D2 are preloaded with.
DETERMINISM = Native(
    file="actum/determinism/steady-x86_64.so",
    compiler="gcc",
    flags=(
        *("-O2", "-fPIC", "-shared", "-nostdlib", "-ffreestanding", "-fvisibility=hidden"),
        *("-fno-stack-protector", "-fno-builtin", "-fno-asynchronous-unwind-tables"),
        *("-fcf-protection=none", "-Wall", "-Wextra", "-Wdate-time", "-s"),
        "-Wl,--build-id=none,-z,norelro,-z,noseparate-code,--hash-style=gnu",
    ),
    folder="actum/determinism",
    sources="steady.c",
)
NATIVE = (INIT, DETERMINISM)


class CannotBuild(Exception):
    """The native parts cannot be compiled here; the message says what to do."""


def compile_native(source: Path, target: Path, extra_flags: Sequence[str] = ()) -> None:
    """Compile every native part of the tree `source` (a `src/`) at the same path in `target`."""
    _require_platform()
    for native in NATIVE:
        _require(native.compiler)
    for native in NATIVE:
        _compile(native, source, target / native.file, extra_flags)


def _require_platform() -> None:
    system, machine = platform.system(), platform.machine()
    if (system, machine) != ("Linux", "x86_64"):
        raise CannotBuild(
            f"This is {system} on {machine}, and Actum runs on Linux on x86-64:"
            " its sandbox uses the system calls of that platform.\n"
            "Install Actum on an x86-64 machine, or in an x86-64 virtual machine on this one."
        )


def _require(compiler: str) -> None:
    if shutil.which(compiler) is None:
        raise CannotBuild(
            f"`{compiler}` was not found, and Actum compiles its native parts from source.\n"
            f"Debian and Ubuntu: apt-get install {PACKAGES}\n"
            "Other distributions: install gcc, and musl with its `musl-gcc`.\n"
            "A wheel of Actum needs no compiler: build it on another x86-64 machine with"
            " `pip wheel --no-deps .` and install that."
        )


def _compile(native: Native, source: Path, binary: Path, extra_flags: Sequence[str]) -> None:
    folder = source / native.folder
    # Names relative to the sources, sorted: no path of the checkout gets into the binary.
    names = sorted(path.name for path in folder.glob(native.sources))
    binary.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="actum-build-", dir=binary.parent) as scratch:
        made = Path(scratch).resolve() / binary.name
        done = subprocess.run(
            [native.compiler, *native.flags, *extra_flags, "-o", str(made), *names],
            cwd=folder,
            env=_environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise CannotBuild(
                f"`{native.compiler}` could not compile {native.folder}:\n{done.stderr.strip()}\n"
                "If a header or the linker is missing, on Debian and Ubuntu:"
                f" apt-get install {PACKAGES}"
            )
        made.chmod(0o644)
        # Replace the file: a process that has the old one open still has it whole.
        made.replace(binary)


def _environment() -> dict[str, str]:
    """The environment without variables that change a compiler's defaults, such as CPATH."""
    kept = {name: os.environ[name] for name in ("PATH", "TMPDIR") if name in os.environ}
    return {**kept, "LC_ALL": "C"}


class NativeHook(BuildHookInterface[Any]):
    """Hatchling's side: compiles into the tree for an editable install, else into the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        source = Path(self.root) / "src"
        target = source
        if version != "editable":
            self._scratch = tempfile.TemporaryDirectory(prefix="actum-wheel-")
            target = Path(self._scratch.name)
        try:
            compile_native(source, target)
        except CannotBuild as error:
            self.app.abort(f"\n{error}\n")
        build_data["pure_python"] = False
        build_data["tag"] = TAG
        if version != "editable":
            binaries = {str(target / native.file): native.file for native in NATIVE}
            build_data["force_include"].update(binaries)

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        del build_data, artifact_path
        if version != "editable":
            self._scratch.cleanup()


if __name__ == "__main__":
    try:
        compile_native(ROOT / "src", ROOT / "src")
    except CannotBuild as error:
        sys.exit(str(error))
