"""Git, package managers, compilers and databases leave the same tree in a transaction as outside.

Each case is a list of scripts. They run first without a sandbox, one after the other. Then the
folder is made anew at the same path, and each script is an execution of its own: what one has
committed is the read-only lower layer of the next. Both must print the same and leave the same
files, with modes and owners. A missing program fails its test: `scripts/debian-packages` installs
all of them.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import shutil
import stat
import subprocess
import tarfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from actum import Result
from actum.evidence.records.audit import Decision
from hostile.jail import Jail

pytestmark = pytest.mark.sandbox

#: Enough for a compiler of Rust.
LIMITS = {
    "sandbox.memory_mb": 2_048,
    "sandbox.cpu_cores": 2,
    "sandbox.processes.max_children": 100,
}
#: What differs between two runs on one machine is set: times, names and random numbers. Caches and
#: home folders are outside of the project.
_ALIKE = """set -e
umask 022
export PATH=/usr/bin:/bin TZ=UTC LC_ALL=C.UTF-8 HOME="$(mktemp -d)" SOURCE_DATE_EPOCH=1767225600
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b.test GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b.test
export GIT_AUTHOR_DATE=2026-01-01T00:00:00Z GIT_COMMITTER_DATE=2026-01-01T00:00:00Z
export GIT_CONFIG_NOSYSTEM=1
export npm_config_cache="$HOME/cache" npm_config_update_notifier=false npm_config_fund=false
export npm_config_audit=false npm_config_offline=true
export PYTHONDONTWRITEBYTECODE=1 PIP_NO_INDEX=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_QUIET=1
export PIP_ROOT_USER_ACTION=ignore PIP_NO_CACHE_DIR=1
export CARGO_HOME="$HOME/cargo" CARGO_INCREMENTAL=0
"""

_GIT = """git init -q -b main .
git config gc.auto 0; git config pack.threads 1
echo one > a; mkdir sub; echo two > sub/b; git add .; git commit -q -m first
"""


def _same(_folder: Path) -> None:
    """Nothing to prepare."""


def _git_repository(folder: Path) -> None:
    _outside(folder, [_GIT])


def _cloned_repository(folder: Path) -> None:
    """A repository, a bare one that it was cloned to, and a clone that is ahead of it."""
    _outside(
        folder,
        [
            f"mkdir work; cd work; {_GIT}",
            "git clone -q --bare --no-hardlinks work up.git; git -C up.git config gc.auto 0",
            "git -C work remote add origin ../up.git; git -C work fetch -q",
            "git -C work branch -q --set-upstream-to=origin/main main",
            "git clone -q --no-hardlinks up.git other",
            "cd other; echo theirs > theirs; git add .; git commit -q -m theirs; git push -q",
        ],
    )


def _submodule(folder: Path) -> None:
    _outside(
        folder,
        [
            f"mkdir lib; cd lib; {_GIT}",
            f"mkdir app; cd app; {_GIT}",
            "cd app; git -c protocol.file.allow=always submodule --quiet add ../lib lib",
            "cd app; git commit -q -m lib",
        ],
    )


def _npm_packages(folder: Path) -> None:
    """Two versions of a package. Each has a file that the other one does not have."""
    for version in (1, 2):
        files = {
            "package.json": f'{{"name": "dep", "version": "{version}.0.0", "main": "lib/i.js"}}',
            "lib/i.js": f"module.exports = require('./only{version}')",
            f"lib/only{version}.js": f"module.exports = {version}",
        }
        with (
            gzip.GzipFile(folder / f"dep-{version}.0.0.tgz", "wb", mtime=0) as packed,
            tarfile.open(fileobj=packed, mode="w") as archive,
        ):
            for name, text in files.items():
                entry = tarfile.TarInfo(f"package/{name}")
                entry.size = len(text.encode())
                archive.addfile(entry, io.BytesIO(text.encode()))
    app = folder / "app"
    app.mkdir()
    (app / "package.json").write_text('{"name": "app", "version": "1.0.0"}')
    (app / "t.js").write_text('console.log(require("dep"))')


def _wheels(folder: Path) -> None:
    for version in (1, 2):
        info = f"dep-{version}.0.dist-info"
        files = {
            "dep/__init__.py": f"from dep.only{version} import NUMBER\n",
            f"dep/only{version}.py": f"NUMBER = {version}\n",
            f"{info}/METADATA": f"Metadata-Version: 2.1\nName: dep\nVersion: {version}.0\n",
            f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            f"{info}/RECORD": "",
        }
        with zipfile.ZipFile(folder / f"dep-{version}.0-py3-none-any.whl", "w") as wheel:
            for name, text in files.items():
                wheel.writestr(zipfile.ZipInfo(name, (2026, 1, 1, 0, 0, 0)), text)


def _crate(folder: Path) -> None:
    (folder / "src").mkdir()
    (folder / "Cargo.toml").write_text(
        '[package]\nname = "app"\nversion = "0.1.0"\nedition = "2021"\n'
    )
    (folder / "src" / "main.rs").write_text('mod part; fn main() { println!("{}", part::N); }\n')
    (folder / "src" / "part.rs").write_text("pub const N: u32 = 1;\n")


def _makefile(folder: Path) -> None:
    (folder / "Makefile").write_text(
        "all: out/joined\nout/joined: out/one out/two\n\tcat out/one out/two > out/joined\n"
        "out/%: %.in\n\tmkdir -p out && cp $< $@\n"
    )
    (folder / "one.in").write_text("1\n")
    (folder / "two.in").write_text("2\n")


def _modules(folder: Path) -> None:
    (folder / "package").mkdir()
    (folder / "package" / "a").write_text("a")
    (folder / "package" / "inner").mkdir()
    (folder / "package" / "inner" / "b").write_text("b")
    os.symlink("inner/b", folder / "package" / "link")


#: Name -> what is there before, and the scripts.
CASES: dict[str, tuple[Callable[[Path], None], Sequence[str]]] = {
    "git: add and commit": (
        _git_repository,
        ["echo three > c; git add c", "git commit -q -m second", "git rm -q a", "git commit -qm x"],
    ),
    "git: branch, switch, merge": (
        _git_repository,
        [
            "git branch side; git switch -q side; rm -r sub; echo s > s; git add -A",
            "git commit -q -m side; git switch -q main; ls",
            "echo m > m; git add m; git commit -q -m main; git merge -q --no-ff -m merged side",
            "git branch -d side; git log --format='%h %s'; git status --short",
        ],
    ),
    "git: a merge that conflicts and is aborted": (
        _git_repository,
        [
            "git switch -q -c side; echo s > a; git commit -q -a -m s",
            "git switch -q main; echo m > a; git commit -q -a -m m",
            "git merge side || git status --short",
            "git merge --abort; git status --short; cat a",
        ],
    ),
    "git: rebase": (
        _git_repository,
        [
            "git switch -q -c topic; echo t > t; git add t; git commit -q -m t",
            "git switch -q main; echo m > m; git add m; git commit -q -m m",
            "git rebase -q main topic; git log --format='%h %s'",
        ],
    ),
    "git: stash": (
        _git_repository,
        [
            "echo changed > sub/b; echo new > untracked; git stash push -q -u; git status --short",
            "echo other > a; git commit -q -a -m other",
            "git stash pop -q; git status --short; cat sub/b; git stash list",
        ],
    ),
    "git: cherry-pick": (
        _git_repository,
        [
            (
                "git switch -q -c side; for n in 1 2 3; do echo $n > $n; git add $n;"
                " git commit -q -m $n; done; git switch -q main"
            ),
            "git cherry-pick side~2 >/dev/null",
            "git cherry-pick side~1 side >/dev/null; git log --format='%h %s'",
        ],
    ),
    "git: gc": (
        _git_repository,
        [
            "for n in 1 2 3 4; do echo $n > a; git commit -q -a -m $n; done; git branch other",
            "git gc -q --prune=now; git count-objects -v | grep -v size; git fsck --full",
            "echo 5 > a; git commit -q -a -m 5",
            "git gc -q --prune=now; git log --format='%h %s'",
        ],
    ),
    "git: tag, amend, reset": (
        _git_repository,
        [
            "git tag v1; git tag -a -m two v2; git tag -l; echo b > a; git commit -q -a -m second",
            "git commit -q --amend -m amended; git log --format='%h %s'",
            "echo c > a; git reset -q --hard; git reset -q --soft HEAD~1; git status --short",
            "git reset -q; git checkout -q -- a; git clean -qfd; git status --short",
        ],
    ),
    "git: revert, notes, restore": (
        _git_repository,
        [
            "echo b > a; git commit -q -a -m second; git notes add -m note HEAD",
            "git revert --no-edit HEAD >/dev/null; git log --format='%h %s%n%N'",
            "rm a; git restore a; echo c > a; git add a; git restore --staged --worktree a; cat a",
        ],
    ),
    "git: patches": (
        _git_repository,
        [
            "git switch -q -c side; echo b > a; git commit -q -a -m patch; git switch -q main",
            "mkdir out; git format-patch -q -o out main..side; git am -q out/*.patch",
            "git apply -R out/*.patch; git diff --stat; git apply out/*.patch; git status --short",
        ],
    ),
    "git: interactive rebase": (
        _git_repository,
        [
            "for n in 1 2 3; do echo $n > $n; git add $n; git commit -q -m $n; done",
            "GIT_SEQUENCE_EDITOR=\"sed -i -e '2s/pick/fixup/'\" git rebase -q -i HEAD~3",
            "git log --format='%h %s'; ls",
        ],
    ),
    "git: fetch, pull, push": (
        _cloned_repository,
        [
            "cd work; git fetch -q; git log --format='%h %s' origin/main",
            "cd work; git pull -q --ff-only; ls; echo o > ours; git add .; git commit -q -m ours",
            "cd work; git push -q; git -C ../up.git log --format='%h %s' main",
            "cd other; git pull -q --ff-only; git repack -q -a -d; git fsck; ls",
        ],
    ),
    "git: commit in a submodule": (
        _submodule,
        [
            "cd app/lib; git switch -q -c topic; echo b > a; git commit -q -a -m inner",
            "cd app; git add lib; git commit -q -m outer; git submodule status; git status --short",
        ],
    ),
    "npm: install and upgrade": (
        _npm_packages,
        [
            "cd app; npm install --silent ../dep-1.0.0.tgz; node t.js",
            "cd app; npm install --silent ../dep-2.0.0.tgz; node t.js; npm ls --parseable | wc -l",
            "cd app; npm uninstall --silent dep; ls",
        ],
    ),
    "npm: install from a folder, and clean install": (
        _npm_packages,
        [
            "tar xf dep-1.0.0.tgz; cd app; npm install --silent ../package; node t.js",
            "cd app; npm ci --silent; node t.js",
        ],
    ),
    "pip: install into a folder, and upgrade": (
        _wheels,
        [
            "python3 -m venv --without-pip env",
            "python3 -m pip install --no-compile --target lib ./dep-1*; ls lib",
            "python3 -m pip install --no-compile --target lib --upgrade ./dep-2*; ls lib",
            "PYTHONPATH=lib env/bin/python -c 'import dep; print(dep.NUMBER)'",
        ],
    ),
    "pip: install into an environment, upgrade, uninstall": (
        _wheels,
        [
            "python3 -m venv env",
            "env/bin/pip install --no-compile ./dep-1*",
            "env/bin/pip install --no-compile --upgrade ./dep-2*; env/bin/pip freeze",
            "env/bin/python -c 'import dep; print(dep.NUMBER)'; env/bin/pip uninstall -y dep",
        ],
    ),
    "cargo: build, build again, change, build": (
        _crate,
        [
            "cargo build -q --offline; ./target/debug/app",
            "cargo build --offline 2>&1 | grep -c Compiling || true",
            "echo 'pub const N: u32 = 2;' > src/part.rs; touch -d 2037-01-01 src/part.rs",
            "cargo build --offline 2>&1 | grep -c Compiling; ./target/debug/app",
        ],
    ),
    "make: build, nothing to do, change, build": (
        _makefile,
        [
            "make -s; cat out/joined",
            "make",
            "echo 3 > two.in; touch -d 2037-01-01 two.in",
            "make; cat out/joined",
        ],
    ),
    "gcc: objects and a library": (
        _same,
        [
            "echo 'int answer(void) { return 42; }' > part.c; gcc -c part.c; ar rcsD libp.a part.o",
            "echo 'int answer(void); int main(void) { return answer(); }' > main.c",
            "gcc -o main main.c libp.a; ./main || echo $?",
        ],
    ),
    "sqlite3: a rollback journal": (
        _same,
        [
            "sqlite3 x.db 'create table t(a primary key, b)'",
            "sqlite3 x.db \"begin; insert into t values (1, 'x'), (2, 'y'); commit\"",
            "sqlite3 x.db 'update t set b = a; delete from t where a = 1; vacuum'",
            "sqlite3 x.db .dump 'pragma integrity_check'",
        ],
    ),
    "sqlite3: a write-ahead log": (
        _same,
        [
            "sqlite3 x.db 'pragma journal_mode=wal; create table t(a primary key, b)'",
            "sqlite3 x.db \"begin; insert into t values (1, 'x'), (2, 'y'); commit\"",
            "sqlite3 x.db 'update t set b = a; delete from t where a = 1; vacuum'",
            "sqlite3 x.db .dump 'pragma integrity_check' 'pragma journal_mode'",
        ],
    ),
    "pytest: fails, then passes": (
        _same,
        [
            (
                "echo 'def test_it(): assert 1 == 2' > test_it.py;"
                " python3 -m pytest -q test_it.py >/dev/null || echo $?; ls -A"
            ),
            (
                "echo 'def test_it(tmp_path): (tmp_path / \"x\").touch()' > test_it.py;"
                " python3 -m pytest -q --lf test_it.py | sed 's/ in .*//'"
            ),
        ],
    ),
    "mv: a folder of the project": (
        _modules,
        ["mv package moved; ls", "mkdir fresh; echo x > fresh/x; mv fresh newer; mv moved newer"],
    ),
    "cp, ln, chmod, sed, tar": (
        _modules,
        [
            "cp -a package copy; chmod -R go-rwx copy; ln copy/a hard; sed -i s/a/c/ package/a",
            "tar cf - copy | tar xf - --one-top-level=out; rm -r copy; touch -d 2001-01-01 hard",
            "find . -type f | sort | xargs sha256sum; rm -rf package",
        ],
    ),
}
#: These hold times or numbers of inodes; the programs that own them are asked instead.
_PRIVATE = ("index", ".rustc_info.json")


@pytest.mark.parametrize("case", CASES)
def test_the_tree_is_the_same_as_without_a_sandbox(own_jail: Jail, case: str) -> None:
    prepare, scripts = CASES[case]
    work = own_jail.work
    prepare(work)
    expected = _outside(work, scripts)
    listed = _tree(work)
    _afresh(work)
    prepare(work)
    said = []
    for number, script in enumerate(scripts):
        result = _execute(own_jail, script)
        assert result.workspace is not None
        assert result.workspace.state in ("committed", "unchanged"), (number, result.workspace)
        said.append(own_jail.said(result))
    assert said == expected
    assert _tree(work) == listed
    kept = own_jail.runtime.transactions.all()
    assert {each.state for each in kept} == {"committed"}


#: Scripts whose changes wait for a person. Once approved, the tree is the same as outside.
HELD: dict[str, tuple[Callable[[Path], None], str]] = {
    "git: init": (_same, _GIT),
    "git: clone": (_git_repository, "git clone -q --no-hardlinks . two"),
    "git: worktree": (_git_repository, "git worktree add -q -b other tree; git worktree list"),
    "git: a rebase that stops": (
        _git_repository,
        (
            "git switch -q -c side; echo s > a; git commit -q -a -m s; git switch -q main;"
            " echo m > a; git commit -q -a -m m; git rebase -q main side 2>/dev/null || ls"
        ),
    ),
}


@pytest.mark.parametrize("case", HELD)
def test_what_is_held_is_the_same_once_it_is_approved(own_jail: Jail, case: str) -> None:
    prepare, script = HELD[case]
    work = own_jail.work
    prepare(work)
    before = _tree(work)
    expected = _outside(work, [script])
    listed = _tree(work)
    _afresh(work)
    prepare(work)
    result = _execute(own_jail, script)
    assert own_jail.said(result) == expected[0]
    assert result.workspace is not None
    assert result.workspace.state == "held", result.workspace
    assert _tree(work) == before
    runtime = own_jail.runtime
    runtime.approvals.decide(result.workspace.request_id, Decision.ALLOW, by="user:boss", why="x")
    request = runtime.approvals.find(result.workspace.request_id)
    assert runtime.transactions.approved(request) == "committed"
    assert _tree(work) == listed


def test_a_rename_of_a_folder_of_the_project_is_exdev_and_of_a_new_one_is_not(
    own_jail: Jail,
) -> None:
    """docs/changes.md names it: what a program that calls rename() itself has to expect."""
    _modules(own_jail.work)
    program = """
import errno, os
try:
    os.rename('package', 'moved')
except OSError as error:
    print(errno.errorcode[error.errno])
os.rename('package/a', 'file')
os.mkdir('new'); os.rename('new', 'newer'); print(os.listdir('newer'))
"""
    outside = own_jail.outside_python(program.replace("'package/a'", "'moved/a'"))
    assert outside == "[]"  # the control
    _afresh(own_jail.work)
    _modules(own_jail.work)
    result = own_jail.python(program)
    assert own_jail.said(result) == "EXDEV\n[]"
    names = {str(path.relative_to(own_jail.work)) for path in own_jail.work.rglob("*")}
    assert names == {"file", "newer", "package", "package/inner", "package/inner/b", "package/link"}


def test_git_mv_of_a_folder_fails_and_mv_and_add_have_the_same_result(own_jail: Jail) -> None:
    """docs/changes.md names both."""
    _git_repository(own_jail.work)
    _outside(own_jail.work, ["git mv sub moved; git mv a b"])
    listed = _tree(own_jail.work)
    _afresh(own_jail.work)
    _git_repository(own_jail.work)
    failed = own_jail.sh(_ALIKE + "git mv sub moved")
    assert failed.result is not None
    assert "Invalid cross-device link" in failed.result.stderr
    _execute(own_jail, "mv sub moved; git add -A; git mv a b")
    assert _tree(own_jail.work) == listed


def _execute(jail: Jail, script: str) -> Result:
    result = jail.sh(_ALIKE + script, limits=LIMITS, timeout="300s")
    assert result.result is not None, result.violations
    assert result.result.exit_code == 0, result.result.stderr
    return result


def _outside(folder: Path, scripts: Sequence[str]) -> list[str]:
    """What each script prints without a sandbox."""
    said = []
    for script in scripts:
        # Not as a part of the `make` that runs the tests: it would speak of another level.
        own = {name: text for name, text in os.environ.items() if "MAKE" not in name}
        own.pop("MFLAGS", None)
        done = subprocess.run(
            ["/bin/sh"], input=_ALIKE + script, capture_output=True, text=True, cwd=folder, env=own
        )
        assert done.returncode == 0, f"see scripts/debian-packages: {script}: {done.stderr}"
        said.append(done.stdout.strip())
    return said


def _afresh(folder: Path) -> None:
    for path in folder.iterdir():
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def _tree(folder: Path) -> dict[str, tuple[object, ...]]:
    """Path -> kind, mode, owner, and what it holds."""
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted(folder.rglob("*")):
        name, look = str(path.relative_to(folder)), path.lstat()
        held = ""
        if path.is_symlink():
            held = os.readlink(path)
        elif path.is_file():
            held = hashlib.sha256(path.read_bytes()).hexdigest()
        if path.name in _PRIVATE and {".git", "target"} & {*path.parts}:
            held = _asked(path)
        found[name] = (stat.filemode(look.st_mode), look.st_uid, look.st_gid, held)
    return found


def _asked(path: Path) -> str:
    """What git has in an index, without the times."""
    if path.name != "index":
        return ""
    command = ["git", "ls-files", "--stage"]
    repository = next(folder for folder in path.parents if (folder / ".git").is_dir())
    environment = {**os.environ, "GIT_INDEX_FILE": str(path)}
    return subprocess.run(
        command, cwd=repository, env=environment, capture_output=True, text=True, check=True
    ).stdout
