"""What governs the project, and whatever lies outside the working directory, cannot be written."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from hostile.jail import Jail

pytestmark = pytest.mark.sandbox

#: Each prints OK where it works, and leaves everything as it was.
CONTROL_FILES = {
    "actum.toml opened": "cat /dev/null >> actum.toml && echo OK",
    "actum.toml moved": "mv actum.toml x && mv x actum.toml && echo OK",
    "actum.toml replaced": "cp -p actum.toml x && mv x actum.toml && echo OK",
    "actum.toml linked over": "cp -p actum.toml x && ln -f x actum.toml && rm x && echo OK",
    "actum.toml exchanged by mode": "chmod 644 actum.toml && echo OK",
    "actum.toml touched": "touch actum.toml && echo OK",
    "a new tool": "mkdir tools/evil && rmdir tools/evil && echo OK",
    "a changed tool": "cat /dev/null >> tools/shell/tool.yaml && echo OK",
    "tools moved": "mv tools x && mv x tools && echo OK",
    "tools.lock opened": "cat /dev/null >> tools.lock && echo OK",
    "tools.lock moved": "mv tools.lock x && mv x tools.lock && echo OK",
    "a new rule": "cat /dev/null > rules/evil && rm rules/evil && echo OK",
    "rules moved": "mv rules x && mv x rules && echo OK",
    "a git hook": "cat /dev/null > .git/hooks/pre-commit && rm .git/hooks/pre-commit && echo OK",
    "git's configuration": "cat /dev/null >> .git/config && echo OK",
    "git's configuration by itself": "git config a.b c && git config --unset a.b && echo OK",
    "git's common directory": "cat /dev/null > .git/commondir && rm .git/commondir && echo OK",
    "git's directory moved": "mv .git x && mv x .git && echo OK",
    "git through a link": "ln -s .git x; cat /dev/null >> x/config && echo OK; rm x",
    "an absolute path": 'cat /dev/null >> "$PWD/actum.toml" && echo OK',
    "a path with dots": "cat /dev/null >> tools/../actum.toml && echo OK",
    "a process's directory": "cat /dev/null >> /proc/self/cwd/actum.toml && echo OK",
}


@pytest.fixture(scope="module")
def governed(shared_jail: Jail) -> Jail:
    subprocess.run(["git", "init", "-q", shared_jail.root], check=True)
    subprocess.run(["git", "-C", shared_jail.root, "config", "a.first", "x"], check=True)
    return shared_jail


@pytest.mark.req("004-4", "004-44")
@pytest.mark.parametrize("way", CONTROL_FILES)
def test_a_tool_that_works_in_the_project_root_cannot_govern_it(governed: Jail, way: str) -> None:
    script = f"rm -rf x; {{ {CONTROL_FILES[way]}; }} 2>/dev/null; true"
    before = _governing(governed.root)
    assert governed.outside(script, cwd=governed.root) == "OK"
    assert _governing(governed.root) == before
    inside = governed.sh(script, cwd=governed.root)
    assert governed.said(inside) == ""
    assert _governing(governed.root) == before


def test_the_project_root_itself_is_writable_for_a_tool_that_works_there(governed: Jail) -> None:
    governed.sh("echo fine > new; mkdir -p d; mv new d/new", cwd=governed.root).check()
    assert (governed.root / "d" / "new").read_text() == "fine\n"


def test_a_git_file_cannot_be_led_to_another_repository(own_jail: Jail) -> None:
    """Worktrees and submodules have a file `.git` that names their directory."""
    (own_jail.work / ".git").write_text("gitdir: /nowhere\n")
    script = "echo 'gitdir: evil' > .git && echo OK; mv .git x && echo OK; true"
    assert own_jail.said(own_jail.sh(script)) == ""
    assert (own_jail.work / ".git").read_text() == "gitdir: /nowhere\n"
    assert own_jail.outside(script) == "OK\nOK"


@pytest.mark.parametrize("name", ["actum.toml", "rules", ".git"])
def test_a_control_file_behind_a_link_is_refused(own_jail: Jail, name: str) -> None:
    """A link cannot be covered, so it could be led elsewhere."""
    if name == ".git":
        subprocess.run(["git", "init", "-q", own_jail.root], check=True)
    os.rename(own_jail.root / name, own_jail.elsewhere / "moved")
    os.symlink(own_jail.elsewhere / "moved", own_jail.root / name)
    result = own_jail.sh("echo started", cwd=own_jail.root)
    assert result.result is None
    assert "CONTROL_FILE_LINKED" in result.reason_codes


@pytest.mark.parametrize(
    ("name", "code"), [("actum.toml", "SETTINGS_CHANGED"), ("rules", "CONTROL_FILE_MISSING")]
)
def test_a_missing_control_file_is_refused(own_jail: Jail, name: str, code: str) -> None:
    """The tool could create it."""
    os.rename(own_jail.root / name, own_jail.elsewhere / name)
    result = own_jail.sh("echo started", cwd=own_jail.root)
    assert code in result.reason_codes


OUTSIDE = {
    "beside the working directory": '"$1"/new',
    "above it by dots": "../new",
    "elsewhere": '"$2"/new',
    "elsewhere by dots": "../../elsewhere/new",
}


@pytest.mark.req("000-15", "000-45", "004-44")
@pytest.mark.parametrize("place", OUTSIDE)
def test_nothing_outside_the_working_directory_can_be_created(jail: Jail, place: str) -> None:
    target = OUTSIDE[place]
    script = f"{{ echo x > {target} && rm {target} && echo OK; }} 2>/dev/null; true"
    arguments = (str(jail.root), str(jail.elsewhere))
    assert jail.outside(script, *arguments) == "OK"
    assert jail.said(jail.sh(script, *arguments)) == ""


CHANGES = {
    "overwritten": "echo x > FILE && echo OK",
    "appended to": "echo x >> FILE && echo OK",
    "removed": "rm -f FILE && echo OK",
    "renamed": "mv FILE FILE.x && echo OK",
    "given another mode": "chmod 777 FILE && echo OK",
    "given another time": "touch -d 2001-01-01 FILE && echo OK",
    "truncated": "truncate -s 0 FILE && echo OK",
    "reached through a symlink": "ln -s FILE here; echo x > here && echo OK",
    "hard-linked in": "ln FILE here && echo OK",
    "moved in": "mv FILE here && echo OK",
}


@pytest.mark.req("000-15", "000-45", "004-44")
@pytest.mark.parametrize("change", CHANGES)
def test_a_readable_file_outside_the_working_directory_cannot_be(jail: Jail, change: str) -> None:
    def script(file: Path) -> str:
        return f"{{ {CHANGES[change].replace('FILE', str(file))}; }} 2>/dev/null; true"

    free, held = jail.root / f"free-{os.urandom(4).hex()}", jail.root / "held"
    for file in (free, held):
        file.write_text("before")
        file.chmod(0o644)
    status = held.stat()
    assert jail.outside(script(free), cwd=jail.fresh_work()) == "OK"
    jail.fresh_work()
    assert jail.said(jail.sh(script(held))) == ""
    after = held.stat()
    assert held.read_text() == "before"
    assert (after.st_mode, after.st_mtime_ns, after.st_nlink) == (
        status.st_mode,
        status.st_mtime_ns,
        status.st_nlink,
    )


@pytest.mark.req("000-15")
def test_system_files_cannot_be_written_and_scratch_dies_with_the_sandbox(jail: Jail) -> None:
    mark = f"/tmp/{os.urandom(8).hex()}"
    script = "for p in /usr/x /etc/x /bin/x /dev/x /x /proc/x; do cat /dev/null > $p; done;"
    script += f"echo s > {mark};"
    result = jail.sh(script + f" cat {mark}")
    assert jail.said(result) == "s"
    assert (result.result.stderr if result.result else "").count("cannot create") == 6
    assert not Path(mark).exists()
    assert jail.said(jail.sh(f"cat {mark} 2>/dev/null; true")) == ""


@pytest.mark.req("000-15")
def test_an_explicit_write_list_is_all_that_can_be_written(jail: Jail) -> None:
    (jail.work / "out").mkdir()
    script = "echo x > out/a && echo OUT; echo x > b && echo HERE; true"
    result = jail.sh(script, limits={"sandbox.filesystem.write": ["out"]})
    assert jail.said(result) == "OUT"
    assert sorted(os.listdir(jail.work)) == ["out"]
    assert jail.said(jail.sh(script)) == "OUT\nHERE"


@pytest.mark.req("004-43")
def test_files_that_a_tool_writes_belong_to_the_caller(jail: Jail) -> None:
    jail.sh("echo x > file; mkdir folder; ln -s file link; mkfifo pipe; echo x > folder/f").check()
    for name in ("file", "folder", "link", "pipe", "folder/f"):
        status = os.lstat(jail.work / name)
        assert (status.st_uid, status.st_gid) == (os.geteuid(), os.getegid()), name


@pytest.mark.req("004-43")
def test_root_working_in_someones_directory_leaves_files_of_that_someone(own_jail: Jail) -> None:
    """An ordinary user has nobody else to work for: then it is the user."""
    owner = (64_222, 64_223) if os.geteuid() == 0 else (os.geteuid(), os.getegid())
    os.chown(own_jail.work, *owner)
    (own_jail.work / "theirs").write_text("private")
    os.chown(own_jail.work / "theirs", *owner)
    (own_jail.work / "theirs").chmod(0o600)
    said = own_jail.said(own_jail.sh("cat theirs; echo x > new; echo y >> theirs"))
    assert said == "private"
    for name in ("new", "theirs"):
        status = os.stat(own_jail.work / name)
        assert (status.st_uid, status.st_gid) == owner


@pytest.mark.xfail(
    reason="the kernel detaches the covering mount when the host renames a file over it",
    strict=True,
)
def test_a_control_file_stays_covered_when_the_host_replaces_it(own_jail: Jail) -> None:
    from threading import Thread

    from hostile.jail import appears

    go, done = own_jail.root / "go", own_jail.root / "done"

    def edit() -> None:
        """As editors and `git config` save: a new file, renamed over the old one."""
        appears(go)
        fresh = own_jail.elsewhere / "fresh"
        fresh.write_text((own_jail.root / "actum.toml").read_text())
        os.rename(fresh, own_jail.root / "actum.toml")
        done.touch()

    editor = Thread(target=edit)
    editor.start()
    script = "touch go; while [ ! -e done ]; do sleep 0.01; done; echo >> actum.toml && echo OK"
    result = own_jail.sh(f"{{ {script}; }} 2>/dev/null; true", cwd=own_jail.root)
    editor.join()
    assert own_jail.said(result) == ""


@pytest.mark.xfail(reason="a name that does not exist cannot be covered", strict=True)
@pytest.mark.parametrize("name", [".git", ".actum"])
def test_no_repository_or_project_can_be_planted_where_there_was_none(
    jail: Jail, name: str
) -> None:
    """git, or actum, run by the caller in that directory would obey what the tool wrote."""
    jail.sh(f"mkdir {name} && echo '[core]' > {name}/config")
    assert not (jail.work / name).exists()


def _governing(root: Path) -> dict[str, bytes | None]:
    """Names and contents of everything that governs."""
    roots = [root / name for name in ("actum.toml", "tools.lock", "tools", "rules", ".git")]
    files = [*roots, *(path for folder in roots if folder.is_dir() for path in folder.rglob("*"))]
    return {str(path): path.read_bytes() if path.is_file() else None for path in files}
