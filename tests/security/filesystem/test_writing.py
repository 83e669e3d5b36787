"""What governs the project, and whatever lies outside the working directory, cannot be written."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from actum.evidence.records.audit import Decision
from hostile.jail import Jail

pytestmark = pytest.mark.sandbox

#: What changes a governing name and leaves everything as it was, printing OK where it works; and
#: the same with a change that stays.
CONTROL_FILES: dict[str, tuple[str, str]] = {
    "actum.toml opened": ("cat /dev/null >> actum.toml", "echo >> actum.toml"),
    "actum.toml moved": ("mv actum.toml x && mv x actum.toml", "mv actum.toml x"),
    "actum.toml replaced": (
        "cp -p actum.toml x && mv x actum.toml",
        "cp -p actum.toml x && echo >> x && mv x actum.toml",
    ),
    "actum.toml linked over": (
        "cp -p actum.toml x && ln -f x actum.toml && rm x",
        "cp -p actum.toml x && echo >> x && ln -f x actum.toml && rm x",
    ),
    "actum.toml exchanged by mode": ("chmod 644 actum.toml", "chmod 600 actum.toml"),
    "actum.toml touched": ("touch actum.toml", "touch actum.toml && rm actum.toml"),
    "a new tool": ("mkdir tools/evil && rmdir tools/evil", "mkdir tools/evil"),
    "a changed tool": (
        "cat /dev/null >> tools/shell/tool.yaml",
        "echo >> tools/shell/tool.yaml",
    ),
    "tools moved": ("mv tools x && mv x tools", "mv tools x"),
    "tools.lock opened": ("cat /dev/null >> tools.lock", "echo >> tools.lock"),
    "tools.lock moved": ("mv tools.lock x && mv x tools.lock", "mv tools.lock x"),
    "a new rule": ("cat /dev/null > rules/evil && rm rules/evil", "cat /dev/null > rules/evil"),
    "rules moved": ("mv rules x && mv x rules", "mv rules x"),
    "a git hook": (
        "cat /dev/null > .git/hooks/pre-commit && rm .git/hooks/pre-commit",
        "cat /dev/null > .git/hooks/pre-commit",
    ),
    "git's configuration": ("cat /dev/null >> .git/config", "echo >> .git/config"),
    "git's configuration by itself": (
        "git config a.b c && git config --unset a.b",
        "git config a.b c",
    ),
    "git's common directory": (
        "cat /dev/null > .git/commondir && rm .git/commondir",
        "echo . > .git/commondir",
    ),
    "git's directory moved": ("mv .git x && mv x .git", "mv .git x"),
    "git through a link": (
        "ln -s .git x; cat /dev/null >> x/config && echo OK; rm x; false",
        "ln -s .git x; echo >> x/config",
    ),
    "an absolute path": ('cat /dev/null >> "$PWD/actum.toml"', 'echo >> "$PWD/actum.toml"'),
    "a path with dots": (
        "cat /dev/null >> tools/../actum.toml",
        "echo >> tools/../actum.toml",
    ),
    "a process's directory": (
        "cat /dev/null >> /proc/self/cwd/actum.toml",
        "echo >> /proc/self/cwd/actum.toml",
    ),
}


def _with_repository(jail: Jail) -> Jail:
    subprocess.run(["git", "init", "-q", jail.root], check=True)
    subprocess.run(["git", "-C", jail.root, "config", "a.first", "x"], check=True)
    return jail


@pytest.mark.req("004-4", "004-44")
@pytest.mark.parametrize("way", CONTROL_FILES)
def test_what_governs_changes_only_with_an_approval(own_jail: Jail, way: str) -> None:
    """The tool may do it, in layers of its own; on the host it has not happened."""
    governed = _with_repository(own_jail)
    script = f"{{ {CONTROL_FILES[way][1]} && echo OK; }} 2>/dev/null"
    before = _governing(governed.root)
    result = governed.sh(script, cwd=governed.root)
    assert governed.said(result) == "OK"
    assert _governing(governed.root) == before
    assert result.workspace is not None
    assert result.workspace.state == "held", result.workspace
    # The control: approved, it does happen.
    runtime = governed.runtime
    request = runtime.approvals.decide(
        result.workspace.request_id, Decision.ALLOW, by="user:boss", why="control"
    )
    assert runtime.transactions.approved(request) == "committed"
    assert _governing(governed.root) != before


@pytest.fixture(scope="module")
def governed(tmp_path_factory: pytest.TempPathFactory, probe: Path) -> Iterator[Jail]:
    """A project whose tools write to it directly: what governs is covered."""
    jail = Jail(tmp_path_factory.mktemp("governed"), probe, transactions=False)
    yield _with_repository(jail)
    jail.close()


@pytest.mark.req("004-4", "004-44")
@pytest.mark.parametrize("way", CONTROL_FILES)
def test_a_tool_that_writes_directly_in_the_project_root_cannot_govern_it(
    governed: Jail, way: str
) -> None:
    script = f"rm -rf x; {{ {CONTROL_FILES[way][0]} && echo OK; }} 2>/dev/null; true"
    before = _governing(governed.root)
    assert governed.outside(script, cwd=governed.root) == "OK"
    assert _governing(governed.root) == before
    inside = governed.sh(script, cwd=governed.root)
    assert governed.said(inside) == ""
    assert _governing(governed.root) == before


@pytest.mark.parametrize("transactions", [True, False])
def test_the_project_root_itself_is_writable_for_a_tool_that_works_there(
    tmp_path: Path, probe: Path, transactions: bool
) -> None:
    jail = _with_repository(Jail(tmp_path, probe, transactions=transactions))
    jail.sh("echo fine > new; mkdir -p d; mv new d/new", cwd=jail.root).check()
    jail.close()
    assert (jail.root / "d" / "new").read_text() == "fine\n"


_GITFILE = "echo 'gitdir: evil' > .git && echo OK; mv .git x && echo OK; true"


def test_a_git_file_led_to_another_repository_is_held(own_jail: Jail) -> None:
    """Worktrees and submodules have a file `.git` that names their directory."""
    (own_jail.work / ".git").write_text("gitdir: /nowhere\n")
    result = own_jail.sh(_GITFILE)
    assert own_jail.said(result) == "OK\nOK"
    assert result.workspace is not None
    assert result.workspace.state == "held"
    assert os.listdir(own_jail.work) == [".git"]
    assert (own_jail.work / ".git").read_text() == "gitdir: /nowhere\n"


def test_a_git_file_cannot_be_led_to_another_repository_directly(direct_jail: Jail) -> None:
    (direct_jail.work / ".git").write_text("gitdir: /nowhere\n")
    assert direct_jail.said(direct_jail.sh(_GITFILE)) == ""
    assert (direct_jail.work / ".git").read_text() == "gitdir: /nowhere\n"
    assert direct_jail.outside(_GITFILE) == "OK\nOK"


@pytest.mark.parametrize("transactions", [True, False])
@pytest.mark.parametrize("name", ["actum.toml", "rules", ".git"])
def test_a_control_file_behind_a_link_is_refused(
    tmp_path: Path, probe: Path, name: str, transactions: bool
) -> None:
    """The link could be led elsewhere: it cannot be covered, and others can be on its way."""
    jail = Jail(tmp_path, probe, transactions=transactions)
    if name == ".git":
        subprocess.run(["git", "init", "-q", jail.root], check=True)
    assert jail.said(jail.sh("echo started", cwd=jail.root)) == "started"
    os.rename(jail.root / name, jail.elsewhere / "moved")
    os.symlink(jail.elsewhere / "moved", jail.root / name)
    result = jail.sh("echo started", cwd=jail.root)
    jail.close()
    assert result.result is None
    assert "CONTROL_FILE_LINKED" in result.reason_codes


def test_what_a_governing_name_leads_to_is_held_too(own_jail: Jail) -> None:
    """The tool cannot reach the link, and works in the folder that it leads to."""
    (own_jail.work / "kept-here").mkdir()
    os.rename(own_jail.root / "rules", own_jail.work / "kept-here" / "rules")
    os.symlink("kept-here/rules", own_jail.work / "between")
    os.symlink(own_jail.work / "between", own_jail.root / "rules")
    other = "mkdir other; echo x > other/evil; rm between; ln -s other between"
    for script in ("echo x > kept-here/rules/evil", other):
        result = own_jail.sh(script)
        assert result.ok, result.violations
        assert result.workspace is not None
        assert result.workspace.state == "held", result.workspace
        assert not (own_jail.root / "rules" / "evil").exists()
    beside = own_jail.sh("echo x > kept-here/beside")
    assert beside.workspace is not None
    assert beside.workspace.state == "committed"


@pytest.mark.parametrize(
    ("name", "code"), [("actum.toml", "SETTINGS_CHANGED"), ("rules", "CONTROL_FILE_MISSING")]
)
def test_a_missing_control_file_is_refused_where_tools_write_directly(
    direct_jail: Jail, name: str, code: str
) -> None:
    """The tool could create it."""
    os.rename(direct_jail.root / name, direct_jail.elsewhere / name)
    result = direct_jail.sh("echo started", cwd=direct_jail.root)
    assert code in result.reason_codes


def test_a_missing_control_file_is_refused_or_held(own_jail: Jail) -> None:
    os.rename(own_jail.root / "rules", own_jail.elsewhere / "rules")
    result = own_jail.sh("mkdir rules; echo x > rules/evil", cwd=own_jail.root)
    assert result.ok, result.violations
    assert result.workspace is not None
    assert result.workspace.state == "held"
    assert not (own_jail.root / "rules").exists()
    os.rename(own_jail.root / "actum.toml", own_jail.elsewhere / "actum.toml")
    refused = own_jail.sh("echo started", cwd=own_jail.root)
    assert refused.result is None
    assert "SETTINGS_CHANGED" in refused.reason_codes


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
    jail.sh("echo x > file; mkdir folder; ln -s file link; echo x > folder/f").check()
    for name in ("file", "folder", "link", "folder/f"):
        status = os.lstat(jail.work / name)
        assert (status.st_uid, status.st_gid) == (os.geteuid(), os.getegid()), name


_EVERY_CHANGE = """
echo more >> kept && cat kept && : > cut && mv moved there && rm gone && rmdir empty
mkdir deep && mv there deep/x && ln deep/x deep/second && chmod 700 deep/x && echo done
"""


@pytest.mark.req("004-43")
@pytest.mark.parametrize("name", ["own_jail", "direct_jail"])
def test_whatever_is_in_the_workspace_can_be_changed_and_removed(
    request: pytest.FixtureRequest, name: str
) -> None:
    jail: Jail = request.getfixturevalue(name)
    for file in ("kept", "cut", "moved", "gone"):
        (jail.work / file).write_text(f"{file}\n")
    (jail.work / "empty").mkdir()
    assert jail.said(jail.sh(_EVERY_CHANGE)) == "kept\nmore\ndone"
    found = {str(path.relative_to(jail.work)) for path in jail.work.rglob("*")}
    assert found == {"kept", "cut", "deep", "deep/x", "deep/second"}
    assert (jail.work / "kept").read_text() == "kept\nmore\n"
    assert (jail.work / "cut").read_text() == ""


@pytest.mark.req("004-43")
def test_files_that_a_tool_writes_directly_belong_to_the_caller(direct_jail: Jail) -> None:
    script = "echo x > file; mkdir folder; ln -s file link; mkfifo pipe; echo x > folder/f"
    direct_jail.sh(script).check()
    for name in ("file", "folder", "link", "pipe", "folder/f"):
        status = os.lstat(direct_jail.work / name)
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


def test_a_control_file_stays_closed_when_the_host_replaces_it(own_jail: Jail) -> None:
    """A read-only mount over the name would be lost in that moment."""
    settings = own_jail.root / "actum.toml"
    honest = settings.read_bytes()
    saved: list[int] = []

    def edit(_stream: str, _chunk: bytes) -> None:
        """As editors and `git config` save: a new file, renamed over the old one."""
        if not saved:
            fresh = own_jail.elsewhere / "fresh"
            fresh.write_bytes(honest)
            os.rename(fresh, settings)
            saved.append(settings.stat().st_ino)

    # More than a pipe takes: the last byte is written when the host has read on, after `edit`.
    script = "echo up; head -c 1000000 /dev/zero; echo evil >> actum.toml && echo OK >&2"
    result = own_jail.sh(script, cwd=own_jail.root, on_output=edit)
    assert result.result is not None
    assert result.result.stderr == "OK\n"
    assert result.workspace is not None
    assert result.workspace.state == "held", result.workspace
    assert settings.read_bytes() == honest
    assert [settings.stat().st_ino] == saved


@pytest.mark.parametrize("name", [".git", ".actum"])
def test_no_repository_or_project_can_be_planted_where_there_was_none(
    own_jail: Jail, name: str
) -> None:
    """git, or actum, run by the caller in that directory would obey what the tool wrote."""
    result = own_jail.sh(f"mkdir {name} && echo '[core]' > {name}/config")
    assert result.ok
    assert result.workspace is not None
    assert result.workspace.state == "held", result.workspace
    assert os.listdir(own_jail.work) == []
    request = own_jail.runtime.approvals.decide(
        result.workspace.request_id, Decision.ALLOW, by="user:boss", why="control"
    )
    assert own_jail.runtime.transactions.approved(request) == "committed"
    assert (own_jail.work / name / "config").read_text() == "[core]\n"


def _governing(root: Path) -> dict[str, tuple[int, bytes | None]]:
    """Names, modes and contents of everything that governs."""
    roots = [root / name for name in ("actum.toml", "tools.lock", "tools", "rules", ".git")]
    files = [*roots, *(path for folder in roots if folder.is_dir() for path in folder.rglob("*"))]
    return {
        str(path): (path.lstat().st_mode, path.read_bytes() if path.is_file() else None)
        for path in files
        if path.exists()
    }
