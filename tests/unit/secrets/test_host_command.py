"""A program on the host: every step to it is judged, and the file that was judged is what runs."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from actum.secrets.host_program import UnsafeCommand, judged
from actum.secrets.sources import Unavailable
from common.own_folder import own_folder

__all__ = ["own_folder"]


def script(path: Path, text: str = "echo judged", first: str = "#!/bin/sh") -> Path:
    path.write_text(f"{first}\n{text}\n")
    path.chmod(0o755)
    return path


def run(*argv: object, writable: tuple[str, ...] = (), **environment: str) -> str:
    """What it says, run as it was judged."""
    words = tuple(map(str, argv))
    with judged(words, environment, writable) as ready:
        done = subprocess.run(
            ready.argv,
            executable=ready.executable,
            pass_fds=ready.descriptors,
            capture_output=True,
            check=True,
            text=True,
            cwd="/",
        )
    return done.stdout.strip()


def test_an_exchange_after_the_look_changes_nothing(own_folder: Path) -> None:
    program, other = script(own_folder / "get"), script(own_folder / "other", "echo exchanged")
    copied = own_folder / "binary"
    copied.write_bytes(Path("/bin/echo").read_bytes())
    copied.chmod(0o755)
    for path, words in ((program, ()), (copied, ("judged",))):
        with judged((str(path), *words), {}, ()) as ready:
            other.with_name("copy").write_bytes(other.read_bytes())
            other.with_name("copy").chmod(0o755)
            os.rename(other.with_name("copy"), path)
            done = subprocess.run(
                ready.argv,
                executable=ready.executable,
                pass_fds=ready.descriptors,
                capture_output=True,
                check=True,
            )
        assert done.stdout == b"judged\n"
        assert run(path) == "exchanged"  # the control: the name leads to the other one now


def test_links_are_followed_step_by_step(own_folder: Path) -> None:
    (own_folder / "bin").mkdir()
    script(own_folder / "bin/get")
    (own_folder / "one").symlink_to("two")
    (own_folder / "two").symlink_to(own_folder / "bin")
    (own_folder / "bin/up").symlink_to("../one/./get")
    assert run(own_folder / "one/up") == "judged"
    assert run(own_folder / "bin/../one//get") == "judged"
    (own_folder / "bin").chmod(0o775)
    with pytest.raises(UnsafeCommand, match=rf"{own_folder}/bin is writable"):
        run(own_folder / "one/up")


def test_a_circle_of_links_ends(own_folder: Path) -> None:
    (own_folder / "a").symlink_to("b")
    (own_folder / "b").symlink_to("a")
    with pytest.raises(UnsafeCommand, match="more than 40 links"):
        run(own_folder / "a")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
@pytest.mark.parametrize("what", ["get", ".", "link"])
def test_what_belongs_to_another_user_is_refused_even_for_root(own_folder: Path, what: str) -> None:
    script(own_folder / "get")
    (own_folder / "link").symlink_to("get")
    assert run(own_folder / "link") == "judged"
    os.chown(own_folder / what, 4242, -1, follow_symlinks=False)
    with pytest.raises(UnsafeCommand, match="belongs to uid 4242"):
        run(own_folder / "link")


def test_another_name_of_a_writable_place_is_that_place(own_folder: Path) -> None:
    (own_folder / "shared").mkdir()
    script(own_folder / "shared/get")
    (own_folder / "alias").symlink_to("shared")
    assert run(own_folder / "shared/get", writable=(str(own_folder / "none"),)) == "judged"
    with pytest.raises(UnsafeCommand, match="tools may write"):
        run(own_folder / "shared/get", writable=(str(own_folder / "alias"),))
    with pytest.raises(UnsafeCommand, match="tools may write"):
        run(own_folder / "shared/get", writable=(str(own_folder / "shared/get"),))


@pytest.mark.parametrize(
    ("first", "said"),
    [
        ("#!/bin/sh", "a b c"),
        ("#! /bin/sh -e", "a b c"),
        ("#!\t/bin/sh\t-e ", "a b c"),
        ("#!/usr/bin/env sh", "a b c"),
    ],
)
def test_a_script_runs_as_the_kernel_would_run_it(own_folder: Path, first: str, said: str) -> None:
    path = script(own_folder / "get", 'echo "$1" "$2"', first)
    kernels = subprocess.run([path, "a b", "c"], capture_output=True, text=True, check=True)
    assert run(path, "a b", "c", PATH="/usr/bin:/bin") == kernels.stdout.strip() == said


@pytest.mark.parametrize(
    ("first", "why"),
    [
        ("#!sh", "absolute path"),
        ("#!./sh", "absolute path"),
        ("#!/usr/bin/env -S sh -e", "found|finds its interpreter by env"),
        ("#!/usr/bin/env A=b sh", "by env"),
        ("#!/usr/bin/env", "by env"),
        ("#!" + "/" * 300 + "bin/sh", "longer than the kernel reads"),
    ],
)
def test_an_interpreter_that_is_looked_for_elsewhere_is_refused(
    own_folder: Path, first: str, why: str
) -> None:
    with pytest.raises(UnsafeCommand, match=why):
        run(script(own_folder / "get", first=first), PATH="/usr/bin:/bin")


def test_a_script_that_is_an_interpreter_is_one_more_step(own_folder: Path) -> None:
    # `inner FILE ...` says what it was given.
    inner = script(own_folder / "inner", 'echo "inner $2"')
    outer = script(own_folder / "outer", first=f"#!{inner}")
    assert run(outer, "x") == "inner x"
    loop = own_folder / "loop"
    script(loop, first=f"#!{loop}")
    with pytest.raises(UnsafeCommand, match="nested script"):
        run(loop)


def test_env_in_the_place_of_the_program_is_refused() -> None:
    with pytest.raises(UnsafeCommand, match="name that program itself"):
        run("/usr/bin/env", "printf", "x")


@pytest.mark.parametrize("name", ["nowhere", "folder", "plain", "folder/get", "plain/get"])
def test_what_cannot_be_run_is_said_to_be_so(own_folder: Path, name: str) -> None:
    (own_folder / "folder").mkdir()
    (own_folder / "plain").write_text("text")
    with pytest.raises(Unavailable) as caught:
        run(own_folder / name)
    assert not isinstance(caught.value, UnsafeCommand)
    assert str(own_folder / name) in str(caught.value)


def test_no_descriptor_is_left_open(own_folder: Path) -> None:
    path = script(own_folder / "get")
    before = set(os.listdir("/proc/self/fd"))
    assert run(path) == "judged"
    with pytest.raises(Unavailable):
        run(own_folder / "nowhere")
    assert set(os.listdir("/proc/self/fd")) == before
