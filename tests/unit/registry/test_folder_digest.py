"""The digest of a folder: every byte, every name, nothing that is not a plain file."""

from __future__ import annotations

import hashlib
import os
import socket
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from actum.contract.canonical import canonical
from actum.errors import Refused
from actum.registry import digest
from actum.registry.digest import changed_files, folder_digest, read_folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "tool"
    (made / "a" / "b").mkdir(parents=True)
    (made / "tool.yaml").write_text("name: x\n")
    (made / "a" / "b" / "deep.txt").write_text("deep")
    (made / "run.sh").write_text("true\n")
    (made / "run.sh").chmod(0o755)
    return made


def test_the_digest_is_the_sha256_of_the_canonical_listing(folder: Path) -> None:
    listing = {
        "a/b/deep.txt": hashlib.sha256(b"deep").hexdigest(),
        "run.sh": hashlib.sha256(b"true\n").hexdigest() + "+x",
        "tool.yaml": hashlib.sha256(b"name: x\n").hexdigest(),
    }
    assert read_folder(folder).files == listing
    assert folder_digest(folder) == hashlib.sha256(canonical(listing)).hexdigest()


NAMES = st.text("abc", min_size=1, max_size=3)
TREES = st.dictionaries(NAMES, st.binary(max_size=8), max_size=5)


@given(first=TREES, second=TREES)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
def test_equal_digests_mean_equal_trees(
    tmp_path_factory: pytest.TempPathFactory, first: dict[str, bytes], second: dict[str, bytes]
) -> None:
    digests = []
    for tree in (first, dict(reversed(second.items()))):
        root = tmp_path_factory.mktemp("tree")
        for name, content in tree.items():
            (root / name).write_bytes(content)
        digests.append(folder_digest(root))
    assert (digests[0] == digests[1]) == (first == second)


def test_a_name_moved_into_the_content_changes_the_digest(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    (tmp_path / "one" / "a").write_text("bc")
    (tmp_path / "two" / "ab").write_text("c")
    assert folder_digest(tmp_path / "one") != folder_digest(tmp_path / "two")


@pytest.mark.parametrize("kind", ["link", "dangling", "directory link", "pipe", "socket"])
def test_whatever_is_not_a_plain_file_is_refused_by_name(folder: Path, kind: str) -> None:
    odd = folder / "a" / "odd"
    match kind:
        case "link":
            odd.symlink_to(folder / "tool.yaml")
        case "dangling":
            odd.symlink_to("nowhere")
        case "directory link":
            odd.symlink_to("/etc")
        case "pipe":
            os.mkfifo(odd)
        case "socket":
            with socket.socket(socket.AF_UNIX) as bound:
                bound.bind(str(odd))
    with pytest.raises(Refused, match="a/odd") as refused:
        folder_digest(folder)
    assert refused.value.code == "TOOL_FOLDER_UNFIT"


def test_a_folder_that_is_itself_a_link_is_refused(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(folder)
    with pytest.raises(Refused):
        folder_digest(tmp_path / "link")


def test_too_many_files_are_refused(folder: Path) -> None:
    for number in range(digest.MAX_FILES - 5):
        (folder / str(number)).touch()
    assert folder_digest(folder)
    (folder / "one-more").touch()
    with pytest.raises(Refused, match="2000"):
        folder_digest(folder)


def test_too_many_bytes_are_refused_without_reading_them(folder: Path) -> None:
    with (folder / "big").open("wb") as file:
        file.truncate(digest.MAX_BYTES)  # sparse: reading it would still fill memory
    with pytest.raises(Refused, match="bytes"):
        folder_digest(folder)


def test_a_name_that_is_not_text_is_refused(folder: Path) -> None:
    for name in (b"\xff", b"line\nbreak"):
        path = os.path.join(os.fsencode(folder), name)
        with open(path, "wb"):
            pass
        with pytest.raises(Refused, match="printable"):
            folder_digest(folder)
        os.unlink(path)


def test_changes_are_told_in_words() -> None:
    approved = {"a": "1", "b": "2", "c": "3", "d": "4+x", "e": "5"}
    found = {"a": "1", "b": "9", "c": "3+x", "d": "4", "f": "6"}
    assert changed_files(approved, found) == (
        "b (edited)",
        "c (now executable)",
        "d (no longer executable)",
        "e (removed)",
        "f (added)",
    )
