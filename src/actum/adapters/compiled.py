"""Go and Rust functions: compiled inside the sandbox, offline, from the tool's own sources.

Compiling is an execution like any other (operation `COMPILE`), with limits and a receipt of its
own; its one artifact is the program, which is kept by the digest of everything that went into it
(`program_key`). Running it is another execution, in which the program is a provided file.
"""

from __future__ import annotations

import json
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
    """(program, arguments, provided files) of a call; the compiled program must be there."""
    if entry.program is None:
        raise Refused(
            "PROGRAM_MISSING",
            f"Adapter {entry.adapter.adapter_id} was not compiled.",
            remedy=f"`actum exec {entry.tool.name}:{COMPILE}` compiles it.",
        )
    # Started by `env`, which replaces itself: what is provided has no file on the host.
    return "env", (f"{PROVIDED}/{PROGRAM}",), {PROGRAM: entry.program}


def program_key(entry: Entry, toolchain: Executable) -> str:
    """Digest of sources, driver and compiler: the same key means the same program."""
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
    provided = {f"source/{path}": content for path, content in sources.items()}
    # Their names were judged by the language's own rules when the adapter was loaded.
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


def _quoted(text: Json) -> str:
    """A string literal of Go and of Rust alike: operation names are plain ASCII."""
    return json.dumps(text)


def _fixed(value: str) -> Argument:
    return Argument(value=value, field=_FIELD, fixed=True)


@cache
def _text(name: str) -> str:
    return (Path(__file__).parent / "drivers" / name).read_text()
