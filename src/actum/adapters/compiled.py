"""Go and Rust functions: compiled inside the sandbox, offline, from the tool's own sources.

Compiling is an execution like any other (operation `COMPILE`), with its own limits and receipt;
its one artifact is the program, cached by the digest of all its inputs (`program_key`). Running
it is another execution, in which the program is a provided file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from actum.contract.call import PROVIDED, Argument, Executable
from actum.contract.canonical import sha256_bytes, sha256_json
from actum.contract.model import Json
from actum.errors import Refused
from actum.registry.model import COMPILE, Entry
from actum.registry.pinned_files import pinned_files

LANGUAGES: Mapping[str, str] = {"go": "go", "rust": "rustc"}  #: language -> its compiler
PROGRAM = "program"  #: the artifact of a compilation

_FIELD = "interface.sdk"


def compiling(entry: Entry) -> tuple[str, tuple[Argument, ...], dict[str, bytes]]:
    """(program, arguments, provided files) of the execution that compiles."""
    provided = _ingredients(entry)
    return "sh", (_fixed(f"{PROVIDED}/compile.sh"), *map(_fixed, _words(entry))), provided


def running(entry: Entry) -> tuple[str, tuple[str, ...], dict[str, bytes]]:
    """(program, arguments, provided files) of a call; the compiled program must exist."""
    if entry.program is None:
        raise Refused(
            "PROGRAM_MISSING",
            f"Adapter {entry.adapter.adapter_id} was not compiled.",
            remedy=f"`actum exec {entry.tool.name}:{COMPILE}` compiles it.",
        )
    # Started through `env`, which executes it: a provided file is not on the host.
    return "env", (f"{PROVIDED}/{PROGRAM}",), {PROGRAM: entry.program}


def program_key(entry: Entry, toolchain: Executable) -> str:
    """Digest of sources, driver and compiler: equal keys mean equal programs."""
    files = {name: sha256_bytes(content) for name, content in _ingredients(entry).items()}
    return sha256_json({"files": files, "words": _words(entry), "toolchain": toolchain.sha256})


def _words(entry: Entry) -> list[str]:
    return [entry.adapter.interface["package"]]


def _ingredients(entry: Entry) -> dict[str, bytes]:
    sdk = entry.adapter.interface
    sources = pinned_files(entry, entry.tool.packages_folder)
    if not sources or entry.tool.packages_path is not None:
        raise Refused(
            "SOURCES_MISSING",
            f"Adapter {entry.adapter.adapter_id} is written in {sdk['language']}, and the folder "
            f"{entry.tool.packages_folder}/ of {entry.tool.name} holds no sources.",
            remedy="Put them there: they are approved with the tool.",
        )
    _require_package(entry, sources)
    provided = {f"source/{path}": content for path, content in sources.items()}
    # The names were checked by the language's rules when the adapter was loaded.
    mapping: Mapping[str, str] = sdk["function_mapping"]
    if sdk["language"] == "go":
        lines = "".join(f"\t{_quoted(op)}: wrap(tool.{name}),\n" for op, name in mapping.items())
        main = _text("sdk_go.txt").replace("@IMPORT@", _quoted(sdk["import_path"]))
        provided["main.go"] = main.replace("@OPERATIONS@", lines).encode()
        provided["compile.sh"] = _text("compile_go.sh").encode()
        return provided
    lines = "".join(
        f"        {_quoted(op)} => call({sdk['import_path']}::{name}, parameters),\n"
        for op, name in mapping.items()
    )
    provided["main.rs"] = _text("sdk_rust.txt").replace("@OPERATIONS@", lines).encode()
    provided["json.rs"] = _text("sdk_rust_json.txt").encode()
    provided["compile.sh"] = _text("compile_rust.sh").encode()
    return provided


#: language -> the file in which sources name their own package, and the line that does it
_MANIFESTS = {
    "go": ("go.mod", re.compile(rb'^module\s+"?([^\s"]+)', re.MULTILINE)),
    "rust": ("Cargo.toml", re.compile(rb'^name\s*=\s*"([^"]+)"', re.MULTILINE)),
}


def _require_package(entry: Entry, sources: Mapping[str, bytes]) -> None:
    """Refuse sources that name another package than the adapter. Sources without such a file get
    the adapter's name when they are compiled."""
    sdk = entry.adapter.interface
    file, line = _MANIFESTS[sdk["language"]]
    names = [name.decode(errors="replace") for name in line.findall(sources.get(file, b""))]
    # Cargo names a crate with underscores, and may have several names: package, library, programs.
    if names and sdk["package"] not in [*names, *(name.replace("-", "_") for name in names)]:
        raise Refused(
            "PACKAGE_MISMATCH",
            f"interface.sdk.package of {entry.adapter.adapter_id} is {sdk['package']}, and"
            f" {entry.tool.packages_folder}/{file} names {', '.join(names)}.",
            remedy="Make the two equal and have the tool approved again.",
        )


def _quoted(text: Json) -> str:
    """A string literal in both Go and Rust: operation names are plain ASCII."""
    return json.dumps(text)


def _fixed(value: str) -> Argument:
    return Argument(value=value, field=_FIELD, fixed=True)


@cache
def _text(name: str) -> str:
    return (Path(__file__).parent / "drivers" / name).read_text()
