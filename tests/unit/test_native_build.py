"""The native parts: compiled from source, to the same bytes anywhere, and never kept in git."""

from __future__ import annotations

import json
import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from actum import native

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
# By path: the hook is no module of the package.
hook = SimpleNamespace(**runpy.run_path(str(ROOT / "hatch_build.py")))


def copy_of_the_sources(folder: Path) -> Path:
    """A checkout at `folder`, as far as compiling needs one."""
    folder.mkdir(parents=True)
    shutil.copy(ROOT / "hatch_build.py", folder)
    for part in hook.NATIVE:
        sources = folder / "src" / part.folder
        sources.mkdir(parents=True, exist_ok=True)
        for file in (SOURCE / part.folder).glob("*.[ch]"):
            shutil.copyfile(file, sources / file.name)
    return folder


def binaries(tree: Path) -> dict[str, bytes]:
    return {part.file: (tree / part.file).read_bytes() for part in hook.NATIVE}


def compiled_in(checkout: Path, *words: str | Path, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*words, sys.executable, "-B", checkout / "hatch_build.py"],
        cwd="/",
        env={"PATH": os.environ["PATH"], **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def said_by(process: subprocess.Popen[str]) -> tuple[int, str]:
    output, errors = process.communicate(timeout=120)
    assert output == ""
    return process.returncode, errors


def test_two_directories_give_the_same_bytes(tmp_path: Path) -> None:
    first = copy_of_the_sources(tmp_path / "one")
    second = copy_of_the_sources(tmp_path / "a much longer" / "name of another")
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    # What would change the compiler's defaults does not reach it.
    strange = {"TMPDIR": str(scratch), "SOURCE_DATE_EPOCH": "1", "LANG": "de_DE.UTF-8"}
    strange |= {"REALGCC": "/bin/false", "CPATH": "/nowhere", "LIBRARY_PATH": "/nowhere"}
    both = compiled_in(first), compiled_in(second, **strange)
    assert [said_by(each) for each in both] == [(0, ""), (0, "")]
    assert binaries(first / "src") == binaries(second / "src")
    assert all(binary.startswith(b"\x7fELF") for binary in binaries(first / "src").values())
    assert not any(os.fsencode(tmp_path) in binary for binary in binaries(second / "src").values())


def test_the_binaries_in_use_are_what_their_sources_say(tmp_path: Path) -> None:
    """A source that was changed and not compiled fails here. So does a warning of the compiler."""
    hook.compile_native(SOURCE, tmp_path, ("-Werror",))
    stale = [name for name, made in binaries(tmp_path).items() if made != _in_use(name)]
    assert stale == [], "run `make build`"


def _in_use(name: str) -> bytes:
    return native.content(name.removeprefix("actum/"))


def test_a_changed_source_gives_another_binary(tmp_path: Path) -> None:
    checkout = copy_of_the_sources(tmp_path / "checkout")
    source = checkout / "src/actum/sandbox/jail/words.c"
    source.write_text(source.read_text() + "\nint added(void);\nint added(void) { return 7; }\n")
    hook.compile_native(checkout / "src", tmp_path)
    changed = binaries(tmp_path)
    assert changed[hook.INIT.file] != _in_use(hook.INIT.file)
    assert changed[hook.DETERMINISM.file] == _in_use(hook.DETERMINISM.file)


def test_the_library_answers_for_clock_random_bytes_and_file_times() -> None:
    library = SOURCE / hook.DETERMINISM.file
    listed = subprocess.run(
        ["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True
    )
    exported = {line.split()[-1] for line in listed.stdout.splitlines()}
    assert {"clock_gettime", "getrandom", "statx", "stat64"} <= exported


def test_without_the_compiler_the_message_names_it_and_its_packages(tmp_path: Path) -> None:
    checkout = copy_of_the_sources(tmp_path / "checkout")
    code, message = said_by(compiled_in(checkout, PATH=str(tmp_path)))
    assert code == 1
    assert "`musl-gcc` was not found" in message
    assert "apt-get install gcc libc6-dev musl-tools" in message
    assert "Traceback" not in message
    assert not (checkout / "src" / hook.DETERMINISM.file).exists()


def test_on_another_architecture_the_message_says_where_to_install(tmp_path: Path) -> None:
    checkout = copy_of_the_sources(tmp_path / "checkout")
    # The kernel names itself i686 to what is started so.
    code, message = said_by(compiled_in(checkout, "setarch", "i686"))
    assert code == 1
    assert "This is Linux on i686" in message and "x86-64 virtual machine" in message
    assert "Traceback" not in message


def test_a_source_that_cannot_be_compiled_is_named_and_nothing_is_replaced(tmp_path: Path) -> None:
    checkout = copy_of_the_sources(tmp_path / "checkout")
    hook.compile_native(checkout / "src", checkout / "src")
    before = binaries(checkout / "src")
    (checkout / "src/actum/sandbox/jail/init.c").write_text("int main(void) { return nothing; }\n")
    code, message = said_by(compiled_in(checkout))
    assert code == 1 and "init.c:1" in message and "Traceback" not in message
    assert binaries(checkout / "src") == before


def test_a_tree_that_was_not_built_says_how_to_build_it(tmp_path: Path) -> None:
    binary = {Path(part.file).name for part in hook.NATIVE}
    left_out = shutil.ignore_patterns("__pycache__", *binary)
    shutil.copytree(SOURCE / "actum", tmp_path / "actum", ignore=left_out)

    def actum(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-B", "-m", "actum.doors.cli.main", *words],
            env={**os.environ, "PYTHONPATH": str(tmp_path)},
            cwd=tmp_path,
            input="true",
            capture_output=True,
            text=True,
            check=False,
        )

    tried = actum("try")
    assert tried.returncode == 70
    assert "NOT_BUILT" in tried.stderr and str(tmp_path / "actum" / native.INIT) in tried.stderr
    assert "`make setup` or `pip install -e .`" in tried.stderr
    assert "Traceback" not in tried.stderr
    asked = actum("doctor", "--json")
    answer = json.loads(asked.stdout)
    assert asked.returncode == 1
    assert answer["build"] == {"init_sha256": None, "determinism_sha256": None}
    local = next(each for each in answer["runners"] if each["runner"] == "local")
    assert not local["usable"] and "`make setup`" in local["remedy"]


@pytest.mark.parametrize("name", [native.INIT, native.DETERMINISM])
def test_git_ignores_the_binary(name: str) -> None:
    asked = subprocess.run(
        ["git", "check-ignore", "-q", f"src/actum/{name}"], cwd=ROOT, check=False
    )
    assert asked.returncode == 0


def test_no_compiled_file_is_in_git() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True)
    files = [ROOT / os.fsdecode(name) for name in listed.stdout.split(b"\0") if name]
    assert ROOT / "hatch_build.py" in files
    compiled = (b"\x7fELF", b"!<arch>", b"\0asm", b"MZ", b"\xca\xfe\xba\xbe", b"\xcf\xfa\xed\xfe")
    found = [
        file
        for file in files
        if file.is_file() and (_head(file).startswith(compiled) or file.suffix in (".pyc", ".o"))
    ]
    assert found == []


def _head(file: Path) -> bytes:
    with file.open("rb") as opened:
        return opened.read(8)
