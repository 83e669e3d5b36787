"""What governs is compared by content, and read again only where it can differ."""

from __future__ import annotations

import mmap
import os
import subprocess
import time
from pathlib import Path

import pytest

from actum.contract.call import EffectivePolicy, NetworkPolicy
from actum.contract.governing_names import is_git_directory
from actum.contract.limits import Limits
from actum.contract.model import RunnerKind
from actum.runners import comparison, folder_index
from actum.runners.comparison import Comparison, Differences
from actum.runners.folder_index import FolderIndex

_SETTLED_S = 2 * folder_index.TICK_NS / 1e9


def policy(*write: Path, deny: tuple[Path, ...] = ()) -> EffectivePolicy:
    return EffectivePolicy(
        runner=RunnerKind.LOCAL,
        limits=Limits(
            timeout_ms=1_000, memory_mb=64, cpu_cores=1, max_children=0, allow_fork=False
        ),
        read=(),
        write=tuple(map(str, write)),
        deny=tuple(map(str, deny)),
        protect=(),
        network=NetworkPolicy(enabled=False, allow=(), deny=(), outbound=()),
        environment=(),
    )


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in ("tools", "rules", ".actum", "src/deep"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "actum.toml").write_text("x")
    subprocess.run(["git", "init", "-q", tmp_path / "src" / "lib"], check=True)
    return tmp_path


def compared(root: Path, script: str) -> Differences:
    made = Comparison(str(root), (".envrc", ".github/workflows")).begin(
        policy(root, deny=(root / ".actum",))
    )
    subprocess.run(["sh", "-ec", script], cwd=root, check=True)
    return made.end()


FOUND = {
    "echo y > actum.toml": "actum.toml",
    "mkdir agents": "agents",
    "touch tools/new": "tools/new",
    "rmdir rules": "rules",
    "chmod +x actum.toml": "actum.toml",
    "echo x > .envrc": ".envrc",
    "mkdir -p src/.github/workflows": "src/.github/workflows",
    "rm src/lib/.git/HEAD": "src/lib/.git/HEAD",
    "rm -r src/lib/.git": "src/lib/.git",
    "mv src/lib/.git/hooks src/lib/.git/h": "src/lib/.git/hooks",
    "mkdir -p src/lib/.git/worktrees/w": "src/lib/.git/worktrees/w",
    "mkdir src/deep/.GIT": "src/deep/.GIT",
    "rm -r tools; ln -s rules tools": "tools",
    "cd src/deep; mkdir a; cd a; mkdir objects refs; touch HEAD": "src/deep/a",
    "mkdir src/deep/.actum; touch src/deep/actum.toml": "src/deep/.actum",
}


@pytest.mark.parametrize("script", FOUND)
def test_a_change_is_named(root: Path, script: str) -> None:
    assert str(root / FOUND[script]) in compared(root, script).changed


@pytest.mark.parametrize(
    "script",
    [
        "true",
        "echo -n x > actum.toml; touch actum.toml",
        "cp src/lib/.git/config c; cat c > src/lib/.git/config; chmod -R u+w src",
        "rm -r src/lib",
        "echo x > .actum/new; mkdir .actum/.git",
        "cd src/lib; echo x > f; git add f; git -c user.name=t -c user.email=t@t commit -qm x",
        "mkdir -p src/deep/objects src/deep/refs .github; echo x > src/deep/envrc",
    ],
)
def test_what_governs_nothing_is_not(root: Path, script: str) -> None:
    assert compared(root, script) == Differences()


@pytest.mark.parametrize(
    ("writable", "script", "changed"),
    [
        ("src/lib/.git/info", "echo x > attributes", "src/lib/.git/info/attributes"),
        ("src/lib/.git/hooks", "echo x > pre-push", "src/lib/.git/hooks/pre-push"),
        ("src/.github/workflows", "echo x > ci.yml", "src/.github/workflows/ci.yml"),
        ("src/.github/workflows/deep", "echo x > f", "src/.github/workflows/deep/f"),
        ("other/tools", "echo x > f", "other/tools/f"),
    ],
)
def test_a_writable_folder_can_be_part_of_what_governs(
    root: Path, writable: str, script: str, changed: str
) -> None:
    (root / "other" / ".actum").mkdir(parents=True)
    (root / writable).mkdir(parents=True, exist_ok=True)
    made = Comparison(str(root), (".github/workflows",)).begin(policy(root / writable))
    subprocess.run(["sh", "-ec", script], cwd=root / writable, check=True)
    assert made.end().changed == (str(root / changed),)


def test_a_writable_file_can_govern(root: Path) -> None:
    (root / ".envrc").write_text("x")
    made = Comparison(str(root), (".envrc",)).begin(policy(root / ".envrc", root / "src" / "deep"))
    (root / ".envrc").write_text("y")
    assert made.end().changed == (str(root / ".envrc"),)


def test_a_second_name_of_a_file_is_told(root: Path) -> None:
    os.link(root / "actum.toml", root / "alias")
    found = compared(root, "echo y > alias")
    assert found.changed == (str(root / "actum.toml"),)
    assert found.linked == {str(root / "actum.toml")}


def test_a_change_right_after_the_look_is_found(root: Path) -> None:
    """Within one tick of the clock that file systems use, the time of change stays the same."""
    made = Comparison(str(root), ())
    for number in range(50):
        (root / "actum.toml").write_text(f"{number:02}a")
        before = made.begin(policy(root))
        (root / "actum.toml").write_text(f"{number:02}b")
        (root / f"d{number}").mkdir()
        (root / f"d{number}" / ".git").mkdir()
        assert before.end().changed == (str(root / "actum.toml"), str(root / f"d{number}" / ".git"))


def test_a_mapped_file_is_read_again(root: Path) -> None:
    """The kernel notes the first write to a page. Later ones leave the time of change as it is, so
    a look in between, of another run, must not make this one trust that time."""
    config = root / "src" / "lib" / ".git" / "config"
    honest = config.read_bytes()
    time.sleep(_SETTLED_S)
    made = Comparison(str(root), ())
    before = made.begin(policy(root))
    with config.open("r+b") as file, mmap.mmap(file.fileno(), 0) as page:
        page[0:1] = honest[0:1]
        time.sleep(_SETTLED_S)
        made.look(policy(root))
        page[0:1] = b"#"
    assert before.end().changed == (str(config),)


def test_only_folders_that_changed_are_read_again(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    index = FolderIndex(str(root), frozenset(), frozenset())
    time.sleep(_SETTLED_S)
    first = index.look()
    read: list[str] = []
    plain = FolderIndex._read

    def noted(self: FolderIndex, path: str) -> folder_index._Folder:
        read.append(path)
        return plain(self, path)

    monkeypatch.setattr(FolderIndex, "_read", noted)
    assert index.look() == first
    assert read == []
    (root / "src" / "deep" / "new").mkdir()
    assert index.look() == first
    assert read == [str(root / "src" / "deep"), str(root / "src" / "deep" / "new")]


def test_what_is_beyond_the_bounds_is_told(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Comparison(str(root), ())
    assert made.look(policy(root)).complete
    before = made.begin(policy(root))
    monkeypatch.setattr(folder_index, "MOST_FOLDERS", 3)
    assert not made.look(policy(root)).complete
    assert before.end().cut_short
    # Of what was too large before it is said, and no tool is blamed for it.
    found = made.begin(policy(root)).end()
    assert (found.complete, found.cut_short) == (False, False)
    monkeypatch.undo()
    monkeypatch.setattr(comparison, "MOST_NAMES", 3)
    assert not made.look(policy(root)).complete


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads what is closed")
def test_a_folder_that_was_closed_is_told(root: Path) -> None:
    found = compared(root, "mkdir c; git init -q c/x; chmod 000 c")
    os.chmod(root / "c", 0o700)
    assert found.cut_short


@pytest.mark.parametrize(
    ("names", "yes"),
    [
        ({"HEAD", "objects", "refs"}, True),
        ({"HEAD", "commondir"}, True),
        ({"HEAD", "objects"}, False),
        ({"objects", "refs", "config"}, False),
    ],
)
def test_what_git_takes_for_a_repository(names: set[str], yes: bool) -> None:
    assert is_git_directory(names.__contains__) is yes
