"""Every example of every page runs as a reader would run it, in the order of the page.

A page has one folder and one shell. Transcripts are typed into the shell and their output is
compared; Python is run as a program where the shell is; YAML and TOML are files that later commands
use, or fragments that must be valid. A block that cannot run here says so in a comment of the page:
`blocks` has the forms.
"""

from __future__ import annotations

import json
import os
import re
import socket
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from actum.documents.document import load_document
from actum.documents.json_schema import check
from actum.settings_file import read_settings

from .blocks import Block, blocks_of
from .shell import Shell
from .transcripts import Names, steps_of

ROOT = Path(__file__).resolve().parents[2]
#: Quoted texts of others.
_QUOTED = {"docs/requirements.md"}


def _pages() -> Iterator[str]:
    found = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.md")]
    for path in sorted(found):
        name = str(path.relative_to(ROOT))
        if name not in _QUOTED and "```" in path.read_text():
            yield name


PAGES = list(_pages())


def test_pages_are_found() -> None:
    assert {"README.md", "docs/quickstart.md", "examples/api/README.md"} <= set(PAGES)


@pytest.mark.sandbox
@pytest.mark.parametrize("name", PAGES)
def test_the_examples_of_a_page_run(name: str, tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    try:
        for block in blocks_of(ROOT / name, name):
            reader.follow(block)
    finally:
        reader.close()


class Reader:
    """Someone who follows a page."""

    def __init__(self, folder: Path) -> None:
        self._home = folder / "home"
        self._home.mkdir(mode=0o700)
        start = folder / "t"
        start.mkdir()
        places = {"/tmp/t": str(start), "path/to/": f"{ROOT}/", "8765": _free_port()}
        self._names = Names(places=places)
        self._shell = Shell(start, self._environment())
        self._printed = ""  #: by the block before

    def _environment(self) -> dict[str, str]:
        kept = {
            name: os.environ[name] for name in ("LANG", "USER", "LOGNAME") if name in os.environ
        }
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        return {
            **kept,
            "PATH": path,
            "HOME": str(self._home),
            "CHECKOUT": str(ROOT),
            "PYTHONUNBUFFERED": "1",
        }

    def close(self) -> None:
        self._shell.close()

    def follow(self, block: Block) -> None:
        match block.remark:
            case "not run":
                assert block.rest, f"{block.where}: say why it is not run"
            case "file":
                self._file(block.rest).write_text(block.text)
            case "append":
                with self._file(block.rest).open("a") as file:
                    file.write(block.text)
            case "output":
                missing = self._names.missing(tuple(block.text.splitlines()), self._printed)
                assert missing is None, f"{block.where}: {missing!r} is not in:\n{self._printed}"
            case _ if block.is_transcript:
                self._transcript(block)
            case _ if block.kind == "python":
                self._python(block)
            case _:
                _validate(block, self._home.parent)

    def _file(self, name: str) -> Path:
        path = self._shell.folder() / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def _transcript(self, block: Block) -> None:
        for step in steps_of(block.text):
            where = f"{block.page}:{block.line + step.line}: $ {step.command}"
            command = self._names.real(step.command)
            assert "…" not in command, f"{where}\nthis cannot be typed"
            code, self._printed = self._shell.run(command)
            missing = self._names.missing(step.expected, self._printed)
            assert missing is None, f"{where}\nis not in the output: {missing}\n{self._printed}"
            # A reader who sees no output expects success.
            assert code == 0 or step.expected, f"{where}\nexit code {code}\n{self._printed}"

    def _python(self, block: Block) -> None:
        program = self._home / "example.py"
        program.write_text(block.given + block.text)
        code, self._printed = self._shell.run(f"{sys.executable} -P {program}")
        assert code == 0, f"{block.where}: exit code {code}\n{self._printed}"
        missing = missing_comment(block.text, self._printed)
        assert missing is None, f"{block.where}: {missing!r} is not printed:\n{self._printed}"


def _free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return str(server.getsockname()[1])


def missing_comment(program: str, printed: str) -> str | None:
    """The first comment behind a `print` that is not what was printed, in order.

    Behind a value a comment may go on: `# 2: the session goes on`.
    """
    lines = iter(printed.splitlines())
    for comment in re.findall(r"^ *print\(.*\)  # (.+)$", program, re.MULTILINE):
        if not any(
            comment == line or (line and comment.startswith(tuple(f"{line}{end}" for end in ":;,")))
            for line in lines
        ):
            return str(comment)
    return None


def test_a_comment_behind_print_is_its_output() -> None:
    program = "print(1)  # 1: one\nprint(2)  # 2\n"
    assert missing_comment(program, "1\n2\n") is None
    assert missing_comment(program, "1\n3\n") == "2"
    assert missing_comment(program, "2\n1\n") == "2"


def _validate(block: Block, folder: Path) -> None:
    """A block that is no program and no file: data that must be valid where Actum reads it."""
    match block.kind:
        case "yaml":
            problems = _misfits(block.text)
            assert not problems, f"{block.where}: {problems}"
        case "toml":
            project = folder / f"settings-{block.line}"
            project.mkdir()
            (project / "actum.toml").write_text(block.text)
            read_settings(project)
        case "json":
            text = block.text.strip()
            json.loads(text if text.startswith(("{", "[")) else f"{{{text}}}")  # or some members
        case "" | "text":
            pass
        case _:
            raise AssertionError(f"{block.where}: nothing runs {block.kind!r}")


def _misfits(text: str) -> dict[str, Any]:
    """Why the fragment is of no contract, tool or adapter; {} if it is of one."""
    document = load_document(text)
    found = {}
    for name in (
        "contract/schemas/execution-contract",
        "registry/schemas/tool",
        "registry/schemas/adapter",
    ):
        file = ROOT / f"src/actum/{name}.json"
        problems = check(document, _partial(json.loads(file.read_text())))
        if not problems:
            return {}
        found[file.stem] = [str(each) for each in problems]
    return found


def _partial(schema: Any) -> Any:
    """The schema for a part of a document: nothing is missing."""
    if isinstance(schema, dict):
        dropped = ("required", "minProperties", "if", "then", "else", "allOf", "dependentRequired")
        return {
            "anyOf" if key == "oneOf" else key: _partial(value)
            for key, value in schema.items()
            if key not in dropped or not isinstance(value, (list, int, dict)) or key == "properties"
        }
    return [_partial(each) for each in schema] if isinstance(schema, list) else schema


def test_a_fragment_with_an_unknown_field_is_no_fragment() -> None:
    assert _misfits("sandbox:\n  memory_mb: 128\n") == {}
    assert _misfits("sandbox:\n  memory: 128\n")


def test_settings_in_a_page_are_settings(tmp_path: Path) -> None:
    _validate(Block("p.md", 1, "toml", "[runners]\nlocal = true\n"), tmp_path)
    with pytest.raises(Exception, match="runner"):
        _validate(Block("p.md", 2, "toml", "[runner]\nlocal = true\n"), tmp_path)
    with pytest.raises(tomllib.TOMLDecodeError):
        tomllib.loads("[runners")
