"""A wheel: the same bytes from any checkout, tagged for its platform, usable without a compiler."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from actum import native

ROOT = Path(__file__).parents[2]
_PACKAGED = ("src", "pyproject.toml", "hatch_build.py", "README.md", "LICENSE", ".gitignore")
_BINARIES = [f"actum/{name}" for name in (native.DETERMINISM, native.INIT)]


def checkout(folder: Path) -> Path:
    """What the package is made of, without anything that was built."""
    binaries = {Path(name).name for name in _BINARIES}
    left_out = shutil.ignore_patterns("__pycache__", *binaries)
    folder.mkdir(parents=True)
    for name in _PACKAGED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=left_out)
        else:
            shutil.copyfile(ROOT / name, folder / name)
    return folder


def built(project: Path, kind: str, **environment: str) -> Path:
    made = project.parent / f"{project.name} {kind}"
    subprocess.run(
        [sys.executable, "-B", "-m", "hatchling", "build", "-t", kind, "-d", made],
        cwd=project,
        env={"PATH": os.environ["PATH"], **environment},
        check=True,
        capture_output=True,
    )
    (file,) = made.iterdir()
    return file


def sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(checkout(tmp_path_factory.mktemp("first") / "checkout"), "wheel")


def test_another_checkout_gives_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    other = checkout(tmp_path / "elsewhere" / "a longer name")
    for file in other.rglob("*.py"):
        os.utime(file, (1_000_000_000, 1_000_000_000))
    # Binaries that lie in the tree, of whatever build, are not what is packed.
    for name in _BINARIES:
        (other / "src" / name).write_bytes(b"stale")
    again = built(other, "wheel", LANG="C", TMPDIR=str(tmp_path))
    assert (again.name, sha256(again)) == (wheel.name, sha256(wheel))


def test_the_source_distribution_has_no_binary_and_gives_the_same_wheel(
    wheel: Path, tmp_path: Path
) -> None:
    project = checkout(tmp_path / "checkout")
    for name in _BINARIES:
        (project / "src" / name).write_bytes(b"stale")
    source = built(project, "sdist")
    (tmp_path / "unpacked").mkdir()
    subprocess.run(["tar", "-xf", source, "-C", tmp_path / "unpacked"], check=True)
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    names = [file.name for file in unpacked.rglob("*")]
    assert "hatch_build.py" in names
    assert [name for name in names if name.endswith(("x86_64", ".so"))] == []
    assert sha256(built(unpacked, "wheel")) == sha256(wheel)


def test_the_wheel_is_tagged_for_its_platform_and_carries_the_binaries(wheel: Path) -> None:
    assert wheel.name.endswith("-py3-none-linux_x86_64.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        assert sorted(name for name in names if "x86_64" in name) == _BINARIES
        (tags,) = [name for name in names if name.endswith(".dist-info/WHEEL")]
        assert b"Root-Is-Purelib: false" in archive.read(tags)
        for name in _BINARIES:
            assert archive.read(name) == native.content(name.removeprefix("actum/"))


@pytest.mark.sandbox
def test_what_is_unpacked_from_the_wheel_runs_without_a_compiler(
    wheel: Path, tmp_path: Path
) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    tools = tmp_path / "bin"
    tools.mkdir()
    done = subprocess.run(
        [sys.executable, "-B", "-m", "actum.doors.cli.main", "try", "--json"],
        env={**os.environ, "PYTHONPATH": str(tmp_path / "site"), "PATH": str(tools)},
        cwd=tmp_path,
        input=b"echo from the wheel",
        check=False,
        capture_output=True,
    )
    assert done.returncode == 0, done.stderr.decode()
    assert json.loads(done.stdout)["result"]["stdout"] == "from the wheel\n"


@pytest.mark.sandbox
def test_the_wheel_is_installed_into_a_fresh_environment_and_removed_again(
    wheel: Path, tmp_path: Path
) -> None:
    """With pip, as pipx and uv do it. The dependencies are those of this environment: nothing is
    fetched."""
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    python = venv / "bin/python"
    (packages,) = venv.glob("lib/python*/site-packages")
    # After the installed package: this checkout is importable there as well.
    (packages / "dependencies.pth").write_text(f"{Path(pytest.__file__).parents[1]}\n")
    pip = [sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check"]
    environment = {"PATH": f"{venv}/bin:/usr/bin:/bin", "HOME": str(tmp_path)}

    def run(*words: str | Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words,
            input=stdin,
            text=True,
            capture_output=True,
            cwd=tmp_path,
            env=environment,
            check=False,
        )

    install = (*pip, "install", "--no-deps", "--no-index", "--force-reinstall", wheel)
    installed = run(*install)
    assert installed.returncode == 0, installed.stderr
    where = run(python, "-c", "import actum; print(actum.__file__)")
    assert where.stdout.startswith(str(packages)), where
    assert run("actum", "init", "demo", "--runner", "local").returncode == 0
    done = run("actum", "exec", "--home", "demo", "python", "--stdin", "-", stdin="print(6 * 7)")
    assert (done.returncode, done.stdout) == (3, ""), "outside of the project"
    done = run("sh", "-c", "cd demo && echo 'print(6 * 7)' | actum exec python --stdin -")
    assert (done.returncode, done.stdout) == (0, "42\n"), done.stderr
    assert run("actum", "verify", "--all", "--home", "demo").returncode == 0
    # An upgrade: the same project goes on.
    assert (
        run(*pip, "install", "--no-deps", "--no-index", "--force-reinstall", wheel).returncode == 0
    )
    assert run("actum", "verify", "--all", "--home", "demo").returncode == 0
    assert run(*pip, "uninstall", "--yes", "actum").returncode == 0
    assert not (venv / "bin/actum").exists()
