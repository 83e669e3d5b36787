"""What is granted is opened beside the sandbox, and is what was judged, or is not opened."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from actum.sandbox import wire
from actum.sandbox.spawner_client import Spawner
from hostile.member import asked, carried_out, granted, spawner

pytestmark = pytest.mark.sandbox


@pytest.fixture(scope="module")
def started() -> Iterator[Spawner]:
    with spawner() as one:
        yield one


def test_more_paths_than_a_message_takes_arrive_in_their_order(
    started: Spawner, tmp_path: Path
) -> None:
    folders = [tmp_path / f"{number:03}" for number in range(wire.MAX_PASSED + 30)]
    for folder in folders:
        folder.mkdir()
        (folder / folder.name).touch()
    script = f"cd {tmp_path}; for each in *; do test -f $each/$each && echo $each; done"
    tmp_path.chmod(0o755)
    report, output = carried_out(started, asked(script, grants=[*map(granted, folders)]))
    assert report["kind"] == "ended", report
    assert output.split() == [folder.name for folder in folders]


def test_what_lies_in_place_of_what_was_judged_is_not_opened(
    started: Spawner, tmp_path: Path
) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
    grants = [granted(first), granted(second)]
    second.rename(tmp_path / "judged")
    second.mkdir()
    report, _ = carried_out(started, asked("echo ran", grants=grants))
    assert (report["kind"], report["reason"]) == ("failed", "PATH_CHANGED")
    assert report["message"] == f"{second} is no longer the file that was checked"


def test_no_link_leads_to_what_was_judged(started: Spawner, tmp_path: Path) -> None:
    grant = granted(tmp_path)
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    report, _ = carried_out(started, asked("echo ran", grants=[{**grant, "path": str(link)}]))
    assert (report["kind"], report["reason"]) == ("failed", "PATH_CHANGED")
    assert report["message"] == f"{link} is no longer the file that was checked"
    # And the next one is served.
    report, output = carried_out(started, asked("echo ran", grants=[grant]))
    assert (report["kind"], output) == ("ended", "ran\n")


def test_what_is_gone_since_it_was_judged_has_changed(started: Spawner, tmp_path: Path) -> None:
    """A refusal, and no fault of the host: what moves paths is the other program."""
    folder, file = tmp_path / "folder", tmp_path / "folder" / "file"
    folder.mkdir()
    file.touch()
    grants = {path: granted(path) for path in (folder, file)}
    folder.rename(tmp_path / "moved")
    for path in (folder, file):
        report, _ = carried_out(started, asked("echo ran", grants=[grants[path]]))
        assert (report["kind"], report["reason"]) == ("failed", "PATH_CHANGED")
    folder.touch()  # ENOTDIR for what was below it
    report, _ = carried_out(started, asked("echo ran", grants=[grants[file]]))
    assert (report["kind"], report["reason"]) == ("failed", "PATH_CHANGED")


def test_a_working_directory_that_is_gone_has_changed(started: Spawner, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    inside = {
        **asked("echo ran", grants=[granted(tmp_path)]),
        "working_directory": f"{tmp_path}/in",
    }
    report, _ = carried_out(started, inside)  # type: ignore[arg-type]
    assert (report["kind"], report["reason"]) == ("failed", "PATH_CHANGED")
    (tmp_path / "in").mkdir(mode=0o755)
    report, output = carried_out(started, inside)  # type: ignore[arg-type]
    assert (report["kind"], output) == ("ended", "ran\n")


@pytest.mark.skipif(os.getuid() != 0, reason="only root has files of others to show")
def test_files_of_several_owners_are_shown_as_the_tools(started: Spawner, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    for uid in range(3_000, 3_020):  # more than are kept
        folder = tmp_path / str(uid)
        folder.mkdir()
        os.chown(folder, uid, uid)
        request = asked(f"touch {folder}/made", grants=[granted(folder, write=True)])
        sandbox, cgroup = started.launch(request, (uid, uid), b"")
        try:
            sandbox.go()
            kinds = []
            while not kinds or kinds[-1] not in ("ended", "failed"):
                received = sandbox.receive()
                assert received is not None
                kinds.append(received[0]["kind"])
        finally:
            sandbox.discard()
            cgroup.remove()
        found = (folder / "made").stat()
        assert (found.st_uid, found.st_gid) == (uid, uid)
