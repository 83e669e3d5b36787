from __future__ import annotations

import hashlib
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import blake3
import pytest
from hypothesis import given
from hypothesis import strategies as st

from actum.capture.collection import ARTIFACT, OUTPUT_FILE, collect_files, collect_tree, shown
from actum.capture.model import Collected, NotCollected

LIMIT = 10_485_760


@pytest.fixture
def root(tmp_path: Path) -> Path:
    directory = tmp_path / "root"
    directory.mkdir()
    return directory


@pytest.fixture
def root_fd(root: Path) -> Iterator[int]:
    fd = os.open(root, os.O_PATH | os.O_DIRECTORY)
    yield fd
    os.close(fd)


def tree(root_fd: int, **bounds: int):
    bounds.setdefault("limit_bytes", LIMIT)
    return collect_tree(root_fd, ARTIFACT, deadline=time.monotonic() + 60, **bounds)


def reasons(not_collected: tuple[NotCollected, ...]) -> dict[str, str]:
    return {item.path: item.reason for item in not_collected}


@pytest.mark.req("000-26")
def test_a_collected_file_is_a_record_by_value(root: Path, root_fd: int):
    (root / "out").mkdir()
    (root / "out" / "report.txt").write_bytes(b"done")
    taken, not_taken = tree(root_fd)
    assert not_taken == ()
    assert taken == (
        Collected(
            name="report.txt",
            path="out/report.txt",
            kind=ARTIFACT,
            content=b"done",
            sha256=hashlib.sha256(b"done").hexdigest(),
            blake3=blake3.blake3(b"done").hexdigest(),
        ),
    )
    assert taken[0].size == 4


def test_what_is_no_file_of_its_own_is_named_and_not_taken(root: Path, root_fd: int):
    secret = root.parent / "secret"
    secret.write_text("outside")
    (root / "link").symlink_to(secret)
    (root / "inner-link").symlink_to("plain")
    (root / "linked-directory").symlink_to(root.parent)
    (root / "plain").write_text("plain")
    (root / "directory").mkdir()
    os.mkfifo(root / "fifo")
    with socket.socket(socket.AF_UNIX) as unix:
        unix.bind(str(root / "socket"))
    paths = ["link", "inner-link", "linked-directory/secret", "directory", "fifo", "socket", "none"]
    taken, not_taken = collect_files(
        root_fd, [*paths, "../secret", str(secret), "plain/under", "plain"], OUTPUT_FILE, LIMIT
    )
    assert [item.path for item in taken] == ["plain"]
    assert reasons(not_taken) == {
        "link": "symbolic link",
        "inner-link": "symbolic link",
        "linked-directory/secret": "symbolic link",
        "directory": "directory",
        "fifo": "FIFO",
        "socket": "socket or device",
        "none": "missing",
        "../secret": "outside its directory",
        str(secret): "outside its directory",
        "plain/under": "missing",
    }


def test_a_zero_byte_in_a_name_does_not_reach_the_file_before_it(root: Path, root_fd: int):
    (root / "plain").write_text("plain")
    taken, not_taken = collect_files(root_fd, ["plain\0.txt"], OUTPUT_FILE, LIMIT)
    assert taken == ()
    assert reasons(not_taken) == {"plain%00.txt": "missing"}


def test_an_artifact_with_a_second_name_elsewhere_is_refused(root: Path, root_fd: int):
    other = root.parent / "of-another"
    other.write_text("private")
    os.link(other, root / "mine")
    taken, not_taken = tree(root_fd)
    assert taken == ()
    assert not_taken == (
        NotCollected(path="mine", kind=ARTIFACT, reason="hard-linked elsewhere", size=7),
    )


def test_a_hard_linked_output_file_is_the_askers_own_business(root: Path, root_fd: int):
    (root / "a").write_text("same")
    os.link(root / "a", root / "b")
    taken, _ = collect_files(root_fd, ["a", "b"], OUTPUT_FILE, LIMIT)
    assert [item.content for item in taken] == [b"same", b"same"]


@pytest.mark.req("000-79")
@pytest.mark.parametrize("kind", [OUTPUT_FILE, ARTIFACT])
def test_what_does_not_fit_the_total_is_named_with_its_size(root: Path, root_fd: int, kind: str):
    (root / "a").write_bytes(b"a" * 6)
    (root / "b").write_bytes(b"b" * 5)
    (root / "c").write_bytes(b"c" * 4)
    if kind == ARTIFACT:
        taken, not_taken = tree(root_fd, limit_bytes=10)
    else:
        taken, not_taken = collect_files(root_fd, ["a", "b", "c"], kind, 10)
    assert [item.path for item in taken] == ["a", "c"]
    assert not_taken == (
        NotCollected(path="b", kind=kind, reason="over the total of 10 bytes", size=5),
    )


def test_output_files_of_exactly_the_total_are_taken_and_one_byte_more_is_not(
    root: Path, root_fd: int
):
    (root / "all").write_bytes(b"x" * LIMIT)
    (root / "one").write_bytes(b"y")
    taken, not_taken = collect_files(root_fd, ["all", "one"], OUTPUT_FILE, LIMIT)
    assert [(item.path, item.size) for item in taken] == [("all", LIMIT)]
    assert [(item.path, item.size) for item in not_taken] == [("one", 1)]


def test_a_sparse_file_is_judged_by_what_it_would_cost_to_read(root: Path, root_fd: int):
    with open(root / "sparse", "wb") as file:
        file.truncate(1 << 40)
    taken, not_taken = tree(root_fd)
    assert taken == ()
    assert [(item.path, item.size) for item in not_taken] == [("sparse", 1 << 40)]


def test_a_file_that_grows_while_it_is_read_is_not_passed_off_as_whole(root: Path, root_fd: int):
    stop = threading.Event()
    path = root / "growing"
    path.write_bytes(b"x" * (1 << 20))

    def grow() -> None:
        with open(path, "ab", buffering=0) as file:
            while not stop.is_set():
                file.write(b"x")

    writer = threading.Thread(target=grow)
    writer.start()
    seen: set[str] = set()
    until = time.monotonic() + 20
    try:
        while "changed while it was read" not in seen and time.monotonic() < until:
            _, not_taken = collect_files(root_fd, ["growing"], OUTPUT_FILE, 1 << 40)
            seen |= {item.reason for item in not_taken}
    finally:
        stop.set()
        writer.join()
    assert seen == {"changed while it was read"}


@pytest.mark.parametrize("directory", [False, True], ids=["file", "directory"])
def test_a_swap_for_a_symlink_is_never_followed(root: Path, root_fd: int, directory: bool):
    outside = root.parent / "outside"
    outside.mkdir()
    (outside / "file").write_text("secret")
    (root / "real").mkdir()
    (root / "real" / "file").write_text("honest")
    (root / "real-file").write_text("honest")
    target, honest = (outside, "real") if directory else (outside / "file", "real-file")
    wanted = "swapped/file" if directory else "swapped"
    stop = threading.Event()

    def swap() -> None:
        (root / "planted").symlink_to(target)
        while not stop.is_set():
            os.rename(root / honest, root / "swapped")
            os.rename(root / "swapped", root / honest)
            os.rename(root / "planted", root / "swapped")
            os.rename(root / "swapped", root / "planted")

    swapper = threading.Thread(target=swap)
    swapper.start()
    seen: set[str] = set()
    until = time.monotonic() + 20
    try:
        while not {"honest", "symbolic link"} <= seen and time.monotonic() < until:
            taken, not_taken = collect_files(root_fd, [wanted], OUTPUT_FILE, LIMIT)
            tree_taken, _ = tree(root_fd)
            contents = {item.content.decode() for item in (*taken, *tree_taken)}
            assert contents <= {"honest"}
            seen |= contents | {item.reason for item in not_taken}
    finally:
        stop.set()
        swapper.join()
    assert {"honest", "symbolic link"} <= seen  # the race was really run


@pytest.mark.req("000-165")
def test_collection_order_is_the_order_of_raw_bytes(root: Path, root_fd: int):
    names = [b"z", b"a", b"B", b"a/..", b"\xff", "\u00e9".encode(), b"a-b", b"10", b"9"]
    wanted = sorted(name for name in names if name != b"a/..")
    for name in reversed(wanted):
        Path(os.fsdecode(os.fsencode(root) + b"/" + name)).write_text("")
    by_tree, _ = tree(root_fd)
    by_name, _ = collect_files(root_fd, reversed(wanted), OUTPUT_FILE, LIMIT)
    assert [item.path for item in by_tree] == [shown(name) for name in wanted]
    assert [item.path for item in by_name] == [shown(name) for name in wanted]


def test_a_name_that_is_not_text_is_percent_encoded(root: Path, root_fd: int):
    Path(os.fsdecode(os.fsencode(root) + b"/caf\xe9 1%\n")).write_text("x")
    taken, _ = tree(root_fd)
    assert [item.path for item in taken] == ["caf%E9 1%25%0A"]


@given(first=st.binary(max_size=20), second=st.binary(max_size=20))
def test_two_names_never_look_the_same(first: bytes, second: bytes):
    assert (shown(first) == shown(second)) == (first == second)
    assert shown(first).isprintable()


def test_a_tree_is_taken_whole_with_paths_from_its_root(root: Path, root_fd: int):
    for path in ("b/c/deep.txt", "b/d.txt", "a.txt"):
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(path)
    (root / "empty").mkdir()
    taken, not_taken = tree(root_fd)
    assert [(it.name, it.path, it.kind, it.content.decode()) for it in taken] == [
        ("a.txt", "a.txt", ARTIFACT, "a.txt"),
        ("deep.txt", "b/c/deep.txt", ARTIFACT, "b/c/deep.txt"),
        ("d.txt", "b/d.txt", ARTIFACT, "b/d.txt"),
    ]
    assert not_taken == ()


def test_planted_links_pipes_and_sockets_in_a_tree_are_named(root: Path, root_fd: int):
    (root / "link").symlink_to("/etc/passwd")
    (root / "links").symlink_to("/etc")
    os.mkfifo(root / "fifo")
    with socket.socket(socket.AF_UNIX) as unix:
        unix.bind(str(root / "socket"))
    taken, not_taken = tree(root_fd)
    assert taken == ()
    assert reasons(not_taken) == {
        "fifo": "FIFO",
        "link": "symbolic link",
        "links": "symbolic link",
        "socket": "socket or device",
    }


def test_a_tree_deeper_than_the_bound_is_cut_and_named(root: Path, root_fd: int):
    (root / "a/b/c").mkdir(parents=True)
    (root / "a/b/kept").write_text("kept")
    (root / "a/b/c/lost").write_text("lost")
    taken, not_taken = tree(root_fd, max_depth=2)
    assert [item.path for item in taken] == ["a/b/kept"]
    assert reasons(not_taken) == {"a/b/c": "deeper than 2 directories"}


def test_a_directory_nested_beyond_every_path_length_is_survived(root: Path, root_fd: int):
    name = "d" * 255
    fds = [os.open(root, os.O_RDONLY)]
    for _ in range(40):
        os.mkdir(name, dir_fd=fds[-1])
        fds.append(os.open(name, os.O_RDONLY, dir_fd=fds[-1]))
    taken, not_taken = tree(root_fd)
    assert taken == ()
    assert len(not_taken) == 1
    for fd in reversed(fds[:-1]):
        os.rmdir(name, dir_fd=fd)
    for fd in fds:
        os.close(fd)


def test_files_over_the_count_are_each_named(root: Path, root_fd: int):
    for number in range(5):
        (root / f"{number}").write_text("x")
    taken, not_taken = tree(root_fd, max_files=3)
    assert [item.path for item in taken] == ["0", "1", "2"]
    assert reasons(not_taken) == {
        "3": "over the count of 3 files",
        "4": "over the count of 3 files",
    }


def test_a_flood_of_entries_takes_nothing_and_says_so(root: Path, root_fd: int):
    for number in range(40):
        (root / f"{number}").write_text("x")
    taken, not_taken = tree(root_fd, max_files=2)
    assert taken == ()
    assert reasons(not_taken) == {".": "more than 32 entries"}


def test_a_tree_whose_time_is_up_is_named_as_not_reached(root: Path, root_fd: int):
    (root / "a").write_text("x")
    taken, not_taken = collect_tree(
        root_fd, ARTIFACT, limit_bytes=LIMIT, deadline=time.monotonic() - 1
    )
    assert taken == ()
    assert reasons(not_taken) == {".": "not reached in time"}


def test_no_descriptor_is_left_open(root: Path, root_fd: int):
    (root / "a").mkdir()
    (root / "a/b").write_text("x")
    (root / "link").symlink_to("a")
    os.mkfifo(root / "fifo")
    before = sorted(os.listdir("/proc/self/fd"))
    tree(root_fd)
    tree(root_fd, max_files=0)
    collect_files(root_fd, ["a/b", "fifo", "none", "a"], OUTPUT_FILE, 0)
    assert sorted(os.listdir("/proc/self/fd")) == before
