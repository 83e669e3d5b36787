"""The root that an init builds, asked for what no policy would let through."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from actum.sandbox.spawner_client import Spawner
from hostile.member import asked, carried_out, granted, spawner

pytestmark = pytest.mark.sandbox


@pytest.fixture(scope="module")
def started() -> Iterator[Spawner]:
    with spawner() as ready:
        yield ready


@pytest.fixture
def folder_in() -> Iterator[Callable[[str], Path]]:
    made: list[Path] = []

    def make(where: str) -> Path:
        folder = Path(tempfile.mkdtemp(dir=where))
        made.append(folder)
        folder.chmod(0o755)
        (folder / "deeper").mkdir()
        (folder / "deeper" / "seen").write_text("seen")
        return folder

    yield make
    for folder in made:
        shutil.rmtree(folder)


@pytest.mark.parametrize("below", ["", "deeper"])
def test_a_mount_point_is_never_made_through_a_link(
    started: Spawner, folder_in: Callable[[str], Path], below: str
) -> None:
    """Inside, /var/tmp is a link to the tool's own /tmp."""
    linked, plain = folder_in("/var/tmp") / below, folder_in("/tmp") / below
    script = "cat $(find /tmp -name seen) && ls /var/tmp/"
    report, said = carried_out(started, asked(script, grants=[granted(linked)]))
    assert report["kind"] == "failed"
    assert (report["reason"], said) == ("SANDBOX_UNAVAILABLE", "")
    assert "symbolic links" in report["message"]
    report, said = carried_out(started, asked(script, grants=[granted(plain)]))
    assert report["kind"] == "ended"
    assert "seen" in said


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("plain", True),
        ("a/b/c", True),
        ("..hidden/...", True),
        ("../above", False),
        ("a/../../above", False),
        ("./here", False),
        ("a//b", False),
        ("/a", False),
        ("a/", False),
        ("..", False),
        ("", False),
    ],
)
def test_provided_files_stay_where_they_belong(started: Spawner, name: str, is_one: bool) -> None:
    script = (
        f'cat "/run/actum/{name}"; find /run -name above; echo x > /run/actum/new && echo WRITTEN'
    )
    report, said = carried_out(started, asked(script, provided={name: b"given"}))
    if is_one:
        assert (report["kind"], said) == ("ended", "given")
    else:
        assert report["kind"] == "failed"
        assert report["message"] == f"{name} is no file name"


def test_two_provided_files_cannot_be_one_and_a_folder(started: Spawner) -> None:
    report, _ = carried_out(started, asked("true", provided={"a": b"1", "a/b": b"2"}))
    assert report["kind"] == "failed"
    report, said = carried_out(
        started, asked("cat /run/actum/a/b /run/actum/a/c", provided={"a/b": b"2", "a/c": b"3"})
    )
    assert (report["kind"], said) == ("ended", "23")


@pytest.mark.parametrize(
    "files",
    [{"large": b"x" * (24 << 20)}, {f"few/{number}": b"x" for number in range(3_000)}],
    ids=["one large", "many small"],
)
def test_there_is_room_for_every_provided_file(started: Spawner, files: dict[str, bytes]) -> None:
    script = "find /run/actum -type f | wc -l; cat $(find /run/actum -type f) | wc -c"
    report, said = carried_out(started, asked(script, provided=files))
    assert report["kind"] == "ended"
    assert said.split() == [str(len(files)), str(sum(map(len, files.values())))]


def test_what_is_denied_below_a_folder_that_is_denied_as_well_is_no_trouble(
    started: Spawner, folder_in: Callable[[str], Path]
) -> None:
    folder = folder_in("/tmp")
    covered = [str(folder / "deeper"), str(folder / "deeper" / "seen"), str(folder / "nowhere")]
    script = f"cat {folder}/deeper/seen; echo $?; mv {folder}/deeper {folder}/other; ls {folder}"
    grants = [granted(folder, write=True)]
    report, said = carried_out(started, asked(script, grants=grants, deny=covered))
    assert (report["kind"], said) == ("ended", "1\ndeeper\n")
    report, said = carried_out(started, asked(script, grants=grants))
    assert (report["kind"], said) == ("ended", "seen0\nother\n")
