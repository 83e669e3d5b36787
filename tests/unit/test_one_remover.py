"""One module removes trees. This reads every line of the source for a second one.

What removes is found by name, in any module and under any alias. The list says which module may
use which of them, and why none of them can take more than one name with it.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import actum

SOURCE = Path(actum.__file__).parent

#: Functions that remove or move a whole tree, or a folder.
_CALLS = {
    *("rmtree", "move", "removedirs", "renames", "rmdir", "copytree"),
    *("TemporaryDirectory", "rmtree_unsafe"),
}
#: Words of a shell, should one be written anywhere.
_WORDS = ("rm -r", "rm -f", "rm -- ", "find . -delete", "worktree remove")

#: File -> what it may use. Each line is a decision; `rmdir` takes an empty folder only.
ALLOWED: dict[str, set[str]] = {
    "removal.py": {"rmdir"},
    # One step of a commit: an empty folder of the workspace that the delta says is gone.
    "workspace/commit.py": {"rmdir"},
    # An empty mount point in a copy, whose place the one of a waiting container takes.
    "runners/container/copies_ahead.py": {"rmdir"},
    # The folder of all throwaway homes, once it is empty.
    "sandbox/sweep.py": {"rmdir"},
    # Control groups: the kernel's own folders, which hold no files of anybody.
    "sandbox/cgroup.py": {"rmdir"},
    "sandbox/cgroup_v1.py": {"rmdir"},
    "sandbox/cgroup_v2.py": {"rmdir"},
    "sandbox/delegate.py": {"rmdir"},
}


def _used(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(attr=name) if name in _CALLS:
                yield name
            case ast.Name(id=name) if name in _CALLS:
                yield name
            case ast.ImportFrom(names=names):
                yield from (alias.name for alias in names if alias.name in _CALLS)
            case ast.Constant(value=str(text)):
                yield from (word for word in _WORDS if word in text)
                # getattr(shutil, "rmtree")
                if text in _CALLS - {"move"}:
                    yield text


def _sources() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


def test_no_other_module_removes_a_tree() -> None:
    found = {
        str(path.relative_to(SOURCE)): used
        for path in _sources()
        if (used := set(_used(ast.parse(path.read_text()))))
    }
    assert found == ALLOWED


@pytest.mark.parametrize(
    "source",
    [
        "import shutil\nshutil.rmtree(x)",
        "from shutil import rmtree as gone\ngone(x)",
        "import tempfile\nwith tempfile.TemporaryDirectory() as x: pass",
        "import os\ngetattr(os, 'removedirs')(x)",
        "SCRIPT = 'trap \"rm -rf $PLACE\" EXIT'",
        "path.rmdir()",
    ],
)
def test_control_a_second_remover_is_found(source: str) -> None:
    assert set(_used(ast.parse(source)))


def test_the_list_is_about_files_that_are_there() -> None:
    assert {str(path.relative_to(SOURCE)) for path in _sources()} >= ALLOWED.keys()
