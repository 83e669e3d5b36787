"""Trees of files for these tests: strategies, and a tree as a value that is compared."""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from typing import TypeAlias

from hypothesis import strategies as st

#: A file (content, mode), a link (target), or a folder (entries, mode).
Node: TypeAlias = "tuple[bytes, int] | bytes | tuple[Mapping[bytes, Node], int]"

#: Hypothesis tries words of the source, too.
_NOT_HERE = (b".", b"..", b".git", b".actum", b".actum-removable")
_names = st.binary(min_size=1, max_size=8).filter(
    lambda name: not {b"/"[0], 0} & set(name) and name not in _NOT_HERE
)
_modes = st.sampled_from([0o644, 0o755, 0o600, 0o444, 0o000, 0o777, 0o200])
_folder_modes = st.sampled_from([0o755, 0o700, 0o555, 0o000, 0o777, 0o300])
#: Contents that are objects of their own; they stand for themselves in a tree.
_LARGE = {b"LARGE %d" % number: b"%d" % number * 70_000 for number in range(2)}
_SHORT = {content: name for name, content in _LARGE.items()}
_contents = st.one_of(st.binary(max_size=50), st.sampled_from([b"", b"same", *_LARGE]))
_targets = st.one_of(
    st.sampled_from([b"/etc/passwd", b"../../..", b"missing", b"."]),
    st.binary(min_size=1, max_size=20).filter(lambda target: 0 not in target),
)
_leaves = st.one_of(st.tuples(_contents, _modes), _targets)
_inner = st.recursive(
    _leaves,
    lambda below: st.tuples(st.dictionaries(_names, below, max_size=4), _folder_modes),
    max_leaves=8,
)
trees = st.tuples(st.dictionaries(_names, _inner, max_size=5), st.sampled_from([0o755, 0o700]))


def write(node: Node, path: bytes) -> None:
    """Make a node at a path; the folder of a whole tree may exist and be empty."""
    match node:
        case bytes(target):
            os.symlink(target, path)
        case bytes(content), int(mode):
            with open(path, "wb") as file:
                file.write(_LARGE.get(content, content))
            os.chmod(path, mode)
        case entries, int(mode):
            os.makedirs(path, exist_ok=True)
            for name, below in entries.items():  # type: ignore[union-attr]  # a mapping
                write(below, path + b"/" + name)
            os.chmod(path, mode)


def read(path: bytes) -> Node:
    """What is at a path. As an ordinary user this opens what its mode closes, and closes it."""
    found = os.lstat(path)
    mode = stat.S_IMODE(found.st_mode)
    if stat.S_ISLNK(found.st_mode):
        return os.readlink(path)
    closed = os.geteuid() != 0 and mode & 0o700 != 0o700
    if closed:
        os.chmod(path, mode | 0o700)
    try:
        if stat.S_ISREG(found.st_mode):
            with open(path, "rb") as file:
                content = file.read()
                return _SHORT.get(content, content), mode
        assert stat.S_ISDIR(found.st_mode), path
        return {name: read(path + b"/" + name) for name in os.listdir(path)}, mode
    finally:
        if closed:
            os.chmod(path, mode)


def is_readable(node: Node) -> bool:
    """Whether an ordinary user can read all of it."""
    match node:
        case bytes():
            return True
        case bytes(), int(mode):
            return bool(mode & 0o400)
        case entries, int(mode):
            below = entries.values()  # type: ignore[union-attr]  # a mapping
            return mode & 0o500 == 0o500 and all(map(is_readable, below))
    raise AssertionError(node)
