"""What a git configuration says and names, compared with what git itself reads."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

from actum.policy.git_config import NotGitConfig, Setting, named_by, parse

TEXTS = [
    "[core]\n\tbare = false\n",
    "\ufeff[core]\r\n\tbare = false\r\n",
    "[core] bare = true\n[user]name=x",
    '[branch "a.b \\" c \\\\"]\n\tx = y\n',
    "[Core.Sub.Part]\n KEY-1 = v\n",
    '[a]\n x = one  two ; comment\n y = " kept " # c\n z = a"b c"d\n',
    '[a]\n x = one \\\n  two\n y = \\t\\n\\b\\\\\\"\n',
    "[a]\n flag\n empty =\n",
    "x = 1\n",
    "; only\n# comments\n",
    "",
]
BAD = [
    "[a]\n flag ; comment\n",
    "[core\n",
    "[core]\n = 1\n",
    "[core]\n 1a = 1\n",
    '[core]\n a = "open\n',
    "[core]\n a = \\q\n",
    '[core "x]\n',
    "[co re]\n",
    "[core]\n a b = c\n",
    '[core"x"]\n',
]


def _git(text: str, folder: Path) -> list[tuple[str, str]] | None:
    """The entries as git lists them; ``None`` if it takes no such file."""
    file = folder / "config"
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    done = subprocess.run(
        ["git", "config", "--no-includes", "--null", "--list", "--file", file],
        capture_output=True,
        cwd=folder,
        check=False,
    )
    if done.returncode:
        return None
    found = []
    for entry in done.stdout.decode("utf-8", "surrogateescape").split("\0")[:-1]:
        name, separator, value = entry.partition("\n")
        found.append((name, value if separator else "true"))
    return found


def _ours(text: str) -> list[tuple[str, str]] | None:
    try:
        settings = parse(text)
    except NotGitConfig:
        return None
    return [
        (".".join(filter(None, (each.section, each.subsection, each.key))), each.value)
        for each in settings
    ]


@pytest.mark.parametrize("text", TEXTS)
def test_it_is_read_as_git_reads_it(text: str, tmp_path: Path) -> None:
    assert _git(text, tmp_path) is not None
    assert _ours(text) == _git(text, tmp_path)


@pytest.mark.parametrize("text", BAD)
def test_what_git_refuses_is_refused(text: str, tmp_path: Path) -> None:
    assert _git(text, tmp_path) is None
    assert _ours(text) is None


def test_random_texts_are_never_read_with_less_than_git_finds(tmp_path: Path) -> None:
    """A text that only we refuse closes its work tree, which is safe. The other way is not."""
    pieces = ['"', "\\", "\n", " ", "\t", "=", "#", ";", "[", "]", "a", "b.c", "core", "[x]\n", "-"]
    chance = random.Random(7)
    taken = 0
    for _ in range(300):
        text = "[core]\n" + "".join(chance.choices(pieces, k=chance.randrange(1, 14)))
        ours, gits = _ours(text), _git(text, tmp_path)
        if ours is not None and gits is not None:
            taken += 1
            assert ours == gits, text
        assert gits is None or ours is not None, text
    assert taken > 30


def _named(name: str, value: str) -> tuple[set[str], set[str], set[str]]:
    section, _, rest = name.partition(".")
    subsection, _, key = rest.rpartition(".")
    found = named_by(Setting(section, subsection, key, value))
    return set(found.whole), set(found.files), set(found.ends)


@pytest.mark.parametrize(
    ("name", "value", "path"),
    [
        ("core.hookspath", ".husky/_", ".husky/_"),
        ("core.hookspath", "my hooks", "my hooks"),
        ("include.path", "../shared/config", "../shared/config"),
        ("includeif.onbranch:x.path", "c", "c"),
        ("filter.x.clean", "./clean.sh %f", "./clean.sh"),
        ("filter.x.process", "python3 tools/filter.py --fast", "tools/filter.py"),
        ("diff.x.textconv", "sh -c 'tools/show \"$0\"'", "tools/show"),
        ("merge.x.driver", '"my tools/merge" %A %B', "my tools/merge"),
        ("core.fsmonitor", ".git-monitor/run", ".git-monitor/run"),
        ("core.sshcommand", "ssh -F ./ssh.config", "./ssh.config"),
        ("core.askpass", "my dir/ask", "my dir/ask"),
        ("alias.lint", "!FILES=./x; tools/lint", "tools/lint"),
        ("alias.odd", "-c core.fsmonitor=./x status", "./x"),
        ("credential.helper", "!./helper", "./helper"),
        ("credential.https://host.helper", "/p/helper", "/p/helper"),
        ("gpg.ssh.program", "bin/sign", "bin/sign"),
        ("submodule.x.update", "!./evil", "./evil"),
        ("remote.x.url", "ext::./evil", "./evil"),
        ("lfs.customtransfer.x.path", "tools/transfer", "tools/transfer"),
        ("alias.all", "!run-parts .hooks/*", ".hooks"),
        ("alias.var", "!sh scripts/$1", "scripts"),
        ("alias.home", "!$HOME/p/run", "~/p/run"),
    ],
)
def test_a_path_in_a_value_is_named(name: str, value: str, path: str) -> None:
    assert path in _named(name, value)[0]


def test_a_word_may_be_a_file_and_is_no_folder() -> None:
    whole, files, _ends = _named("alias.test", "!make test && python check.py")
    assert whole == set()
    assert {"make", "test", "check.py"} <= files


def test_what_follows_an_expansion_is_a_part_of_a_path() -> None:
    for value in (
        '!"$(git rev-parse --show-toplevel)/hooks/run.sh" "$@"',
        "!`git rev-parse --show-toplevel`/hooks/run.sh",
        "!$ROOT/hooks/run.sh",
    ):
        assert "/hooks/run.sh" in _named("alias.x", value)[2], value


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("core.worktree", "../../../sub"),
        ("core.excludesfile", "config/ignored"),
        ("remote.origin.url", "../other/repository"),
        ("remote.origin.fetch", "+refs/heads/*:refs/remotes/origin/*"),
        ("branch.main.merge", "refs/heads/main"),
        ("safe.directory", "/p/sub"),
        ("diff.x.xfuncname", "^(class|def)/x.*$"),
        ("user.name", "a/b"),
        ("alias.co", "checkout"),
    ],
)
def test_what_executes_nothing_names_nothing(name: str, value: str) -> None:
    assert _named(name, value) == (set(), set(), set())
