"""The operator's password command runs on the host: only if no one else could have changed it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import yaml
from secret_project import NAME, make, open_project

from actum import Outcome, Result
from actum.registry.approval_workflow import approve
from actum.store.keys import Keyring
from common.own_folder import own_folder

__all__ = ["own_folder"]
pytestmark = pytest.mark.sandbox

VALUE = "v3ry-secret-value"
LENGTH = str(len(VALUE))


def program(path: Path, text: str = f"echo {VALUE}", first: str = "#!/bin/sh") -> Path:
    """A script that leaves a mark beside itself when it runs."""
    path.write_text(f"{first}\ntouch {path}.ran\n{text}\n")
    path.chmod(0o755)
    return path


def ran(path: Path) -> bool:
    return Path(f"{path}.ran").exists()


def command(*words: object) -> str:
    return "{ command = [" + ", ".join(f'"{word}"' for word in words) + "] }"


def give(root: Path) -> Result:
    """The tool says how long the secret is that it was given."""
    with open_project(root) as runtime:
        return runtime.exec("shell", stdin=f"printf ${{#{NAME}}}", secrets=[NAME], cwd=root)


def given(root: Path) -> bool:
    result = give(root)
    assert result.outcome is Outcome.SUCCEEDED, result.violations
    assert result.result is not None
    return result.result.stdout == LENGTH


def refused(root: Path) -> str:
    """Why it was; nothing ran."""
    result = give(root)
    assert (result.outcome, result.reason_codes) == (Outcome.REJECTED, ("HOST_COMMAND_UNSAFE",))
    return result.violations[0].message


@pytest.mark.parametrize("name", ["/usr/bin/printf", "printf"])
def test_a_program_of_the_system_is_asked_by_path_or_by_name(tmp_path: Path, name: str) -> None:
    assert given(make(tmp_path, {NAME: command(name, VALUE)}))


def test_a_program_of_the_caller_is_asked_also_through_a_link(
    tmp_path: Path, own_folder: Path
) -> None:
    script = program(own_folder / "get", f'test "$1" = token && echo {VALUE}')
    link = own_folder / "link"
    link.symlink_to("get")
    assert given(make(tmp_path, {NAME: command(link, "token")}))
    assert ran(script)


def test_a_program_in_the_project_is_refused_and_does_not_run(
    tmp_path: Path, own_folder: Path
) -> None:
    # The project itself is in a folder that no other user can write.
    root = make(own_folder, {NAME: command(own_folder / "project/bin/get")})
    (root / "bin").mkdir()
    script = program(root / "bin/get")
    message = refused(root)
    assert f"{script}: {root} is a path that tools may write" in message
    assert "move the program out" in message
    assert not ran(script)


@pytest.mark.parametrize("direction", ["out of it", "into it"])
def test_a_link_between_the_project_and_elsewhere_is_refused(
    own_folder: Path, direction: str
) -> None:
    inside, outside = own_folder / "project/get", own_folder / "get"
    link, target = (inside, outside) if direction == "out of it" else (outside, inside)
    root = make(own_folder, {NAME: command(link)})
    script = program(target)
    link.symlink_to(target)
    assert "is a path that tools may write" in refused(root)
    assert not ran(script)


@pytest.mark.parametrize("mode", [0o775, 0o777, 0o1777], ids=oct)
def test_a_step_that_others_can_write_is_refused_by_name_with_the_remedy(
    tmp_path: Path, own_folder: Path, mode: int
) -> None:
    parent = own_folder / "tools"
    (parent / "deep").mkdir(parents=True)
    script = program(parent / "deep/get")
    root = make(tmp_path, {NAME: command(script)})
    parent.chmod(mode)
    message = refused(root)
    assert f"{parent} is writable by others than its owner (mode {mode:04o})" in message
    assert f"chmod go-w {parent}" in message
    assert not ran(script)
    parent.chmod(0o755)
    assert given(root)


def test_a_program_that_others_can_write_is_refused(tmp_path: Path, own_folder: Path) -> None:
    script = program(own_folder / "get")
    root = make(tmp_path, {NAME: command(script)})
    script.chmod(0o775)
    assert f"{script} is writable by others" in refused(root)
    script.chmod(0o755)
    assert given(root)


def test_the_temporary_directory_is_no_safe_place(tmp_path: Path) -> None:
    """It is sticky, and everybody can make a name in it."""
    folder = Path(os.environ.get("TMPDIR", "/tmp")).resolve()
    script = program(tmp_path.resolve() / "get")
    message = refused(make(tmp_path, {NAME: command(script)}))
    assert f"{'/tmp' if folder.is_relative_to('/tmp') else folder} is writable" in message


def test_a_name_on_path_is_judged_where_it_is_found(
    tmp_path: Path, own_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = make(own_folder, {NAME: command("get-secret")})
    planted = program(root / "get-secret")
    good = own_folder / "bin"
    good.mkdir()
    program(good / "get-secret")
    monkeypatch.setenv("PATH", f"{root}:{good}:/usr/bin:/bin")
    assert "is a path that tools may write" in refused(root)
    assert not ran(planted)
    monkeypatch.setenv("PATH", f".:{good}:/usr/bin:/bin")
    monkeypatch.chdir(root)
    assert given(root)
    assert not ran(planted)


def test_a_path_that_a_tool_may_write_outside_of_the_project_is_refused(own_folder: Path) -> None:
    shared = own_folder / "shared"
    shared.mkdir()
    script = program(shared / "get")
    root = make(own_folder, {NAME: command(script)})
    assert given(root)
    file = root / "tools/python/tool.yaml"
    tool = yaml.safe_load(file.read_text())
    tool["scope"] |= {"network": "off", "filesystem": [".", str(shared)]}
    tool["permissions"]["filesystem"] = {"read": ["."], "write": [".", str(shared)]}
    file.write_text(yaml.safe_dump(tool))
    keyring = Keyring.open(root / ".actum")
    approve(root, keyring, "python", by="user:maker", evidence="test", date="2026-11-15")
    # For another tool's secret too: whatever was written there stays there.
    assert f"{shared} is a path that tools may write" in refused(root)


@pytest.mark.parametrize("first", ["#!{planted}", "#!/usr/bin/env planted"])
def test_the_interpreter_of_a_script_is_judged_like_the_script(
    own_folder: Path, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    root = make(own_folder, {NAME: command(own_folder / "get")})
    planted = program(root / "planted")
    program(own_folder / "get", first=first.format(planted=planted))
    monkeypatch.setenv("PATH", f"{root}:/usr/bin:/bin")
    assert "is a path that tools may write" in refused(root)
    assert not ran(planted)


def test_a_script_by_env_runs_with_the_interpreter_that_was_judged(
    tmp_path: Path, own_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    text = f"import sys\nassert sys.argv[1] == 'a b'\nprint({VALUE!r})"
    script = own_folder / "get"
    script.write_text(f"#!/usr/bin/env python3\n{text}\n")
    script.chmod(0o755)
    assert given(make(tmp_path, {NAME: command(script, "a b")}))


def test_a_file_that_an_interpreter_is_to_execute_is_judged_too(own_folder: Path) -> None:
    root = make(own_folder, {NAME: command("/bin/sh", own_folder / "get")})
    program(own_folder / "get")
    assert given(root)
    other = make(own_folder / "other", {NAME: command("/bin/sh", own_folder / "other/project/get")})
    planted = program(other / "get")
    assert "is a path that tools may write" in refused(other)
    assert not ran(planted)


@pytest.mark.parametrize(
    "launcher",
    [
        ("/usr/bin/timeout", "5"),
        ("/usr/bin/nice", "-n", "1"),
        ("/usr/bin/setsid", "-w"),
        ("/usr/bin/timeout", "5", "/usr/bin/nice"),
    ],
)
def test_a_program_that_another_one_starts_is_judged_too(
    own_folder: Path, launcher: tuple[str, ...]
) -> None:
    root = make(own_folder, {NAME: command(*launcher, own_folder / "get")})
    program(own_folder / "get")
    assert given(root)
    other = own_folder / "other/project/get"
    planted_in = make(own_folder / "other", {NAME: command(*launcher, other)})
    planted = program(other)
    assert "is a path that tools may write" in refused(planted_in)
    assert not ran(planted)


def test_a_name_that_another_program_looks_up_is_judged_where_it_is_found(
    own_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = make(own_folder, {NAME: command("/usr/bin/timeout", "5", "get-the-secret")})
    monkeypatch.setenv("PATH", f"{root}:{os.environ['PATH']}")
    planted = program(root / "get-the-secret")
    assert "is a path that tools may write" in refused(root)
    assert not ran(planted)
    elsewhere = own_folder / "bin"
    elsewhere.mkdir(mode=0o755)
    program(elsewhere / "get-the-secret")
    monkeypatch.setenv("PATH", f"{elsewhere}:{os.environ['PATH']}")
    assert given(root)


@pytest.mark.parametrize(
    "words",
    [
        ("/usr/bin/python3", "{}/folder"),
        ("/usr/bin/awk", "-f{}/program.awk"),
        ("/usr/bin/make", "-sC", "{}/folder"),
        ("/usr/bin/make", "-s", "--file={}/folder/Makefile"),
    ],
    ids=lambda words: " ".join(words),
)
def test_a_folder_and_a_value_of_an_option_are_judged_too(
    own_folder: Path, words: tuple[str, ...]
) -> None:
    def in_folder(folder: Path) -> tuple[str, ...]:
        return tuple(word.format(folder) for word in words)

    def fill(folder: Path) -> None:
        (folder / "folder").mkdir(mode=0o755, parents=True)
        touch = f"open({str(folder / 'mark.ran')!r}, 'w')"
        (folder / "folder/__main__.py").write_text(f"{touch}\nprint({VALUE!r})\n")
        mark = f"touch {folder}/mark.ran"
        (folder / "folder/Makefile").write_text(f"all:\n\t{mark}; echo {VALUE}\n")
        (folder / "program.awk").write_text(f'BEGIN {{ system("{mark}"); print "{VALUE}" }}\n')

    fill(own_folder / "safe")
    assert given(make(own_folder, {NAME: command(*in_folder(own_folder / "safe"))}))
    assert ran(own_folder / "safe/mark")
    planted = own_folder / "other/project"
    root = make(own_folder / "other", {NAME: command(*in_folder(planted))})
    fill(planted)
    assert "is a path that tools may write" in refused(root)
    assert not ran(planted / "mark")


def test_the_environment_leads_a_command_to_no_place_that_tools_may_write(
    own_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The usual way: the shell that started Actum has the project's own `bin` on its PATH."""
    program(own_folder / "get", f'test "$KEPT" = yes && test -n "$HOME" && helper {VALUE}')
    root = make(own_folder, {NAME: command(own_folder / "get")})
    (root / "bin").mkdir()
    (own_folder / "bin").mkdir(mode=0o755)
    planted = program(root / "bin/helper", 'echo "$1"')
    (own_folder / "link").symlink_to(root / "bin")
    startup = program(root / "startup")
    honest = program(own_folder / "bin/helper", 'echo "$1"')
    for first in (root / "bin", own_folder / "link"):
        monkeypatch.setenv("PATH", f"{first}:{own_folder / 'bin'}:{os.environ['PATH']}")
        monkeypatch.setenv("ENV", str(startup))
        monkeypatch.setenv("BASH_ENV", str(startup))
        monkeypatch.setenv("KEPT", "yes")
        assert given(root)
    assert ran(honest)
    assert not ran(planted)
    assert not ran(startup)
