"""Every file of every work item, and every copy in the home: changed, cut, emptied, deleted,
swapped, replaced by a link, a folder and a pipe.

The cases are made from the files that are there. What is not tried has a reason here. `make test`
changes and deletes each file, and tries two of the other ways by turns; `make soak` tries them all.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from actum import removal

from .attacker import Verdict, aside, verify
from .home import SESSION, make_home

pytestmark = pytest.mark.sandbox

SOAK = os.environ.get("ACTUM_SOAK") == "1"
#: Folders whose every file is tried.
_FOLDERS = ("receipts", "session", "work", "evidence", "golden", "transactions", "inbox")
#: Names that nothing is read from, or nothing but what a look at the project shows again.
_NOTHING_IN_THEM = ("lock", "index.lock", "owner", removal.MARKER)
#: What transactions keep, and changes that wait: compared with their digests when they are used. A
#: program that has a replaced file open may go on writing to it.
_CONTENTS = ("old", "after", "upper", "work", "lower")
_INDEX = "index.db"
#: So many files with the output of executions are tried.
_STREAMS = 6
#: Copies that people may delete: a command makes them again, or does not need them.
_DELETABLE = ("receipts/", f"session/{SESSION}/cached-", "golden/", "inbox/")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_home(tmp_path_factory.mktemp("files") / "project")


@pytest.fixture(autouse=True)
def untouched(home: Path) -> Iterator[None]:
    """The control of every test: the home as it was made verifies, before and after."""
    assert verify(home) == (0, [])
    yield
    assert verify(home) == (0, [])


def files(home: Path) -> list[Path]:
    found = [
        Path(folder, name)
        for top in _FOLDERS
        for folder, _, names in os.walk(home / top)
        for name in names
        if name not in _NOTHING_IN_THEM and not name.startswith(_INDEX)
        if top != "transactions" or not is_content(Path(folder, name).relative_to(home))
    ]
    of_sessions = [path for path in found if path.name in ("stdout", "stderr")]
    return sorted(set(found) - set(sorted(of_sessions)[_STREAMS:]))


def is_content(path: Path) -> bool:
    _, _, *parts = path.parts
    return path.name.startswith("kept-") or (len(parts) > 2 and parts[1] in _CONTENTS)


def is_deletable(home: Path, path: Path) -> bool:
    name = str(path.relative_to(home))
    return name.startswith(_DELETABLE) and not name.startswith("receipts/work/")


def test_the_home_holds_every_kind_of_file(home: Path) -> None:
    kinds = {
        "/".join("*" if len(part) > 15 or part.isdigit() else part for part in parts)
        for parts in (path.relative_to(home).with_suffix("").parts for path in files(home))
    }
    assert kinds == {
        "evidence/*/*",
        "golden/*",
        "inbox/*",
        "receipts/*",
        "receipts/work/*/RECEIPT",
        "receipts/work/*/replay-agent-1",
        "receipts/work/*/replay-agent-2",
        "receipts/work/*/replay-agent-3",
        f"session/{SESSION}/*",
        f"session/{SESSION}/*/stderr",
        f"session/{SESSION}/*/stdout",
        "transactions/*/*/backward",
        "transactions/*/record",
        "work/*/base",
        "work/*/kept/*/backward",
        "work/*/kept/*/old/*",
    }
    assert any(path.is_symlink() for path in files(home))


def missed(home: Path, path: Path, what: str, verdict: Verdict) -> list[str]:
    name = str(path.relative_to(home))
    named = name in verdict.text or path.name in verdict.text
    if verdict.code == 1 and verdict.broken and named:
        return []
    return [f"{name} {what}: exit {verdict.code}, {verdict.text}"]


def changed(path: Path, kept: Path) -> Iterator[str]:
    """Puts other things in the place of a file, one after the other."""
    if kept.is_symlink():
        path.symlink_to("elsewhere")
        yield "another target"
        path.unlink()
        path.write_bytes(os.fsencode(os.readlink(kept)))
        yield "a file in the place of a link"
        path.unlink()
    else:
        whole = kept.read_bytes()
        for what, content in {
            "changed": whole[:-1] + bytes([whole[-1] ^ 1]) if whole else b"x",
            "longer": whole + b"\n",
            "cut": whole[: len(whole) // 2],
            "empty": b"",
        }.items():
            if content != whole:
                path.write_bytes(content)
                path.chmod(kept.stat().st_mode & 0o777)
                yield what
                path.unlink()
        path.symlink_to(kept)  # which holds what belongs there
        yield "a link in its place"
        path.unlink()
    path.mkdir()
    yield "a folder in its place"
    path.rmdir()
    os.mkfifo(path)
    yield "a pipe in its place"
    path.unlink()


@pytest.mark.soak
def test_every_file_is_watched(home: Path, tmp_path: Path, record_property: object) -> None:
    tried, unnoticed = 0, []
    for turn, path in enumerate(files(home)):
        with aside(path, tmp_path) as kept:
            for way, what in enumerate(changed(path, kept)):
                if not SOAK and way > 0 and (way + turn) % 3 > 0:
                    continue
                tried += 1
                unnoticed += missed(home, path, what, verify(home))
            verdict = verify(home)
            if is_deletable(home, path):
                assert verdict == (0, []), path
            else:
                tried += 1
                unnoticed += missed(home, path, "deleted", verdict)
    record_property("figure", f"files: {tried} changes, {len(unnoticed)} missed")  # type: ignore[operator]
    assert unnoticed == []


def test_files_that_exchange_contents_are_found(home: Path, tmp_path: Path) -> None:
    unnoticed = []
    found = [path for path in files(home) if not path.is_symlink()]
    for one, other in pairwise(found):
        if one.read_bytes() == other.read_bytes():
            continue
        with aside(one, tmp_path) as first:
            (tmp_path / "second").mkdir(exist_ok=True)
            with aside(other, tmp_path / "second") as second:
                shutil.copy2(second, one)
                shutil.copy2(first, other)
                verdict, what = verify(home), f"exchanged with {other}"
                # Of a record that was changed, nothing else is said.
                if missed(home, other, what, verdict):
                    unnoticed += missed(home, one, what, verdict)
    assert unnoticed == []


def test_a_kept_file_with_another_mode_is_found(home: Path) -> None:
    kept = [path for path in files(home) if path.parent.name == "old" and not path.is_symlink()]
    assert kept
    for path in kept:
        mode = path.stat().st_mode & 0o777
        path.chmod(mode ^ 0o022)
        verdict = verify(home)
        path.chmod(mode)
        assert missed(home, path, "mode", verdict) == []


@pytest.mark.parametrize(
    "name",
    [
        "receipts/planted.json",
        "receipts/work/planted/replay-agent-1.sh",
        "receipts/work/*/planted.sh",
        "work/*/planted",
        "work/*/kept/planted/backward.json",
        "work/*/kept/*/planted",
        "work/*/kept/*/old/99",
        "work/*/kept/*/met/0",
        "inbox/planted",
        "transactions/planted-1/record.json",
        "transactions/planted-1/intent.json",
        "transactions/planted-1",
    ],
)
def test_a_file_that_no_record_knows_is_found(home: Path, name: str) -> None:
    folder = home
    *parents, last = name.split("/")
    for part in parents:
        folder = next(iter(sorted(folder.glob(part))), folder / part)
    new = [parent for parent in (folder, *folder.parents) if not parent.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / last).write_text("{}")
    verdict = verify(home)
    (folder / last).unlink()
    for parent in new:
        parent.rmdir()
    assert (verdict.code, bool(verdict.broken)) == (1, True)
    assert "planted" in verdict.text or last in verdict.text


@pytest.mark.parametrize("file", ["record.json", "intent.json"])
def test_a_transaction_that_is_planted_for_an_execution_is_found(home: Path, file: str) -> None:
    """Commands would show, undo or carry out what it says."""
    kept = {path.name.rpartition("-")[0] for path in (home / "transactions").glob("*-1")}
    database = sqlite3.connect(f"file:{home / 'actum.db'}?mode=ro", uri=True)
    closed = database.execute("SELECT execution_id FROM executions WHERE outcome = 'SUCCEEDED'")
    execution = next(each for (each,) in closed.fetchall() if each not in kept)
    database.close()
    folder = home / "transactions" / f"{execution}-1"
    source = next((home / "transactions").glob("*/record.json"))
    folder.mkdir()
    shutil.copyfile(source, folder / file)
    verdict = verify(home)
    (folder / file).unlink()
    folder.rmdir()
    assert verdict.code == 1
    assert folder.name in verdict.text


def test_folders_that_are_links_are_found(home: Path, tmp_path: Path) -> None:
    (kept,) = home.glob("work/*/kept")
    receipts = home / "receipts" / "work"
    transactions = home / "transactions"
    transaction = next(transactions.glob("*-1"))
    of_work = (receipts, next(receipts.iterdir()), kept, next(kept.iterdir()))
    for folder in (*of_work, transactions, transaction):
        with aside(folder, tmp_path) as moved:
            folder.symlink_to(moved)
            verdict = verify(home)
        assert (verdict.code, bool(verdict.broken)) == (1, True), folder
        assert "link" in verdict.text or "in the place of a folder" in verdict.text, folder


def test_an_index_that_hides_an_edit_of_the_project_is_found(home: Path, tmp_path: Path) -> None:
    """The index names a digest for the stamps that a file has: a scan would believe it."""
    (index,) = home.glob(f"work/*/{_INDEX}")
    shutil.copyfile(index, tmp_path / "index.db")
    connection = sqlite3.connect(index)
    rows = connection.execute("SELECT path, lines FROM folders WHERE length(lines) > 0").fetchall()
    for path, lines in rows:
        forged = lines[:-1] + bytes([lines[-1] ^ 1])
        connection.execute("UPDATE folders SET lines = ? WHERE path = ?", (forged, path))
    connection.commit()
    connection.close()
    verdict = verify(home)
    shutil.copyfile(tmp_path / "index.db", index)
    assert verdict.code == 1
    assert f"{_INDEX}" in verdict.text
    # It is a cache: without one, or with one that is none, a scan finds the same.
    for content in (b"", b"no database"):
        index.write_bytes(content)
        assert verify(home) == (0, [])
    index.unlink()
    assert verify(home) == (0, [])
    shutil.copyfile(tmp_path / "index.db", index)


@pytest.mark.parametrize(
    ("name", "harmless"),
    [
        ("actum.db", {"longer"}),
        # It holds no frame: bytes behind the last frame are what a power cut leaves.
        ("actum.journal", {"changed", "longer", "cut"}),
        ("keys/current", {"changed", "longer"}),  # its last byte is white space
    ],
)
def test_a_home_without_what_it_stands_on_is_a_finding_and_no_fault(
    home: Path, tmp_path: Path, name: str, harmless: set[str]
) -> None:
    path = home / name
    for suffix in ("-wal", "-shm"):
        (home / f"actum.db{suffix}").unlink(missing_ok=True)
    with aside(path, tmp_path) as kept:
        for what in changed(path, kept):
            assert verify(home).code == (0 if what in harmless else 1), what
        assert verify(home).code == 1
        for suffix in ("-wal", "-shm"):
            (home / f"actum.db{suffix}").unlink(missing_ok=True)


def test_verifying_writes_nothing(home: Path) -> None:
    def content() -> dict[str, bytes]:
        return {
            str(path): path.read_bytes()
            for path in sorted(home.parent.rglob("*"))
            if path.is_file() and not path.name.endswith(("-shm", "-wal"))
        }

    before = content()
    assert verify(home) == (0, [])
    assert content() == before
