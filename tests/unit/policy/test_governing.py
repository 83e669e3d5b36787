"""Which changed paths a person has to decide about."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import pytest

from actum.policy.governing import Touched, held_back

NAMES = (".vscode", ".envrc", ".github/workflows")
PARTS = ("HEAD", "objects", "refs")


def held(
    *changed: bytes | Touched, root: str = "/p", there: Collection[bytes] = (), names: Iterable = ()
) -> list[bytes]:
    touched = [each if isinstance(each, Touched) else Touched(each) for each in changed]
    return list(held_back(touched, root, names or NAMES, lambda path: path in there))


HELD = {
    "settings": b"/p/actum.toml",
    "below a governing name": b"/p/tools/x/tool.yaml",
    "a home": b"/p/sub/.actum/key",
    "protected": b"/p/a/.vscode/tasks.json",
    "protected, of two parts": b"/p/a/.github/workflows/ci.yml",
    "a .git": b"/p/.git",
    "a hook": b"/p/.git/hooks/pre-commit",
    "the configuration": b"/p/a/b/.git/config",
    "attributes": b"/p/.git/info/attributes",
    "a module": b"/p/.git/modules/x",
    "a module's hook": b"/p/.git/modules/a/b/hooks/x",
    "a worktree's common directory": b"/p/.git/worktrees/w/commondir",
    "a .git in a .git": b"/p/.git/x/.git/hooks/y",
    "written otherwise, for a file system that ignores case": b"/p/.GIT/Hooks/x",
    "with a character that shows nothing": "/p/.g\u200cit/config".encode(),
    "with a variation selector": "/p/.git\ufe0f/config".encode(),
    "a name that is no text": b"/p/\xff/.git/hooks/x",
}
NOT_HELD = {
    "a file": b"/p/src/main.py",
    "a governing name elsewhere": b"/p/src/tools/x",
    "an everyday name that differs in case": b"/p/Tools/x",
    "the first part of a protected name": b"/p/.github/issue.md",
    "parts in the wrong order": b"/p/workflows/.github/x",
    "a branch": b"/p/.git/refs/heads/config",
    "an object": b"/p/.git/objects/00/11",
    "the index": b"/p/.git/index",
    "a name like it": b"/p/.gitignore",
    "a name with an accent": "/p/.gít/config".encode(),
}


@pytest.mark.parametrize("what", HELD)
def test_it_is_held(what: str) -> None:
    assert held(HELD[what]) == [HELD[what]]


@pytest.mark.parametrize("what", NOT_HELD)
def test_it_is_not_held(what: str) -> None:
    assert held(NOT_HELD[what]) == []


def test_what_is_above_the_project_decides_nothing() -> None:
    inside = b"/home/.vscode/.git/hooks/p/file"
    assert held(inside, root="/home/.vscode/.git/hooks/p") == []
    assert held(b"/home/.vscode/.git/hooks/p", root="/home/.vscode/.git/hooks/p") == []
    assert held(inside, root="/elsewhere") == [inside]


def test_a_protected_name_may_begin_above_the_project() -> None:
    path = b"/repo/.github/workflows/ci.yml"
    assert held(path, root="/repo/.github") == [path]


def test_a_link_in_the_place_of_a_folder_is_held_and_a_file_is_not() -> None:
    assert held(Touched(b"/p/.github", link=True)) == [b"/p/.github"]
    assert held(Touched(b"/p/.github")) == []


def test_a_missing_part_of_a_git_directory_is_held_and_a_new_one_is_not() -> None:
    for part in PARTS:
        path = f"/p/.git/{part}".encode()
        assert held(Touched(path, removed=True)) == [path]
        assert held(path) == []


def test_another_project_is_governed_like_this_one() -> None:
    path = b"/p/inner/tools/x/tool.yaml"
    assert held(path) == []
    assert held(path, there={b"/p/inner/.actum"}) == [path]


@pytest.mark.parametrize("last", PARTS)
def test_the_name_that_completes_a_repository_is_held(last: str) -> None:
    there = {f"/p/data/{part}".encode() for part in PARTS if part != last}
    path = f"/p/data/{last}".encode()
    assert held(path, b"/p/data/x", there=there) == [path]
    assert held(path, there=set(sorted(there)[:1])) == []


def test_a_git_directory_may_name_another_one_for_its_objects() -> None:
    assert held(b"/p/x/HEAD", b"/p/x/commondir", b"/p/x/index") == [
        b"/p/x/HEAD",
        b"/p/x/commondir",
    ]


def test_in_a_repository_that_exists_only_what_git_executes_is_held() -> None:
    there = {f"/p/bare/{part}".encode() for part in PARTS}
    changed = (b"/p/bare/HEAD", b"/p/bare/refs/heads/x", b"/p/bare/config", b"/p/bare/hooks/update")
    assert held(*changed, there=there) == [b"/p/bare/config", b"/p/bare/hooks/update"]
    # Removed as a whole, it executes nothing any more.
    gone = [Touched(path, removed=True) for path in (*there, b"/p/bare/config", b"/p/bare")]
    assert held(*gone, there=there) == []


def test_a_project_in_a_bare_repository_does_not_change_its_hooks() -> None:
    there = {f"/srv/bare/{part}".encode() for part in PARTS}
    path = b"/srv/bare/hooks/p/x"
    assert held(path, root="/srv/bare/hooks/p", there=there) == [path]


class _WithoutCase(set[bytes]):
    """The names of a file system that ignores case."""

    def __contains__(self, path: object) -> bool:
        return isinstance(path, bytes) and path.lower() in {each.lower() for each in self}


@pytest.mark.parametrize("name", [b"/p/Agents/a.yaml", b"/p/TOOLS.lock", b"/p/Actum.Toml"])
def test_where_case_makes_no_name_a_project_is_governed_by_any_spelling(name: bytes) -> None:
    there = {b"/p/actum.toml", b"/p/.actum"}
    assert held(name, there=_WithoutCase(there)) == [name]
    assert held(name, there=there) == []


def test_where_case_makes_no_name_a_repository_is_completed_by_any_spelling() -> None:
    parts = [b"/p/b/head", b"/p/b/Objects", b"/p/b/REFS", b"/p/b/config"]
    there = {b"/p/actum.toml", b"/p/.actum"}
    assert held(*parts, there=_WithoutCase(there)) == parts
    assert held(*parts, there=there) == []


def test_each_folder_is_looked_at_once() -> None:
    """A tool can nest folders deeper than Python can call functions."""
    paths = [b"/p" + b"/d" * depth for depth in range(1, 1_900)]
    looks: list[bytes] = []

    def exists(path: bytes) -> bool:
        looks.append(path)
        return False

    last = paths[-1] + b"/.envrc"
    assert list(held_back(map(Touched, [*paths, last]), "/p", NAMES, exists)) == [last]
    assert len(looks) == len(set(looks))
    assert len(looks) < 2 * len(paths)


def test_where_it_cannot_be_told_a_folder_counts_as_a_repository() -> None:
    config = b"/p/long/config"
    assert list(held_back([Touched(config)], "/p", (), lambda _path: None)) == [config]
